package listen

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// Guard guards an API within DefaultBounds; see Bounds.Guard.
func Guard(token secret.Value, next http.Handler, open ...string) http.Handler {
	return DefaultBounds().Guard(token, next, open...)
}

// Guard authenticates requests and bounds answers. Without a token (the zero
// Value) it accepts only requests to localhost; with one, only those that carry it
// as a bearer token. Requests to the paths in open need no token.
func (b Bounds) Guard(token secret.Value, next http.Handler, open ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case token.Reveal() == "" && !isLocalRequest(r):
			WriteError(w, http.StatusForbidden, fault.Denied.String(), "it answers only requests to localhost from localhost")
			return
		case token.Reveal() != "" && !slices.Contains(open, r.URL.Path) && !hasBearerToken(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			WriteError(w, http.StatusUnauthorized, fault.Denied.String(),
				"a bearer token is needed: the value of the secret "+TokenSecret)
			return
		}
		b.serve(w, r, next)
	})
}

// GuardFunc accepts requests that admitted reports as authenticated elsewhere, by a
// cloud for example, and bounds answers.
func (b Bounds) GuardFunc(admitted func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !admitted(r) {
			WriteError(w, http.StatusForbidden, fault.Denied.String(), "it answers only requests that are signed")
			return
		}
		b.serve(w, r, next)
	})
}

// Within returns a handler that bounds the requests to next.
func (b Bounds) Within(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.serve(w, r, next) })
}

// serve answers within the bounds.
func (b Bounds) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if b.MaxBodyBytes > 0 {
		r.Body = http.MaxBytesReader(w, r.Body, b.MaxBodyBytes)
	}
	if b.HandlerTimeout > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), b.HandlerTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	next.ServeHTTP(w, r)
}

// hasBearerToken compares in constant time, which also hides the token's length.
func hasBearerToken(r *http.Request, token secret.Value) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	a, b := sha256.Sum256([]byte(strings.TrimSpace(given))), sha256.Sum256([]byte(token.Reveal()))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// loopback reports whether the host is this machine only. It looks up no name, since
// what a name means can change.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// isLocalRequest reports whether the request was meant for this machine. A web page
// that resolves its own name to 127.0.0.1 (DNS rebinding) names itself in Host,
// and one that only posts names itself in Origin.
func isLocalRequest(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !loopback(strings.Trim(host, "[]")) {
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopback(u.Hostname())
}

// WriteError answers {"error":{"kind":"not_found","message":"…"}}.
func WriteError(w http.ResponseWriter, code int, kind, message string) {
	type problem struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	WriteJSON(w, code, map[string]problem{"error": {kind, message}})
}

// WriteJSON answers with a body in JSON.
func WriteJSON(w http.ResponseWriter, code int, body any) {
	b, err := json.Marshal(body)
	if err != nil { // bodies hold nothing that JSON can't
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // the client may have left
}
