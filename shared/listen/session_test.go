package listen_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/shared/listen"
	"rollout/shared/secret"
)

// cookieName is that of the site's cookie: browsers send it to each port of the host.
const cookieName = "rollout_session_8787"

// site is an API behind a guard with sessions, at a time that a test sets.
type site struct {
	t     *testing.T
	now   atomic.Int64 // seconds since 1970
	serve http.Handler
}

func (s *site) Now() time.Time { return time.Unix(s.now.Load(), 0) }

func newSite(t *testing.T, token string) *site {
	t.Helper()
	s := &site{t: t}
	s.now.Store(1_800_000_000)
	sessions := listen.NewSessions(secret.NewValue(token), s)
	mux := http.NewServeMux()
	mux.Handle(listen.SessionPath, sessions)
	mux.HandleFunc("/data", func(w http.ResponseWriter, _ *http.Request) { listen.WriteJSON(w, http.StatusOK, "data") })
	open := func(path string) bool { return path == listen.SessionPath }
	s.serve = listen.Bounds{}.GuardSessions(sessions, mux, open)
	return s
}

// ask sends a request with headers, given as name, value, name, value.
func (s *site) ask(method, path, body string, header ...string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, "http://localhost:8787"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	w := httptest.NewRecorder()
	s.serve.ServeHTTP(w, r)
	return w
}

// signIn returns the cookie of a new session.
func (s *site) signIn(token string, header ...string) *http.Cookie {
	s.t.Helper()
	body, _ := json.Marshal(map[string]string{"token": token})
	w := s.ask(http.MethodPost, listen.SessionPath, string(body), header...)
	if w.Code != http.StatusNoContent || len(w.Result().Cookies()) != 1 {
		s.t.Fatalf("signing in answers %d %s with %v", w.Code, w.Body, w.Result().Cookies())
	}
	return w.Result().Cookies()[0]
}

func TestACookieOfASessionStandsForTheToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, "s3cr3t")
	c := s.signIn("s3cr3t")
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" ||
		strings.Contains(c.Value, "s3cr3t") {
		t.Errorf("the cookie is %+v", c)
	}
	for name, q := range map[string]struct {
		cookie string
		want   int
	}{
		"the cookie":          {c.Value, http.StatusOK},
		"none":                {"", http.StatusUnauthorized},
		"a later expiry":      {"9" + c.Value, http.StatusUnauthorized},
		"another signature":   {c.Value[:len(c.Value)-2] + "xx", http.StatusUnauthorized},
		"the token itself":    {"s3cr3t", http.StatusUnauthorized},
		"expiry alone":        {strings.Split(c.Value, ".")[0] + ".", http.StatusUnauthorized},
		"of another token":    {newSite(t, "0ther").signIn("0ther").Value, http.StatusUnauthorized},
		"not of this product": {"session", http.StatusUnauthorized},
	} {
		if w := s.ask(http.MethodGet, "/data", "", "Cookie", cookieName+"="+q.cookie); w.Code != q.want {
			t.Errorf("%s: %d, want %d", name, w.Code, q.want)
		}
	}
	s.now.Add(12*60*60 - 1)
	again := func() int { return s.ask(http.MethodGet, "/data", "", "Cookie", cookieName+"="+c.Value).Code }
	if got := again(); got != http.StatusOK {
		t.Errorf("a second before its expiry the cookie answers %d", got)
	}
	s.now.Add(1)
	if got := again(); got != http.StatusUnauthorized {
		t.Errorf("an expired cookie answers %d", got)
	}
}

// Two installations on one machine: a browser keeps a cookie for each, and sends both to both.
func TestInstallationsOfOneHostKeepTheirSessions(t *testing.T) {
	t.Parallel()
	one, other := newSite(t, "s3cr3t"), newSite(t, "0ther")
	hosts := map[*site]string{one: "localhost:8787", other: "localhost:9000"}
	kept := map[string]string{}
	for s, token := range map[*site]string{one: "s3cr3t", other: "0ther"} {
		c := s.signIn(token, "Host", hosts[s])
		kept[c.Name] = c.Value
	}
	var all []string
	for name, value := range kept {
		all = append(all, name+"="+value)
	}
	for s, host := range hosts {
		if w := s.ask(http.MethodGet, "/data", "", "Host", host, "Cookie", strings.Join(all, "; ")); w.Code != http.StatusOK {
			t.Errorf("%s answers %d to the cookies %q", host, w.Code, all)
		}
	}
	if c := one.signIn("s3cr3t", "Host", "api.example.com"); c.Name != "rollout_session" {
		t.Errorf("without a port the cookie is %s", c.Name)
	}
}

func TestSigningInSaysWhatIsNeeded(t *testing.T) {
	t.Parallel()
	locked, open := newSite(t, "s3cr3t"), newSite(t, "")
	cookie := cookieName + "=" + locked.signIn("s3cr3t").Value
	says := func(s *site, header ...string) *httptest.ResponseRecorder {
		return s.ask(http.MethodGet, listen.SessionPath, "", header...)
	}
	for name, c := range map[string]struct {
		got  *httptest.ResponseRecorder
		want string
	}{
		"with a token":    {says(locked), `{"needed":true,"signed_in":false}`},
		"signed in":       {says(locked, "Cookie", cookie), `{"needed":true,"signed_in":true}`},
		"without a token": {says(open), `{"needed":false,"signed_in":true}`},
	} {
		if got := strings.TrimSpace(c.got.Body.String()); c.got.Code != http.StatusOK || got != c.want {
			t.Errorf("%s: %d %s, want %s", name, c.got.Code, got, c.want)
		}
	}
	if w := locked.ask(http.MethodPost, listen.SessionPath, `{"token":"guess"}`); w.Code != http.StatusUnauthorized ||
		len(w.Result().Cookies()) > 0 {
		t.Errorf("a wrong token answers %d with %v", w.Code, w.Result().Cookies())
	}
	if w := locked.ask(http.MethodPost, listen.SessionPath, `token=s3cr3t`); w.Code != http.StatusBadRequest {
		t.Errorf("a form answers %d", w.Code)
	}
	huge := `{"token":"` + strings.Repeat("x", 1<<20) + `"}`
	if w := locked.ask(http.MethodPost, listen.SessionPath, huge); w.Code != http.StatusBadRequest {
		t.Errorf("a huge body answers %d", w.Code)
	}
	if w := open.ask(http.MethodPost, listen.SessionPath, `{"token":""}`); w.Code != http.StatusNoContent ||
		len(w.Result().Cookies()) > 0 {
		t.Errorf("signing in where no token is needed answers %d with %v", w.Code, w.Result().Cookies())
	}
	if c := locked.signIn("s3cr3t", "X-Forwarded-Proto", "https"); !c.Secure {
		t.Error("the cookie of a request over TLS is not Secure")
	}
	w := locked.ask(http.MethodDelete, listen.SessionPath, "", "Cookie", cookie)
	if c := w.Result().Cookies(); w.Code != http.StatusNoContent || len(c) != 1 || c[0].MaxAge >= 0 {
		t.Errorf("signing out answers %d with %v", w.Code, c)
	}
}

func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	locked, open := newSite(t, "s3cr3t"), newSite(t, "")
	cookie := cookieName + "=" + locked.signIn("s3cr3t").Value
	const own, evil, port = "http://localhost:8787", "https://evil.example", "http://localhost:3000"
	const from, bearer, rebound = "Sec-Fetch-Site", "Bearer s3cr3t", "evil.example:8787"
	for name, c := range map[string]struct {
		at     *site
		method string
		header []string
		want   int
	}{
		"the page itself":             {locked, "POST", []string{"Cookie", cookie, from, "same-origin", "Origin", own}, 200},
		"an old browser's page":       {locked, "POST", []string{"Cookie", cookie, "Origin", own}, 200},
		"another site":                {locked, "POST", []string{"Cookie", cookie, from, "cross-site"}, 403},
		"another site with the token": {locked, "POST", []string{"Authorization", bearer, from, "cross-site"}, 403},
		"a sibling of the site":       {locked, "POST", []string{"Cookie", cookie, from, "same-site"}, 403},
		"another origin":              {locked, "DELETE", []string{"Cookie", cookie, "Origin", evil}, 403},
		"another port":                {locked, "POST", []string{"Cookie", cookie, "Origin", port}, 403},
		"a sandbox":                   {locked, "POST", []string{"Cookie", cookie, "Origin", "null"}, 403},
		"a program":                   {locked, "POST", []string{"Authorization", bearer}, 200},
		"a link from another site":    {locked, "GET", []string{"Cookie", cookie, from, "cross-site"}, 200},

		"without a token, a program":          {open, "POST", nil, 200},
		"without a token, the page":           {open, "POST", []string{from, "same-origin"}, 200},
		"without a token, another site":       {open, "POST", []string{from, "cross-site"}, 403},
		"without a token, another port":       {open, "POST", []string{"Origin", port}, 403},
		"without a token, DNS rebinding":      {open, "POST", []string{"Host", rebound, "Origin", "http://" + rebound}, 403},
		"without a token, rebinding of a GET": {open, "GET", []string{"Host", rebound}, 403},
		"without a token, lies of Sec-Fetch":  {open, "POST", []string{from, "same-origin", "Origin", evil}, 403},
	} {
		if w := c.at.ask(c.method, "/data", "", c.header...); w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
}

func TestOneWrongTokenIsTriedAtATime(t *testing.T) {
	t.Parallel()
	s := newSite(t, "s3cr3t")
	codes := make(chan int)
	for range 40 {
		go func() {
			w := s.ask(http.MethodPost, listen.SessionPath, `{"token":"guess"}`)
			if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
			}
			codes <- w.Code
		}()
	}
	got := map[int]int{}
	for range 40 {
		got[<-codes]++
	}
	if got[http.StatusUnauthorized] == 0 || got[http.StatusUnauthorized]+got[http.StatusTooManyRequests] != 40 {
		t.Errorf("the answers are %v", got)
	}
}

func TestOtherSitesChangeNothingBehindACloudsGuard(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { listen.WriteJSON(w, http.StatusOK, "data") })
	admitted := func(r *http.Request) bool { return r.Header.Get("Signed") != "" }
	s := &site{t: t, serve: listen.Bounds{}.GuardFunc(admitted, next)}
	for name, c := range map[string]struct {
		method string
		header []string
		want   int
	}{
		"a client":                {"POST", []string{"Signed", "1"}, 200},
		"another site":            {"POST", []string{"Signed", "1", "Sec-Fetch-Site", "cross-site"}, 403},
		"another site that looks": {"GET", []string{"Signed", "1", "Sec-Fetch-Site", "cross-site"}, 200},
		"an old browser":          {"POST", []string{"Signed", "1", "Origin", "https://evil.example"}, 403},
		"without a signature":     {"POST", nil, 403},
	} {
		if w := s.ask(c.method, "/data", "", c.header...); w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.want)
		}
	}
}
