// Package stage1 runs a rank of the mesh: it takes envelopes, generates, and returns results.
//
//	leader    header ─▶ whole envelope ─▶ validate ─▶ broadcast ─┐
//	follower                           broadcast ─▶ validate ────┴▶ gather planned calls
//	                 ─▶ generate ─▶ compare calls ─▶ (leader) result to stage 0
//
// The leader enters no collective before it has received and validated the whole envelope.
// Whatever goes wrong, it tells the mesh and stage 0 with a terminal message before it ends,
// and a follower tells its peers: nobody waits for a rank that has given up. The package
// never recovers: the process ends, and stage 0 starts a new group.
package stage1

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"lukechampine.com/blake3"

	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/link"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// Generator is stage 1 of one kind, on one rank of the mesh. All ranks call it with the same
// envelopes, in the same order, and must enter the same collectives.
type Generator interface {
	// Plan returns how often the generator will run for the envelope.
	Plan(e *wire.Envelope) (calls int, err error)
	// Generate returns the tensors of the result, which are the same on all ranks, how often
	// the generator ran, and the frame or position that the cache has reached.
	Generate(m *group.Mesh, e *wire.Envelope) (Output, error)
}

// Output is what a Generator returns for an envelope.
type Output struct {
	Tensors []wire.Tensor
	Calls   int
	Frame   int64
}

// Points at which a rank commits a peer to wait. Each has a line in the log.
const (
	PointReceived   = "header received"
	PointBroadcast  = "mesh broadcast start"
	PointCollective = "first collective"
	PointResult     = "result send"
)

// Options say how a rank runs.
type Options struct {
	Handles   group.Handles
	Contract  wire.Contract
	Generator Generator
	Timeout   time.Duration
	// Digest has the ranks compare a digest of each output. It adds a collective, so that all
	// ranks must have the same value: it belongs to the start handshake.
	Digest bool
	Log    *slog.Logger
	// Reached is an optional hook, called at each point before the rank goes on.
	Reached func(point string, ids pipeline.IDs)
}

// Run serves envelopes until stage 0 ends the group, which returns nil, or something fails.
func Run(ctx context.Context, o Options) error {
	stop := context.AfterFunc(ctx, o.Handles.Close)
	defer stop()
	defer o.Handles.Close()
	r := &rank{Options: o}
	if o.Handles.Mesh.Rank() == 0 {
		return r.lead(ctx)
	}
	return r.follow(ctx)
}

// rank is a running rank.
type rank struct {
	Options
	order pipeline.Order
	ended time.Time // of the last chunk; zero before
}

// point logs that the rank commits a peer to wait.
func (r *rank) point(ctx context.Context, point, in string, ids pipeline.IDs) {
	r.Log.DebugContext(ctx, point, "call_id", ids.Call, "chunk_index", ids.Chunk, "cache_epoch", ids.Epoch,
		"group", in, "rank", r.Handles.World.Rank, "mesh_rank", r.Handles.Mesh.Rank())
	if r.Reached != nil {
		r.Reached(point, ids)
	}
}

func (r *rank) lead(ctx context.Context) error {
	conn := r.Handles.World.Conn()
	watchdog := pipeline.Watchdog{What: "header of stage 0", Limit: r.Timeout}
	for {
		watchdog.Seen(time.Now())
		deadline, _ := watchdog.Deadline()
		e, err := r.receive(ctx, conn, deadline)
		if err != nil {
			return r.abandon(ctx, conn, errors.Join(watchdog.Check(time.Now()), err))
		}
		prepared, err := wire.Prepare(e, r.Contract)
		if err != nil {
			return r.abandon(ctx, conn, err)
		}
		r.point(ctx, PointBroadcast, group.MeshName, e.IDs())
		if err := r.Handles.Mesh.Broadcast(prepared); err != nil {
			return r.abandon(ctx, conn, err)
		}
		if e.Action.Terminal() {
			return ended(e)
		}
		if e.Action != pipeline.Infer {
			continue
		}
		result, err := r.generate(ctx, e)
		if err != nil {
			return r.abandon(ctx, conn, err)
		}
		out, err := wire.PrepareResult(result, r.Contract)
		if err != nil {
			return r.abandon(ctx, conn, err)
		}
		r.point(ctx, PointResult, group.WorldName, e.IDs())
		if err := conn.Send(out); err != nil {
			return r.abandon(ctx, conn, err)
		}
	}
}

// receive reads the next envelope of stage 0 whole, and checks it.
func (r *rank) receive(ctx context.Context, conn *link.Conn, deadline time.Time) (*wire.Envelope, error) {
	h, err := conn.Header(deadline)
	if err != nil {
		return nil, err
	}
	r.point(ctx, PointReceived, group.WorldName, h.IDs)
	body, err := conn.Body()
	if err != nil {
		return nil, err
	}
	e, err := wire.ReadEnvelope(body, h, r.Contract)
	if err != nil {
		return nil, err
	}
	return e, r.check(e)
}

func (r *rank) check(e *wire.Envelope) error {
	if err := e.Validate(r.Contract); err != nil {
		return fault.Wrap(err, "envelope")
	}
	return r.order.Accept(e.Action, e.IDs())
}

// ended returns the error of a terminal message; nil for an orderly end.
func ended(e *wire.Envelope) error {
	if e.Action == pipeline.Shutdown {
		return nil
	}
	return &group.TerminatedError{Action: e.Action, Reason: e.Reason}
}

// abandon tells the mesh, and the leader also stage 0, that this rank ends because of err,
// and returns err.
func (r *rank) abandon(ctx context.Context, conn *link.Conn, err error) error {
	if ctx.Err() != nil { // told to end
		return err
	}
	e := &wire.Envelope{Version: wire.Version, Action: pipeline.Error, DisableVACE: true, Reason: reason(err)}
	p, prepareErr := wire.Prepare(e, r.Contract)
	if prepareErr != nil {
		return errors.Join(err, prepareErr)
	}
	r.Handles.Mesh.Terminate(p)
	if conn != nil {
		_ = conn.Send(p)
	}
	return err
}

// maxReason bounds the reason of an end, in bytes.
const maxReason = 4 << 10

func reason(err error) string {
	s := err.Error()
	return s[:min(len(s), maxReason)]
}

func (r *rank) follow(ctx context.Context) error {
	watchdog := pipeline.Watchdog{What: "header of the leader", Limit: r.Timeout}
	for {
		watchdog.Seen(time.Now())
		deadline, _ := watchdog.Deadline()
		e, err := r.Handles.Mesh.Receive(deadline)
		var terminated *group.TerminatedError
		if errors.As(err, &terminated) {
			level := slog.LevelInfo
			if terminated.Action == pipeline.Shutdown {
				level = slog.LevelDebug
			}
			r.Log.Log(ctx, level, "rank is told to end", "action", terminated.Action.String(), "reason", terminated.Reason,
				"rank", r.Handles.World.Rank, "mesh_rank", r.Handles.Mesh.Rank())
			if terminated.Action == pipeline.Shutdown {
				return nil
			}
			return err
		}
		if err == nil {
			err = r.check(e)
		}
		if err != nil {
			return r.abandon(ctx, nil, errors.Join(watchdog.Check(time.Now()), err))
		}
		if e.Action != pipeline.Infer {
			continue
		}
		if _, err := r.generate(ctx, e); err != nil {
			return r.abandon(ctx, nil, err)
		}
	}
}

// generate runs the generator, once all ranks plan the same number of calls.
func (r *rank) generate(ctx context.Context, e *wire.Envelope) (*wire.Result, error) {
	m := r.Handles.Mesh
	m.Begin(e.IDs())
	began := time.Now()
	idle := time.Duration(0)
	if !r.ended.IsZero() {
		idle = max(0, began.Sub(r.ended))
	}
	planned, err := r.Generator.Plan(e)
	if err != nil {
		return nil, err
	}
	r.point(ctx, PointCollective, group.MeshName, e.IDs())
	all, err := m.AllGatherInt(int64(planned))
	if err != nil {
		return nil, err
	}
	for rank, n := range all {
		if n != int64(e.ExpectedGeneratorCalls) {
			return nil, fault.New(fault.Corrupt, "call_id=%d chunk_index=%d cache_epoch=%d: expected_generator_calls=%d "+
				"planned_call_count=%d rank=%d mesh_rank=%d", e.CallID, e.ChunkIndex, e.CacheEpoch, e.ExpectedGeneratorCalls, n,
				rank+group.Leader, rank)
		}
	}
	out, err := r.Generator.Generate(m, e)
	if err != nil {
		return nil, err
	}
	if out.Calls != e.ExpectedGeneratorCalls {
		return nil, fault.New(fault.Corrupt, "call_id=%d chunk_index=%d cache_epoch=%d: expected_generator_calls=%d "+
			"observed_generator_calls=%d rank=%d", e.CallID, e.ChunkIndex, e.CacheEpoch, e.ExpectedGeneratorCalls, out.Calls,
			r.Handles.World.Rank)
	}
	result := &wire.Result{Version: wire.Version, CallID: e.CallID, ChunkIndex: e.ChunkIndex, CacheEpoch: e.CacheEpoch,
		ObservedGeneratorCalls: out.Calls, MeshCurrentStartFrame: out.Frame, Tensors: out.Tensors,
		IdleMS: milliseconds(idle)}
	if r.Digest {
		own := digest(out.Tensors)
		digests, err := m.AllGatherInt(own)
		if err != nil {
			return nil, err
		}
		for rank, d := range digests {
			if d != own {
				return nil, fault.New(fault.Corrupt, "call_id=%d chunk_index=%d cache_epoch=%d: mesh rank %d has the output "+
					"digest %d, mesh rank %d has %d", e.CallID, e.ChunkIndex, e.CacheEpoch, m.Rank(), own, rank, d)
			}
		}
		result.OutputDigest = &own
	}
	r.ended = time.Now()
	result.StageMS = milliseconds(r.ended.Sub(began))
	return result, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func digest(ts []wire.Tensor) int64 {
	h := blake3.New(8, nil)
	for _, t := range ts {
		_, _ = h.Write(t.Data)
	}
	return int64(binary.LittleEndian.Uint64(h.Sum(nil)))
}
