// Package plainhttp is an http.RoundTripper for one server that is asked over
// HTTP/1.1 without TLS and without a proxy, as inference servers mostly are.
//
// net/http's transport hands each request from its caller to a goroutine that
// writes and one that reads, and back: most of what a small request costs its
// client. Here the caller writes and reads by itself; only a large body is written
// beside it. Responses are parsed by net/http, and what is not that plain is left
// to its transport.
//
// As there, a request is sent again only if none of it was written; its context
// ends it at any time, also while its body is read; and a connection is used
// again only after its response was read to the end. A response's body is for
// one goroutine.
package plainhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// maxAtOnce is the largest body that is written before the response is read:
	// one that sockets take at once. A server may answer before it has read a
	// larger one, and may not go on reading until its answer is read.
	maxAtOnce = 64 << 10
	readSize  = 8 << 10
	keptSize  = 16 << 10 // of a connection's memory for requests
)

// Config sets a Transport up.
type Config struct {
	Server      *url.URL      // whose scheme and host are served
	MaxIdle     int           // connections that are kept for further requests
	IdleTimeout time.Duration // how long each is kept
	MaxHeader   int64         // bytes of a response's header
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	// Other gets requests to other servers, over TLS, and with bodies of unknown
	// lengths.
	Other *http.Transport
}

// Transport is an http.RoundTripper. Any number of goroutines may use it.
type Transport struct {
	cfg  Config
	addr string

	mu     sync.Mutex
	idle   []*conn // in the order in which they became so
	reaper *time.Timer
	armed  bool // the reaper will come
	shut   bool // what becomes idle is closed
}

// New returns a transport; one that leaves everything to Other if the server is
// not asked plainly.
func New(cfg Config) *Transport {
	t := &Transport{cfg: cfg}
	if cfg.Server.Scheme == "http" && isASCII(cfg.Server.Host) { // other names need translation
		port := cfg.Server.Port()
		if port == "" {
			port = "80"
		}
		t.addr = net.JoinHostPort(cfg.Server.Hostname(), port)
	}
	return t
}

func isASCII(s string) bool {
	for _, r := range s {
		if r > 0x7f {
			return false
		}
	}
	return true
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.addr == "" || r.URL.Scheme != t.cfg.Server.Scheme || r.URL.Host != t.cfg.Server.Host || r.ContentLength < 0 {
		return t.cfg.Other.RoundTrip(r)
	}
	large := r.Body != nil && r.ContentLength > maxAtOnce
	resp, err := t.roundTrip(r, large)
	if err != nil && r.Context().Err() != nil {
		err = context.Cause(r.Context())
	}
	return resp, err
}

func (t *Transport) roundTrip(r *http.Request, large bool) (*http.Response, error) {
	left := r.Body // to be closed here
	defer func() {
		if left != nil {
			_ = left.Close() // it was read, or nobody wants it
		}
	}()
	c, reused, err := t.take(r.Context())
	if err != nil {
		return nil, err
	}
	message, err := c.compose(r, large)
	if err != nil {
		c.close()
		return nil, err
	}
	for {
		stop := context.AfterFunc(r.Context(), c.close)
		n, err := c.net.Write(message)
		if n > 0 {
			var rest *rest
			if large && err == nil {
				left, rest = nil, c.send(r)
			}
			return t.hear(c, r, stop, rest, err)
		}
		stop()
		c.close()
		if !reused {
			return nil, fmt.Errorf("write a request: %w", err)
		}
		if c, reused, err = t.take(r.Context()); err != nil {
			return nil, err
		}
	}
}

// CloseIdleConnections closes what is idle, and what becomes so before the next
// request.
func (t *Transport) CloseIdleConnections() {
	t.mu.Lock()
	idle := t.idle
	t.idle, t.shut = nil, true
	t.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
	t.cfg.Other.CloseIdleConnections()
}

// hear reads the head of the response to a request that was written, as far as
// the error says. The connection is the response's until its body was read or
// closed.
func (t *Transport) hear(c *conn, r *http.Request, stop func() bool, rest *rest, writeErr error) (*http.Response, error) {
	// A server that refuses a request may have closed before it read it all.
	resp, err := c.head(t.cfg.MaxHeader, r)
	if err != nil {
		stop()
		c.close()
		if writeErr == nil {
			writeErr = rest.failure()
		}
		if writeErr != nil {
			err = fmt.Errorf("write a request: %w", writeErr)
		}
		return nil, err
	}
	b := &body{in: resp.Body, ctx: r.Context(), transport: t, conn: c, stop: stop, rest: rest,
		last: resp.Close || writeErr != nil || resp.StatusCode < 200}
	if resp.Body == http.NoBody {
		b.end(true)
	} else {
		resp.Body = b
	}
	return resp, nil
}

// take returns the connection that was used last and still stands, or a new one.
func (t *Transport) take(ctx context.Context) (c *conn, reused bool, err error) {
	for {
		c := t.pop()
		if c == nil {
			break
		}
		if c.quiet() {
			return c, true, nil
		}
		c.close()
	}
	nc, err := t.cfg.Dial(ctx, "tcp", t.addr)
	if err != nil {
		return nil, false, err
	}
	c, err = newConn(nc)
	return c, false, err
}

func (t *Transport) pop() *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = false
	n := len(t.idle) - 1
	if n < 0 {
		return nil
	}
	c := t.idle[n]
	t.idle[n] = nil
	t.idle = t.idle[:n]
	return c
}

// put keeps a connection for the next request.
func (t *Transport) put(c *conn) {
	c.since = time.Now()
	t.mu.Lock()
	keep := !t.shut && len(t.idle) < t.cfg.MaxIdle
	if keep {
		t.idle = append(t.idle, c)
		t.arm(t.cfg.IdleTimeout)
	}
	t.mu.Unlock()
	if !keep {
		c.close()
	}
}

// arm sends the reaper, unless it comes anyway. t.mu is held.
func (t *Transport) arm(d time.Duration) {
	if t.armed {
		return
	}
	t.armed = true
	if t.reaper == nil {
		t.reaper = time.AfterFunc(d, t.reap)
		return
	}
	t.reaper.Reset(d)
}

// reap closes what was idle for too long.
func (t *Transport) reap() {
	now := time.Now()
	t.mu.Lock()
	n := 0
	for n < len(t.idle) && now.Sub(t.idle[n].since) >= t.cfg.IdleTimeout {
		n++
	}
	old := append([]*conn(nil), t.idle[:n]...)
	t.idle = append(t.idle[:0], t.idle[n:]...)
	t.armed = false
	if len(t.idle) > 0 {
		t.arm(t.idle[0].since.Add(t.cfg.IdleTimeout).Sub(now))
	}
	t.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// conn is a connection and its memory.
type conn struct {
	net   net.Conn
	raw   syscall.RawConn
	in    *bufio.Reader
	out   bytes.Buffer
	left  int64 // bytes that may be read
	since time.Time

	peek func(fd uintptr) bool
	dead bool // as peek found it
}

func newConn(nc net.Conn) (*conn, error) {
	c := &conn{net: nc, left: math.MaxInt64}
	c.in = bufio.NewReaderSize(c, readSize)
	s, ok := nc.(syscall.Conn)
	if !ok {
		c.close()
		return nil, fmt.Errorf("a connection of type %T has no socket", nc)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		c.close()
		return nil, err
	}
	c.raw, c.peek = raw, func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		c.dead = !errors.Is(err, syscall.EAGAIN)
		return true // don't wait
	}
	return c, nil
}

// quiet reports whether an idle connection still stands and nothing came over
// it: nobody reads meanwhile, so that a server's close is seen here. (A socket
// of Go's never blocks.)
func (c *conn) quiet() bool {
	err := c.raw.Read(c.peek)
	return err == nil && !c.dead
}

func (c *conn) close() { _ = c.net.Close() } // nothing is lost with it

var errHeader = errors.New("the response's header is too large")

// Read implements io.Reader, until the bound is reached.
func (c *conn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeader
	}
	n, err := c.net.Read(b)
	c.left -= int64(n)
	return n, err
}

// compose returns the request's bytes, without its body if that is large. They
// hold until the next call.
func (c *conn) compose(r *http.Request, large bool) ([]byte, error) {
	if c.out.Cap() > keptSize {
		c.out = bytes.Buffer{}
	}
	c.out.Reset()
	for _, s := range [...]string{r.Method, " ", r.URL.RequestURI(), " HTTP/1.1\r\nHost: ", r.URL.Host, "\r\n"} {
		c.out.WriteString(s)
	}
	if r.Body != nil {
		c.out.WriteString("Content-Length: ")
		c.out.Write(strconv.AppendInt(c.out.AvailableBuffer(), r.ContentLength, 10))
		c.out.WriteString("\r\n")
	}
	_ = r.Header.Write(&c.out) // memory takes all
	c.out.WriteString("\r\n")
	if r.Body == nil || large {
		return c.out.Bytes(), nil
	}
	n, err := c.out.ReadFrom(r.Body)
	if err != nil {
		return nil, err
	}
	if n != r.ContentLength {
		return nil, fmt.Errorf("a body of %d bytes has %d", r.ContentLength, n)
	}
	return c.out.Bytes(), nil
}

// rest is a large body that is being written.
type rest struct {
	done chan struct{}
	err  error // once done
}

// send writes the request's body while the response is read. A body that can't be
// read on ends the connection: the server would wait for the rest. One that can't
// be written does not: the server may have said why.
func (c *conn) send(r *http.Request) *rest {
	s := &rest{done: make(chan struct{})}
	go func() {
		defer r.Body.Close()
		n, err := io.Copy(c.net, io.LimitReader(r.Body, r.ContentLength))
		if err == nil && n != r.ContentLength {
			err = fmt.Errorf("a body of %d bytes has %d", r.ContentLength, n)
		}
		s.err = err
		close(s.done)
		var op *net.OpError
		if err != nil && !errors.As(err, &op) {
			c.close()
		}
	}()
	return s
}

// written reports whether nothing is left to write.
func (s *rest) written() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.done:
		return s.err == nil
	default:
		return false
	}
}

// failure is why not all could be written; nil if it could, or nobody knows yet.
func (s *rest) failure() error {
	if s == nil {
		return nil
	}
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// head reads a response's head, and those of status 1xx before it, which share
// the bound.
func (c *conn) head(maxHeader int64, r *http.Request) (*http.Response, error) {
	c.left = maxHeader
	for {
		resp, err := http.ReadResponse(c.in, r)
		if err != nil && c.left <= 0 {
			return nil, errHeader
		}
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// body is a response's, and gives the connection back at its end.
type body struct {
	in        io.Reader
	ctx       context.Context
	transport *Transport
	conn      *conn
	stop      func() bool // watching the context
	rest      *rest       // of the request; nil if it is written
	last      bool        // no request may follow
	err       error       // what further reads get
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.in.Read(p)
	if err == nil {
		return n, nil
	}
	b.err = err
	b.end(errors.Is(err, io.EOF))
	if !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
		b.err = context.Cause(b.ctx)
	}
	return n, b.err
}

var errClosed = errors.New("the response's body is closed")

// Close implements io.Closer. What was not read goes with the connection.
func (b *body) Close() error {
	if b.err == nil {
		b.err = errClosed
		b.end(false)
	}
	return nil
}

// end gives the connection back if the response was read whole, and nothing
// came after it.
func (b *body) end(whole bool) {
	if b.stop() && whole && !b.last && b.rest.written() && b.conn.in.Buffered() == 0 {
		b.transport.put(b.conn)
	} else {
		b.conn.close()
	}
}
