package plainhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine/internal/plainhttp"
)

const maxHeader = 4 << 10

// server lets a function have every connection that is made to it, and closes
// what the function leaves open.
type server struct {
	url   *url.URL
	conns atomic.Int64
}

func serve(t *testing.T, talk func(c net.Conn, in *bufio.Reader)) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			all.Go(func() { defer c.Close(); talk(c, bufio.NewReader(c)) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return s
}

// hear reads a request; false if none came.
func hear(in *bufio.Reader) bool {
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// says answers each request with the same bytes.
func says(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		for hear(in) {
			_, _ = io.WriteString(c, answer)
		}
	}
}

// saysOnce answers the first request and closes.
func saysOnce(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		if hear(in) {
			_, _ = io.WriteString(c, answer)
		}
	}
}

func twin() *http.Transport {
	return &http.Transport{MaxResponseHeaderBytes: maxHeader, DisableCompression: true}
}

func config(s *server) plainhttp.Config {
	return plainhttp.Config{Server: s.url, MaxIdle: 8, IdleTimeout: time.Minute, MaxHeader: maxHeader,
		Dial: (&net.Dialer{}).DialContext, Other: twin()}
}

func transport(t *testing.T, cfg plainhttp.Config) *plainhttp.Transport {
	t.Helper()
	p := plainhttp.New(cfg)
	t.Cleanup(p.CloseIdleConnections)
	return p
}

func request(t *testing.T, s *server, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.url.String()+"/v1/x?y=z%20z", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"User-Agent": {"test"}, "Content-Type": {"application/json"}, "Accept": {"a", "b"}}
	return r
}

// outcome is what a caller gets.
type outcome struct {
	Status       int
	Header       http.Header
	Body         string
	Failed, Torn bool // no response; a part of one
}

func outcomeOf(rt http.RoundTripper, r *http.Request) outcome {
	resp, err := rt.RoundTrip(r)
	if err != nil {
		return outcome{Failed: true}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return outcome{resp.StatusCode, resp.Header, string(b), false, err != nil}
}

// mustGet asks and wants an answer of 200.
func mustGet(t *testing.T, rt http.RoundTripper, r *http.Request) {
	t.Helper()
	if got := outcomeOf(rt, r); got.Status != 200 || got.Torn {
		t.Fatalf("got %+v", got)
	}
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// TestResponsesAreReadAsByNetHTTP asks the same server twice over each
// transport: what callers get, and how many connections that takes, is the same.
func TestResponsesAreReadAsByNetHTTP(t *testing.T) {
	t.Parallel()
	chunked := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, talk := range map[string]func(net.Conn, *bufio.Reader){
		"a length":                  says(fine),
		"chunks":                    says(chunked + "3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"),
		"chunks and a trailer":      says("HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\n\r\n"),
		"chunks of nonsense":        says(chunked + "zz\r\n"),
		"up to the end":             saysOnce("HTTP/1.1 200 OK\r\n\r\nall there is"),
		"HTTP/1.0":                  saysOnce("HTTP/1.0 200 OK\r\n\r\nold"),
		"HTTP/1.0 that stays":       says("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"),
		"the last of a connection":  saysOnce("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
		"a last one, kept open":     says("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
		"HTTP/1.0, kept open":       says("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
		"another protocol":          saysOnce("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
		"no body":                   says("HTTP/1.1 204 No Content\r\n\r\n"),
		"an empty body":             says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		"a refusal":                 says("HTTP/1.1 503 Busy\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy"),
		"a redirect":                says("HTTP/1.1 307 There\r\nLocation: http://h/\r\nContent-Length: 0\r\n\r\n"),
		"an interim response":       says("HTTP/1.1 102 Processing\r\nA: b\r\n\r\n" + fine),
		"endless interim responses": says(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", maxHeader)),
		"many bytes":                says("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("0123456789", 10000)),
		"a compressed body":         says("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b"),
		"an endless header":         says("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n"),
		"many headers":              says("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxHeader) + "\r\n"),
		"two lengths":               saysOnce("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
		"no HTTP":                   saysOnce("220 smtp.example.org\r\n"),
		"nothing":                   saysOnce(""),
		"half a head":               saysOnce("HTTP/1.1 200 OK\r\nConte"),
		"half a body":               saysOnce("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"),
		"half a chunk":              saysOnce(chunked + "5\r\nab"),
		"no last chunk":             saysOnce(chunked + "2\r\nab\r\n"),
		"not even a look":           func(net.Conn, *bufio.Reader) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ask := func(rt http.RoundTripper, s *server) (got [2]outcome, conns int64) {
				for i := range got {
					got[i] = outcomeOf(rt, request(t, s, `{"a":1}`))
				}
				return got, s.conns.Load()
			}
			theirs, ours := serve(t, talk), serve(t, talk)
			other := twin()
			defer other.CloseIdleConnections()
			want, wantConns := ask(other, theirs)
			got, gotConns := ask(transport(t, config(ours)), ours)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unlike net/http (-):\n%s", diff)
			}
			if gotConns != wantConns {
				t.Errorf("over %d connections, net/http takes %d", gotConns, wantConns)
			}
		})
	}
}

func TestRequestsAreSentAsByNetHTTP(t *testing.T) {
	t.Parallel()
	type heard struct {
		Method, URI, Proto, Host, Body string
		Header                         http.Header
		Length                         int64
		Coding                         []string
	}
	said := make(chan heard, 1)
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			b, _ := io.ReadAll(r.Body)
			said <- heard{r.Method, r.RequestURI, r.Proto, r.Host, string(b), r.Header, r.ContentLength, r.TransferEncoding}
			_, _ = io.WriteString(c, fine)
		}
	})
	get := request(t, s, "")
	get.Method, get.Body, get.ContentLength = "GET", nil, 0
	other := twin()
	defer other.CloseIdleConnections()
	p := transport(t, config(s))
	for name, r := range map[string]*http.Request{"GET": get, "POST": request(t, s, `{"prompt":"é"}`),
		"large": request(t, s, strings.Repeat("x", 60<<10)), "larger": request(t, s, strings.Repeat("x", 4<<20))} {
		body := func() *http.Request {
			c := r.Clone(t.Context())
			if r.GetBody != nil && r.Body != nil {
				c.Body, _ = r.GetBody()
			}
			return c
		}
		mustGet(t, other, body())
		want := <-said
		mustGet(t, p, body())
		if diff := cmp.Diff(want, <-said); diff != "" {
			t.Errorf("%s: unlike net/http (-):\n%s", name, diff)
		}
	}
}

func TestWhatIsNotPlainIsLeftToNetHTTP(t *testing.T) {
	t.Parallel()
	s := serve(t, says(fine))
	cfg := config(s)
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("not by us") }
	cfg.Dial = refuse
	unknown := request(t, s, "x")
	unknown.ContentLength = -1
	mustGet(t, transport(t, cfg), unknown)

	elsewhere := request(t, serve(t, says(fine)), "x")
	mustGet(t, transport(t, cfg), elsewhere)

	safe := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer safe.Close()
	cfg.Server, _ = url.Parse(safe.URL)
	cfg.Other = safe.Client().Transport.(*http.Transport)
	r, err := http.NewRequestWithContext(t.Context(), "GET", safe.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	mustGet(t, transport(t, cfg), r)
}

func TestManyRequestsAtOnceTakeAConnectionEachAndKeepSome(t *testing.T) {
	t.Parallel()
	const n = 6
	var together sync.WaitGroup
	together.Add(n)
	gone := make(chan struct{}, n)
	first := func(c net.Conn, in *bufio.Reader) {
		defer func() { gone <- struct{}{} }()
		if hear(in) {
			together.Done()
			together.Wait()
			_, _ = io.WriteString(c, fine)
		}
		says(fine)(c, in)
	}
	s := serve(t, first)
	cfg := config(s)
	cfg.MaxIdle = 2
	p := transport(t, cfg)
	var all sync.WaitGroup
	for range n {
		r := request(t, s, "x")
		all.Go(func() {
			if got := outcomeOf(p, r); got.Status != 200 {
				t.Errorf("got %+v", got)
			}
		})
	}
	all.Wait()
	for range n - 2 {
		<-gone // more are not kept
	}
	for range 3 {
		mustGet(t, p, request(t, s, "x"))
	}
	if s.conns.Load() != n {
		t.Errorf("%d connections", s.conns.Load())
	}
	p.CloseIdleConnections()
	for range 2 {
		<-gone
	}
	mustGet(t, transport(t, cfg), request(t, serve(t, says(fine)), "x"))
}

// TestAConnectionThatEndedWhileIdleFailsNoRequest has servers that close what is
// idle, as they do after some seconds, with and without a last word.
func TestAConnectionThatEndedWhileIdleFailsNoRequest(t *testing.T) {
	t.Parallel()
	for name, lastWord := range map[string]string{"silently": "", "with a 408": "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"} {
		closed := make(chan struct{}, 1)
		s := serve(t, func(c net.Conn, in *bufio.Reader) {
			if hear(in) {
				_, _ = io.WriteString(c, fine)
				_, _ = io.WriteString(c, lastWord)
				_ = c.Close()
				closed <- struct{}{}
			}
		})
		p := transport(t, config(s))
		for range 20 {
			if got := outcomeOf(p, request(t, s, "x")); got.Status != 200 || got.Body != "ok" {
				t.Fatalf("%s: got %+v", name, got)
			}
			<-closed
		}
		if s.conns.Load() != 20 {
			t.Errorf("%s: %d connections", name, s.conns.Load())
		}
	}
}

func TestWhatIsIdleForTooLongIsClosed(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 1)
	s := serve(t, func(c net.Conn, in *bufio.Reader) { says(fine)(c, in); gone <- struct{}{} })
	cfg := config(s)
	cfg.IdleTimeout = time.Millisecond
	p := transport(t, cfg)
	for range 3 {
		mustGet(t, p, request(t, s, "x"))
		<-gone // by itself
	}
	if s.conns.Load() != 3 {
		t.Errorf("%d connections", s.conns.Load())
	}
}

// TestAResponseThatIsNotReadToItsEndTakesItsConnectionAlong also covers what
// comes after a response's end.
func TestAResponseThatIsNotReadToItsEndTakesItsConnectionAlong(t *testing.T) {
	t.Parallel()
	long := serve(t, says("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("x", 100000)))
	p := transport(t, config(long))
	for range 2 {
		resp, err := p.RoundTrip(request(t, long, "x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a closed body is read")
		}
	}
	if long.conns.Load() != 2 {
		t.Errorf("%d connections", long.conns.Load())
	}
	more := serve(t, says(fine+fine))
	p = transport(t, config(more))
	for range 2 {
		mustGet(t, p, request(t, more, "x"))
	}
	if more.conns.Load() != 2 {
		t.Errorf("%d connections where the server says more than it was asked", more.conns.Load())
	}
}

// TestAContextEndsItsRequestAtAnyTime: the server sees it, too.
func TestAContextEndsItsRequestAtAnyTime(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	for _, c := range []struct {
		name, said string
		head       bool // it is there when the context ends
	}{
		{"before the head", "", false},
		{"in the head", "HTTP/1.1 200 OK\r\nA", false},
		{"before the body", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true},
		{"in the body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			there, gone := make(chan struct{}, 1), make(chan struct{}, 1)
			s := serve(t, func(nc net.Conn, in *bufio.Reader) {
				if hear(in) {
					_, _ = io.WriteString(nc, c.said)
					there <- struct{}{}
					_, _ = in.ReadByte()
					gone <- struct{}{}
				}
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if !c.head {
				go func() { <-there; cancel(why) }()
			}
			resp, err := transport(t, config(s)).RoundTrip(request(t, s, "x").WithContext(ctx))
			if c.head && err != nil {
				t.Fatalf("got %v", err)
			}
			if err == nil {
				cancel(why)
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			if !errors.Is(err, why) {
				t.Errorf("got %v", err)
			}
			<-gone
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	s := serve(t, says(fine))
	if _, err := transport(t, config(s)).RoundTrip(request(t, s, "x").WithContext(ctx)); err == nil {
		t.Error("a request whose context had ended was answered")
	}
}

// TestAContextThatEndsAfterItsResponseLeavesTheConnection, as every request's
// does.
func TestAContextThatEndsAfterItsResponseLeavesTheConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, says(fine))
	p := transport(t, config(s))
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		mustGet(t, p, request(t, s, "x").WithContext(ctx))
		cancel()
	}
	if s.conns.Load() != 1 {
		t.Errorf("%d connections", s.conns.Load())
	}
}

func TestAConnectionOfNoUseIsClosed(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{}, 1)
	s := serve(t, func(c net.Conn, in *bufio.Reader) { says("220 smtp.example.org\r\n")(c, in); gone <- struct{}{} })
	cfg := config(s)
	var made net.Conn
	cfg.Dial = func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		made, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		return made, err
	}
	if got := outcomeOf(transport(t, cfg), request(t, s, "x")); !got.Failed {
		t.Errorf("got %+v", got)
	}
	<-gone
	runtime.KeepAlive(made) // the collector closes what nobody has
}

func TestWhatIsClosedKeepsNoConnectionOfARequestInFlight(t *testing.T) {
	t.Parallel()
	heard, closed, gone := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		if hear(in) {
			close(heard)
			<-closed
			_, _ = io.WriteString(c, fine)
		}
		_, _ = in.ReadByte()
		gone <- struct{}{}
	})
	p := transport(t, config(s))
	go func() { <-heard; p.CloseIdleConnections(); close(closed) }()
	mustGet(t, p, request(t, s, "x"))
	<-gone
}

// failing is a connection whose writes fail from the second on, after some bytes.
type failing struct {
	*net.TCPConn
	writes, after int
}

func (f *failing) Write(b []byte) (int, error) {
	if f.writes++; f.writes == 1 {
		return f.TCPConn.Write(b)
	}
	n, _ := f.TCPConn.Write(b[:f.after])
	_ = f.Close()
	return n, errors.New("broken pipe")
}

// TestOnlyARequestOfWhichNothingWasWrittenIsSentAgain, and only if its connection
// had served another one.
func TestOnlyARequestOfWhichNothingWasWrittenIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		after    int  // bytes written of the request
		fresh    bool // it is the connection's first
		answered bool
		dials    int
	}{
		{"nothing was written", 0, false, true, 2},
		{"some was", 10, false, false, 1},
		{"nothing, to a new connection", 0, true, false, 1},
	} {
		s := serve(t, says(fine))
		cfg := config(s)
		dials := 0
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if dials++; err != nil || dials > 1 {
				return nc, err
			}
			f := &failing{TCPConn: nc.(*net.TCPConn), after: c.after}
			if c.fresh {
				f.writes = 1
			}
			return f, nil
		}
		p := transport(t, cfg)
		if !c.fresh {
			mustGet(t, p, request(t, s, "x"))
		}
		got := outcomeOf(p, request(t, s, `{"a":1}`))
		if got.Failed == c.answered || dials != c.dials {
			t.Errorf("%s: %+v over %d connections", c.name, got, dials)
		}
	}
}

// TestARefusalIsHeardWhoeverReadTheRequest: a server may answer and close without
// having read it all.
func TestARefusalIsHeardWhoeverReadTheRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, in) // else the reset may overtake it
	})
	if got := outcomeOf(transport(t, config(s)), request(t, s, strings.Repeat("x", 60<<10))); got.Status != 413 {
		t.Errorf("got %+v", got)
	}
}

// TestALargeBodyIsWrittenWhileItsResponseIsRead has servers that read no more of
// the request before their answer was read, or never.
func TestALargeBodyIsWrittenWhileItsResponseIsRead(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 16<<20)
	refuses := func(c net.Conn, in *bufio.Reader) {
		if _, err := in.ReadString('\n'); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 16777216\r\n\r\n"+large)
		}
	}
	for _, c := range []struct {
		name  string
		talk  func(net.Conn, *bufio.Reader)
		want  int
		conns int64
	}{
		{"answered as it was read", says(fine), 200, 1},
		{"refused before", refuses, 413, 2},
	} {
		s := serve(t, c.talk)
		p := transport(t, config(s))
		for range 2 {
			closed := make(chan struct{})
			r := request(t, s, large)
			r.Body = &closing{Reader: r.Body, closed: closed}
			if got := outcomeOf(p, r); got.Status != c.want {
				t.Errorf("%s: status %d, torn %v", c.name, got.Status, got.Torn)
			}
			<-closed
		}
		if s.conns.Load() != c.conns {
			t.Errorf("%s: %d connections", c.name, s.conns.Load())
		}
	}
}

// TestAConnectionWhoseRequestIsNotYetWrittenServesNoOther, whatever was answered.
func TestAConnectionWhoseRequestIsNotYetWrittenServesNoOther(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c net.Conn, in *bufio.Reader) {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, fine)
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			says(fine)(c, in)
		}
	})
	p := transport(t, config(s))
	slow, more := io.Pipe()
	r := request(t, s, strings.Repeat("x", 1<<20))
	r.Body = slow
	mustGet(t, p, r)
	mustGet(t, p, request(t, s, "x"))
	if s.conns.Load() != 2 {
		t.Errorf("%d connections", s.conns.Load())
	}
	_ = more.Close()
}

// closing says when it is closed.
type closing struct {
	io.Reader
	closed chan struct{}
}

func (c *closing) Close() error { close(c.closed); return nil }

// TestALargeBodyEndsWithItsContext, although nobody reads it.
func TestALargeBodyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	there := make(chan struct{})
	s := serve(t, func(_ net.Conn, in *bufio.Reader) {
		_, _ = in.ReadString('\n')
		<-there
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	closed := make(chan struct{})
	r := request(t, s, strings.Repeat("x", 16<<20)).WithContext(ctx)
	body := &starting{closing: closing{r.Body, closed}, started: func() { cancel(why) }}
	r.Body = body
	if _, err := transport(t, config(s)).RoundTrip(r); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	<-closed
	close(there)
}

// starting says when it is first read.
type starting struct {
	closing
	once    sync.Once
	started func()
}

func (s *starting) Read(b []byte) (int, error) {
	s.once.Do(s.started)
	return s.Reader.Read(b)
}

func TestALargeBodyThatEndsEarlyEndsItsRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, says(fine))
	r := request(t, s, strings.Repeat("x", 1<<20))
	r.ContentLength++
	if _, err := transport(t, config(s)).RoundTrip(r); err == nil || !strings.Contains(err.Error(), "has 1048576") {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatIsNotThereIsADialersFault(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: &url.URL{Scheme: "http", Host: l.Addr().String()}}
	_ = l.Close()
	body := &tracked{Reader: strings.NewReader("x")}
	r := request(t, s, "x")
	r.Body = body
	_, err = transport(t, config(s)).RoundTrip(r)
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("got %v", err)
	}
	if body.read || !body.closed {
		t.Errorf("the body: %+v", body)
	}
}

type tracked struct {
	io.Reader
	read, closed bool
}

func (b *tracked) Read(p []byte) (int, error) { b.read = true; return b.Reader.Read(p) }
func (b *tracked) Close() error               { b.closed = true; return nil }

func TestABodyOfAnotherLengthIsNotSent(t *testing.T) {
	t.Parallel()
	s := serve(t, says(fine))
	for _, n := range []int64{1, 3} {
		r := request(t, s, "xy")
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader([]byte("xy"))), n
		if got := outcomeOf(transport(t, config(s)), r); !got.Failed {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
}
