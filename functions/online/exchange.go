package online

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// maxLost is how many workers may end while a server has a request of theirs. Then it is not
// repeated: it may be what ends them.
const maxLost = 2

// Waits between rounds over the workers.
const (
	firstRound = 50 * time.Millisecond
	lastRound  = time.Second
)

// grace is what a worker may take beyond the time that it is given, before it counts as
// stopped: its process may be suspended, or the machine swap.
const grace = 15 * time.Second

// exchange is a request of a client and its answer.
//
//	asked ──▶ at a worker ──▶ begun ──▶ ended
//	  ▲            │ elsewhere, or the worker is gone or stopped
//	  └────────────┘ until max_wait; then refused
type exchange struct {
	door    *Door
	w       http.ResponseWriter
	r       *http.Request
	path    string
	began   time.Time
	asked   onlinewire.Request
	pools   []pool
	release func() // of the body; nil once it was called

	status   int  // of the answer; 0 before it began
	answered bool // a server's answer has begun
	aborted  bool // the client has left, or the answer was cut
}

// releaseBody gives back the memory of the body.
func (x *exchange) releaseBody() {
	if x.release != nil {
		x.release()
		x.release, x.asked.Body = nil, nil
	}
}

// run passes the request to the workers, one after the other, until one answers.
func (x *exchange) run() {
	name := x.pools[0].name
	x.door.meter.OnlineBegan(name)
	defer func() { x.door.meter.OnlineEnded(name, x.status, x.answered, x.status > 0 && !x.aborted) }()
	until := x.began.Add(x.door.maxWait)
	var last *refusal
	lost := 0
	for wait := firstRound; ; wait = min(2*wait, lastRound) {
		found, err := x.door.workers.candidates(x.r.Context(), x.pools)
		if err != nil {
			x.refuse(err)
			return
		}
		full := len(found) > 0
		for _, c := range found {
			end := x.door.workers.begin(c.socket)
			got := x.at(c, until)
			end()
			switch {
			case got == nil || x.r.Context().Err() != nil:
				return // it is answered, or the client has left
			case got.outcome == onlinewire.Failed:
				got.write(x)
				return
			case got.lost:
				lost++
			}
			full = full && got.outcome == onlinewire.Full
			last = got
			if lost == maxLost {
				break
			}
		}
		left := until.Sub(x.door.Clock.Now())
		if full || lost == maxLost || left <= 0 {
			break
		}
		if !pause(x.r.Context(), min(wait, left)) {
			return
		}
	}
	if last == nil {
		x.refuse(errNoWorker(x.pools))
		return
	}
	last.write(x)
}

// refuse answers with an error.
func (x *exchange) refuse(err error) {
	x.status = http.StatusServiceUnavailable
	refuse(x.w, err)
}

// refusal is what a worker answered, or met, instead of an answer of a server.
type refusal struct {
	outcome string // of the wire
	lost    bool   // the worker ended while it had the request
	status  int
	header  http.Header
	body    []byte
	err     error // if the worker answered nothing
}

// maxRefusal bounds the bytes of a refusal.
const maxRefusal = 64 << 10

// write answers the client with the refusal.
func (f *refusal) write(x *exchange) {
	if f.err != nil {
		x.status = http.StatusBadGateway
		p := onlinewire.Problem{Message: f.err.Error(), Type: onlinewire.ServerError, Code: "worker_lost"}
		if f.outcome == onlinewire.Failed {
			p.Code = "server_failed"
			x.w.Header().Set("X-Should-Retry", "false")
		} else {
			x.w.Header().Set("Retry-After", "1")
		}
		onlinewire.WriteProblem(x.w, x.status, p)
		return
	}
	x.status = f.status
	onlinewire.CopyHeaders(x.w.Header(), f.header)
	x.w.Header().Set("Cache-Control", "no-store")
	x.w.WriteHeader(f.status)
	_, _ = x.w.Write(f.body) // the client may have left
}

// at passes the request to a worker. It returns nil if the client has its answer, or a part
// of it.
func (x *exchange) at(c candidate, until time.Time) *refusal {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	left := max(0, until.Sub(x.door.Clock.Now()))
	limit := c.pool.whole
	if x.asked.Stream {
		limit = c.pool.silence
	}
	watch := time.AfterFunc(left+x.door.grace, func() { cancel(errStopped) })
	defer watch.Stop()
	var begun atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == onlinewire.Begun {
				begun.Store(true)
				watch.Reset(limit + x.door.grace)
			}
			return nil
		}})
	// Connections are kept by host: a socket has a name that no other has.
	at := "http://" + filepath.Base(c.socket) + "/v1/" + x.path
	body := x.asked.WithModel(c.pool.model)
	q, err := http.NewRequestWithContext(withSocket(ctx, c.socket), http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return &refusal{outcome: onlinewire.Failed, err: fault.WithKind(fault.Internal, err, "make the request")}
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set(onlinewire.Wait, strconv.FormatInt(left.Milliseconds(), 10))
	resp, err := x.door.transport.RoundTrip(q)
	if err != nil {
		if x.r.Context().Err() == nil { // it is not the client who has left
			x.door.workers.broke(c.socket)
		}
		return lostWorker(ctx, begun.Load())
	}
	defer resp.Body.Close()
	if outcome := resp.Header.Get(onlinewire.Outcome); outcome != "" {
		said, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		if err != nil {
			return lostWorker(ctx, true)
		}
		return &refusal{outcome: outcome, status: resp.StatusCode, header: resp.Header, body: said}
	}
	if !onlinewire.IsStream(resp.Header) {
		return x.whole(ctx, resp)
	}
	x.releaseBody()
	x.begin(resp)
	x.events(ctx, resp, func() { watch.Reset(c.pool.silence + x.door.grace) }, func() { watch.Stop() })
	return nil
}

// errStopped is the cause of the end of a request of which a worker sends nothing in time.
var errStopped = errors.New("the worker has stopped")

// lostWorker returns the refusal of a worker that ended, or has stopped.
func lostWorker(ctx context.Context, hadIt bool) *refusal {
	f := &refusal{outcome: onlinewire.Elsewhere, lost: hadIt,
		err: fault.New(fault.Unavailable, "the worker ended while it had the request")}
	if errors.Is(context.Cause(ctx), errStopped) {
		f.err = fault.New(fault.Unavailable, "the worker does not answer")
	}
	return f
}

// begin writes the header of the answer.
func (x *exchange) begin(resp *http.Response) {
	x.status, x.answered = resp.StatusCode, true
	x.door.meter.OnlineAnswered(x.pools[0].name, x.door.Clock.Now().Sub(x.began))
	onlinewire.CopyHeaders(x.w.Header(), resp.Header)
	x.w.Header().Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(resp.StatusCode)
}

// maxKept bounds a whole answer that is held back until it is complete.
const maxKept = 8 << 20

// whole passes an answer that is not streamed. The client gets no byte of it before it is
// complete, unless it is long, so that a lost worker leaves an answer that another can give.
// If the worker lives, its server may have died of the request.
func (x *exchange) whole(ctx context.Context, resp *http.Response) *refusal {
	kept, err := io.ReadAll(io.LimitReader(resp.Body, maxKept))
	if err != nil {
		return lostWorker(ctx, true)
	}
	long := len(kept) == maxKept
	if why := resp.Trailer.Get(onlinewire.Broken); why != "" && !long {
		f := &refusal{outcome: onlinewire.Failed, err: fault.New(fault.Unavailable, "%s", why)}
		if why == onlinewire.Drained {
			f.outcome = onlinewire.Elsewhere
		}
		return f
	}
	if !long {
		x.w.Header().Set("Content-Length", strconv.Itoa(len(kept)))
	}
	x.releaseBody()
	x.begin(resp)
	if !x.write(kept) || !long {
		return nil
	}
	_, err = io.Copy(writerFunc(func(p []byte) (int, error) {
		if !x.write(p) {
			return 0, io.ErrClosedPipe
		}
		return len(p), nil
	}), resp.Body)
	if err != nil || resp.Trailer.Get(onlinewire.Broken) != "" {
		x.aborted = true
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// writeTime is how long a client may take to read one piece.
const writeTime = time.Minute

// write writes a piece at the client's pace; false if the client has left.
func (x *exchange) write(p []byte) bool {
	conn := http.NewResponseController(x.w)
	_ = conn.SetWriteDeadline(time.Now().Add(writeTime)) // recorders of tests have none
	_, err := x.w.Write(p)
	if err == nil {
		err = conn.Flush()
	}
	x.aborted = x.aborted || err != nil
	return err == nil
}

// maxEvent is from which length on an incomplete event is passed on.
const maxEvent = 1 << 20

// events passes a stream, event by event: each when its last byte has come, so that a stream
// that breaks off ends with whole events and the error. It calls awaits before it waits for
// a piece, and arrived after it.
func (x *exchange) events(ctx context.Context, resp *http.Response, awaits, arrived func()) {
	buf := make([]byte, 32<<10)
	var kept []byte
	for {
		awaits()
		n, err := resp.Body.Read(buf)
		arrived()
		kept = append(kept, buf[:n]...)
		whole := endOfEvents(kept)
		if len(kept) > maxEvent {
			whole = len(kept)
		}
		if err != nil && errors.Is(err, io.EOF) && resp.Trailer.Get(onlinewire.Broken) == "" {
			whole = len(kept) // the server's own end, whatever it is
		}
		if whole > 0 {
			if !x.write(kept[:whole]) {
				return
			}
			kept = append(kept[:0], kept[whole:]...)
		}
		switch {
		case err == nil:
		case x.r.Context().Err() != nil:
			x.aborted = true
			return
		case errors.Is(context.Cause(ctx), errStopped):
			x.cut("the worker sent nothing for too long")
			return
		case !errors.Is(err, io.EOF):
			x.cut(onlinewire.Drained)
			return
		default:
			if why := resp.Trailer.Get(onlinewire.Broken); why != "" {
				x.cut(why)
			}
			return
		}
	}
}

// cut ends a stream with an error.
func (x *exchange) cut(why string) {
	x.write(onlinewire.Problem{Message: why, Type: onlinewire.ServerError, Code: "stream_broken"}.Event())
	x.aborted = true
}

// endOfEvents returns where the last whole event ends: behind a blank line.
func endOfEvents(b []byte) int {
	end := 0
	for _, blank := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		if i := bytes.LastIndex(b, []byte(blank)); i >= 0 {
			end = max(end, i+len(blank))
		}
	}
	return end
}

// socketKey is the key of a socket's path in a context.
type socketKey struct{}

func withSocket(ctx context.Context, path string) context.Context {
	return context.WithValue(ctx, socketKey{}, path)
}

// newTransport returns a transport over the sockets that the requests' contexts name.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			path, _ := ctx.Value(socketKey{}).(string)
			return onlinewire.Dial(ctx, path)
		},
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        10 * time.Second,
	}
}
