package listen

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// SessionPath is where people sign in; see Sessions.
const SessionPath = "/v1/session"

const (
	sessionCookie = "rollout_session"
	sessionLasts  = 12 * time.Hour
	maxSignIn     = 4 << 10 // bytes of a request to sign in

	// wrongTokenTakes is how long a wrong token waits for its answer. One waits at a time, and
	// others are told to come back, so that a process tries no more than two a second.
	wrongTokenTakes = 500 * time.Millisecond
)

// Sessions signs people in with the token of an API, and knows them again by a cookie, which a
// browser sends by itself to the same site alone:
//
//	GET    /v1/session                {"needed":true,"signed_in":false}
//	POST   /v1/session {"token":"…"}  204 and the cookie, or 401
//	DELETE /v1/session                204: the browser forgets the cookie
//
// A cookie is an expiry and its HMAC with a key that is made of the token. It is not stored
// anywhere: it holds for 12 hours, or until the token changes. Without a token nobody needs to
// sign in. Sessions is safe for concurrent use.
type Sessions struct {
	token secret.Value
	clock clock.Clock
	wrong chan struct{} // has one while a wrong token waits for its answer
}

// NewSessions returns the sessions of an API with that token, which may be empty.
func NewSessions(token secret.Value, c clock.Clock) *Sessions {
	return &Sessions{token: token, clock: c, wrong: make(chan struct{}, 1)}
}

// needed reports whether requests need the token.
func (s *Sessions) needed() bool { return s.token.Reveal() != "" }

// Admits reports whether the request comes from a browser that has signed in.
func (s *Sessions) Admits(r *http.Request) bool {
	if !s.needed() {
		return false
	}
	for _, c := range r.CookiesNamed(cookieOf(r)) {
		text, mac, _ := strings.Cut(c.Value, ".")
		expiry, err := strconv.ParseInt(text, 10, 64)
		if err == nil && hmac.Equal([]byte(mac), []byte(s.mac(expiry))) && s.clock.Now().Unix() < expiry {
			return true
		}
	}
	return false
}

// cookieOf returns the name of the cookie at the address that a request names. Browsers send a host's
// cookies to all its ports, so that each port has a name of its own: signing in to one installation
// must not sign out of another on the same machine.
func cookieOf(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if n, numErr := strconv.ParseUint(port, 10, 16); err == nil && numErr == nil {
		return sessionCookie + "_" + strconv.FormatUint(n, 10)
	}
	return sessionCookie
}

// mac returns what proves that a cookie of that expiry is ours.
func (s *Sessions) mac(expiry int64) string {
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(text)) // a hash takes all
		return h.Sum(nil)
	}
	key := sum([]byte(s.token.Reveal()), "key of rollout's sessions")
	return base64.RawURLEncoding.EncodeToString(sum(key, strconv.FormatInt(expiry, 10)))
}

// ServeHTTP answers at SessionPath. It needs no token.
func (s *Sessions) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		WriteJSON(w, http.StatusOK, struct {
			Needed   bool `json:"needed"`
			SignedIn bool `json:"signed_in"`
		}{s.needed(), !s.needed() || hasBearerToken(r, s.token) || s.Admits(r)})
	case http.MethodPost:
		s.signIn(w, r)
	case http.MethodDelete:
		s.answerCookie(w, r, "", -1)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		WriteError(w, http.StatusMethodNotAllowed, fault.Invalid.String(), r.Method+" is not possible here")
	}
}

func (s *Sessions) signIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignIn)).Decode(&body); err != nil {
		WriteError(w, http.StatusBadRequest, fault.Invalid.String(), `the body must be {"token":"…"}`)
		return
	}
	if s.needed() && !sameToken(body.Token, s.token) {
		if !s.delay(r) {
			w.Header().Set("Retry-After", "1")
			WriteError(w, http.StatusTooManyRequests, fault.Throttled.String(),
				"too many wrong tokens: ask again after the seconds in the header Retry-After")
			return
		}
		WriteError(w, http.StatusUnauthorized, fault.Denied.String(),
			"this is not the token: it is the value of the secret "+TokenSecret)
		return
	}
	if !s.needed() {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	expiry := s.clock.Now().Add(sessionLasts).Unix()
	s.answerCookie(w, r, strconv.FormatInt(expiry, 10)+"."+s.mac(expiry), int(sessionLasts.Seconds()))
}

// delay waits until a wrong token may be answered, or the client has left. It returns false at once
// if another one waits.
func (s *Sessions) delay(r *http.Request) bool {
	select {
	case s.wrong <- struct{}{}:
	default:
		return false
	}
	defer func() { <-s.wrong }()
	timer := time.NewTimer(wrongTokenTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
	return true
}

func (s *Sessions) answerCookie(w http.ResponseWriter, r *http.Request, value string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: cookieOf(r), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		Secure:   r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")})
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
}

// sameToken compares in constant time, which also hides the token's length.
func sameToken(given string, token secret.Value) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token.Reveal()))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
