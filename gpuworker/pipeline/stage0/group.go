// Package stage0 runs rank 0 of a pipeline: it starts the other ranks as processes, sends them
// chunks, and decodes the results.
//
//	Source ─▶ Prepare (A) ─▶ ≤ 2 in flight ─▶ stage 1 ─▶ ≤ 2 results ─▶ Decode (C)
//
// One goroutine prepares, sends and decodes, in the order that shared/core/pipeline says: the
// next envelope leaves before a result is decoded. Another one reads results, as far as there
// is room for them. A rank that ends, an invalid result or a silence longer than the timeout
// ends the whole group: its chunks go back to their Source, and the caller may start a new
// group. No result is decoded twice.
package stage0

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/link"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// Chunk is a piece of work. Its methods are called by one goroutine at a time, and one of
// Decode, Fail and Flushed ends it.
type Chunk interface {
	// Prepare makes the envelope (phase A). The group sets version, action, ids and the
	// expected calls.
	Prepare() (*wire.Envelope, error)
	// Decode takes the result (phase C). A fault ends the group.
	Decode(r *wire.Result) error
	// Fail says that Prepare or a check of its envelope failed: nothing was sent, and the
	// group goes on.
	Fail(err error)
	// Flushed says that a hard cut or the end of the group has dropped the chunk.
	Flushed()
}

// Source has the chunks to send. It is safe for concurrent use.
type Source interface {
	// Pending reports whether Take would return a chunk now.
	Pending() bool
	// Take returns the next chunk, or nil.
	Take() Chunk
}

// Points at which rank 0 commits the mesh to wait.
const PointSend = "header send"

// Options say how a group runs.
type Options struct {
	Ranks    int      // of the mesh
	Command  []string // starts a rank of the mesh, which calls stage1
	Contract wire.Contract
	Parity   func(s group.Setup) group.Parity // rank 0's settings
	Timeout  time.Duration
	Digest   bool
	Source   Source
	Log      *slog.Logger
	Stderr   io.Writer // gets the messages of the ranks; nil is this process's standard error
	// Reached is an optional hook, called at each point before rank 0 goes on.
	Reached func(point string, ids pipeline.IDs)
}

// Group is a running pipeline. All methods are safe for concurrent use.
type Group struct {
	o       Options
	handles group.Handles
	procs   []*process // by rank; nil at 0
	began   time.Time
	wake    chan struct{}
	failed  chan struct{} // closed when err is set
	done    chan struct{} // closed when everything has ended

	mu       sync.Mutex
	room     *sync.Cond // for a result, or the group has failed
	err      error
	state    pipeline.Stage0
	watchdog pipeline.Watchdog
	sent     []*sentChunk // in flight, the oldest first
	results  []*sentChunk // that wait for their decode
	timings  []pipeline.Timing
	dropped  int
}

// sentChunk is a chunk with its times.
type sentChunk struct {
	Chunk
	pipeline.IDs
	pipeline.Timing
	result *wire.Result
}

// maxTimings bounds the chunks that Report looks at: the last ones.
const maxTimings = 512

// Start starts the ranks and the group, which runs until Close or a failure. Ranks that
// differ in their settings are Invalid; the fault names the keys.
func Start(ctx context.Context, o Options) (*Group, error) {
	g := &Group{o: o, began: time.Now(), wake: make(chan struct{}, 1), failed: make(chan struct{}),
		done: make(chan struct{}), watchdog: pipeline.Watchdog{What: "result of the mesh", Limit: o.Timeout}}
	g.room = sync.NewCond(&g.mu)
	if err := g.start(ctx); err != nil {
		return nil, err
	}
	go g.run(context.WithoutCancel(ctx))
	return g, nil
}

// Failed returns a channel that is closed when the group has failed or was closed.
func (g *Group) Failed() <-chan struct{} { return g.failed }

// Err returns why the group has ended; nil while it runs.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Wake says that the Source has a chunk.
func (g *Group) Wake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// errClosed is the end of a group that was closed.
var errClosed = fault.New(fault.Unavailable, "the pipeline was closed")

// Close ends the group and its ranks in an orderly way, and waits for them.
func (g *Group) Close() {
	g.fail(errClosed)
	<-g.done
}

// Cut begins a new epoch: chunks in flight or waiting for their decode are flushed, and
// their results are dropped when they come. It returns the new epoch.
func (g *Group) Cut() int64 {
	g.mu.Lock()
	flushed := append(g.results, g.sent...)
	g.results, g.sent = nil, nil
	g.state.Cut()
	g.watchdog.Disarm()
	epoch := g.state.Epoch()
	g.room.Broadcast()
	g.mu.Unlock()
	for _, c := range flushed {
		c.Flushed()
	}
	g.Wake()
	return epoch
}

// Report says how well the stages have overlapped, and how many results were dropped as
// stale.
func (g *Group) Report() (r pipeline.Report, dropped int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pipeline.Measure(g.timings), g.dropped
}

// fail ends the group because of err; the first one counts.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.failed)
		g.room.Broadcast()
	}
}

// run works until the group fails, and then ends everything.
func (g *Group) run(ctx context.Context) {
	defer close(g.done)
	var reader sync.WaitGroup
	reader.Go(func() { g.fail(g.read(ctx)) })
	if err := g.work(ctx); err != nil {
		g.fail(err)
	}
	err := g.Err()
	if errors.Is(err, errClosed) {
		g.control(ctx, pipeline.Shutdown, "stage 0 ends")
	} else {
		g.o.Log.ErrorContext(ctx, "pipeline ends", "error", err)
		g.control(ctx, pipeline.Error, "stage 0 ends")
	}
	g.stop(ctx, true)
	g.handles.Close()
	reader.Wait()
	g.mu.Lock()
	left := append(g.results, g.sent...)
	g.results, g.sent = nil, nil
	g.mu.Unlock()
	for _, c := range left { // another group may answer them
		c.Flushed()
	}
}

// work does the steps of stage 0 until the group fails. It returns its own failure.
func (g *Group) work(ctx context.Context) error {
	keepalive := max(time.Millisecond, g.o.Timeout/4)
	spoken := time.Now()
	for {
		g.mu.Lock()
		failed := g.err != nil
		step := g.state.Next(g.o.Source.Pending())
		inFlight := g.state.InFlight()
		deadline, armed := g.watchdog.Deadline()
		g.mu.Unlock()
		if failed {
			return nil
		}
		switch step {
		case pipeline.Send:
			if err := g.send(ctx); err != nil {
				return err
			}
			spoken = time.Now()
			continue
		case pipeline.Decode:
			if err := g.decode(); err != nil {
				return err
			}
			continue
		}
		until := spoken.Add(keepalive)
		if armed {
			until = deadline
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-g.wake:
		case <-g.failed:
		case <-timer.C:
			g.mu.Lock()
			err := g.watchdog.Check(time.Now())
			g.mu.Unlock()
			if err != nil {
				return err
			}
			if inFlight == 0 {
				g.control(ctx, pipeline.Noop, "")
				spoken = time.Now()
			}
		}
		timer.Stop()
	}
}

// send prepares the next chunk and sends it.
func (g *Group) send(ctx context.Context) error {
	c := g.o.Source.Take()
	if c == nil {
		return nil
	}
	s := &sentChunk{Chunk: c}
	s.Begun = time.Since(g.began)
	e, err := c.Prepare()
	if err != nil {
		c.Fail(err)
		return nil
	}
	regime, err := pipeline.RegimeOf(e.DoKVRecompute, e.LatentAnchor)
	if err != nil {
		c.Fail(err)
		return nil
	}
	e.Version, e.Action, e.DisableVACE = wire.Version, pipeline.Infer, true
	e.ExpectedGeneratorCalls = regime.Calls(e.NumDenoiseSteps)
	g.mu.Lock()
	s.IDs = g.state.NextChunk()
	e.CallID, e.ChunkIndex, e.CacheEpoch = s.Call, s.IDs.Chunk, s.Epoch
	p, err := wire.Prepare(e, g.o.Contract)
	if err == nil {
		err = g.state.Sent(e.ExpectedGeneratorCalls)
	}
	if err != nil {
		g.mu.Unlock()
		c.Fail(err) // nothing was sent
		return nil
	}
	s.Prepared = time.Since(g.began)
	g.sent = append(g.sent, s)
	g.watchdog.Arm(time.Now())
	g.mu.Unlock()
	g.point(ctx, s.IDs)
	return g.handles.World.Conn().Send(p)
}

// point logs that rank 0 commits the leader to wait.
func (g *Group) point(ctx context.Context, ids pipeline.IDs) {
	g.o.Log.DebugContext(ctx, PointSend, "call_id", ids.Call, "chunk_index", ids.Chunk, "cache_epoch", ids.Epoch,
		"group", group.WorldName, "rank", 0, "mesh_rank", -1)
	if g.o.Reached != nil {
		g.o.Reached(PointSend, ids)
	}
}

// control sends a message without a payload. A failure shows at the next read.
func (g *Group) control(ctx context.Context, a pipeline.Action, reason string) {
	g.mu.Lock()
	ids := g.state.Control()
	g.mu.Unlock()
	e := &wire.Envelope{Version: wire.Version, Action: a, CallID: ids.Call, ChunkIndex: ids.Chunk, CacheEpoch: ids.Epoch,
		DisableVACE: true, Reason: reason}
	p, err := wire.Prepare(e, g.o.Contract)
	if err == nil {
		err = g.handles.World.Conn().Send(p)
	}
	if err != nil {
		g.o.Log.DebugContext(ctx, "control message not sent", "action", a.String(), "error", err)
	}
}

// decode decodes the oldest result.
func (g *Group) decode() error {
	g.mu.Lock()
	if len(g.results) == 0 { // a cut came between
		g.mu.Unlock()
		return nil
	}
	s := g.results[0]
	g.results = g.results[1:]
	g.state.Decoded()
	g.room.Broadcast()
	g.mu.Unlock()
	s.Received = time.Since(g.began)
	if err := s.Chunk.Decode(s.result); err != nil {
		s.Flushed()
		return fault.Wrap(err, "call_id=%d chunk_index=%d cache_epoch=%d: decode", s.Call, s.IDs.Chunk, s.Epoch)
	}
	s.Emitted = time.Since(g.began)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timings = append(g.timings, s.Timing)
	if len(g.timings) > maxTimings {
		g.timings = append(g.timings[:0], g.timings[len(g.timings)-maxTimings/2:]...)
	}
	return nil
}

// read receives results until the connection ends or a result is wrong. It never returns nil.
func (g *Group) read(ctx context.Context) error {
	conn := g.handles.World.Conn()
	for {
		g.mu.Lock()
		for !g.state.CanReceive() && g.err == nil {
			g.room.Wait()
		}
		failed := g.err
		g.mu.Unlock()
		if failed != nil {
			return failed
		}
		r, err := g.receive(conn)
		if err != nil {
			return err
		}
		if err := g.accept(ctx, r); err != nil {
			return err
		}
		g.Wake()
	}
}

func (g *Group) receive(conn *link.Conn) (*wire.Result, error) {
	h, err := conn.Header(time.Time{}) // the watchdog decides
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "the leader of the mesh")
	}
	body, err := conn.Body()
	if err != nil {
		return nil, err
	}
	if h.Kind == wire.KindEnvelope && h.Action.Terminal() {
		e, err := wire.ReadEnvelope(body, h, g.o.Contract)
		if err != nil {
			return nil, err
		}
		end := &group.TerminatedError{Action: e.Action, Reason: e.Reason}
		return nil, fault.WithKind(fault.Unavailable, end, "the mesh ended")
	}
	r, err := wire.ReadResult(body, h, g.o.Contract)
	if err != nil {
		return nil, err
	}
	return r, fault.Wrap(r.Validate(g.o.Contract), "result")
}

// accept puts a result into the queue, or drops it if it is stale.
func (g *Group) accept(ctx context.Context, r *wire.Result) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	inFlight, ready := g.state.InFlight(), g.state.Ready()
	verdict, err := g.state.Receive(r.IDs(), r.ObservedGeneratorCalls)
	if err != nil {
		return err
	}
	if verdict == pipeline.Stale {
		g.dropped++
		g.o.Log.InfoContext(ctx, "stale result dropped", "dropped_result_epoch", r.CacheEpoch,
			"current_epoch", g.state.Epoch(), "call_id", r.CallID, "chunk_index", r.ChunkIndex)
		return nil
	}
	s := g.sent[0]
	g.sent = g.sent[1:]
	s.result, s.InFlight, s.Ready = r, inFlight, ready
	s.Stage1, s.Idle = duration(r.StageMS), duration(r.IdleMS)
	g.results = append(g.results, s)
	g.watchdog.Disarm()
	if len(g.sent) > 0 {
		g.watchdog.Seen(time.Now())
	}
	return nil
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
