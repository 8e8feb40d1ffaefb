package listen

import (
	"context"
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
	isOpen := func(path string) bool { return slices.Contains(open, path) }
	return b.guard(token, isOpen, func(*http.Request) bool { return false }, next)
}

// GuardSessions is Guard for an API that browsers use, too: it also accepts requests that carry
// the cookie of a session. It refuses requests that change something and that the page of
// another site sends, whatever they carry. open reports which paths need no token.
func (b Bounds) GuardSessions(s *Sessions, next http.Handler, open func(path string) bool) http.Handler {
	return refuseOtherSites(b.guard(s.token, open, s.Admits, next))
}

func (b Bounds) guard(token secret.Value, open func(path string) bool, admits func(*http.Request) bool,
	next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case token.Reveal() == "" && !isLocalRequest(r):
			WriteError(w, http.StatusForbidden, fault.Denied.String(), "it answers only requests to localhost from localhost")
			return
		case token.Reveal() != "" && !open(r.URL.Path) && !hasBearerToken(r, token) && !admits(r):
			w.Header().Set("WWW-Authenticate", "Bearer")
			WriteError(w, http.StatusUnauthorized, fault.Denied.String(),
				"a bearer token is needed: the value of the secret "+TokenSecret)
			return
		}
		b.serve(w, r, next)
	})
}

// refuseOtherSites refuses requests that a page of another site sends and that change something.
// Browsers say in Sec-Fetch-Site or Origin where a request comes from; other clients say neither.
func refuseOtherSites(next http.Handler) http.Handler {
	check := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check.Check(r); err != nil {
			WriteError(w, http.StatusForbidden, fault.Denied.String(),
				"a page of another site may not ask for this: open the page of this address")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// GuardFunc accepts requests that admitted reports as authenticated elsewhere, by a
// cloud for example, and bounds answers. It refuses requests of other sites as GuardSessions does.
func (b Bounds) GuardFunc(admitted func(*http.Request) bool, next http.Handler) http.Handler {
	return refuseOtherSites(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !admitted(r) {
			WriteError(w, http.StatusForbidden, fault.Denied.String(), "it answers only requests that are signed")
			return
		}
		b.serve(w, r, next)
	}))
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

func hasBearerToken(r *http.Request, token secret.Value) bool {
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && sameToken(strings.TrimSpace(given), token)
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
	WriteRaw(w, code, b)
}

// WriteRaw answers with a body that is JSON already.
func WriteRaw(w http.ResponseWriter, code int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // the client may have left
}
