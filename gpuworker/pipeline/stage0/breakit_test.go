package stage0_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/latent"
	"rollout/gpuworker/pipeline/stage0"
	"rollout/gpuworker/pipeline/stage1"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// TestGroupAnswersAndHasALogLineAtEachCommitmentPoint also checks that both queues stay
// bounded, and that the next envelope is sent before a result is decoded.
func TestGroupAnswersAndHasALogLineAtEachCommitmentPoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "none")
	g := f.start()
	answers := f.ask(20)
	if again := f.ask(20); !slices.Equal(answers, again) {
		t.Errorf("the same requests got other answers:\n%q\n%q", answers, again)
	}
	g.Close() // the ranks' messages have arrived when they have ended
	for _, p := range []struct{ point, group, rank string }{
		{stage0.PointSend, "group=world", "rank=0 mesh_rank=-1"},
		{stage1.PointReceived, "group=world", "rank=1 mesh_rank=0"},
		{stage1.PointBroadcast, "group=mesh", "rank=1 mesh_rank=0"},
		{stage1.PointCollective, "group=mesh", "rank=2 mesh_rank=1"},
		{stage1.PointResult, "group=world", "rank=1 mesh_rank=0"},
	} {
		n := len(f.log.lines(p.point, p.group, p.rank, "call_id=", "cache_epoch=0", "chunk_index="))
		if n < 40 {
			t.Errorf("%d lines of %q: %q", n, p.point, f.log.lines(p.point))
		}
	}
	r, _ := g.Report()
	if r.MaxInFlight > pipeline.DIn || r.MaxReady > pipeline.DOut || r.MaxInFlight < 2 {
		t.Errorf("at most %d in flight and %d ready", r.MaxInFlight, r.MaxReady)
	}
}

// Break-it 1: a collective of the wrong group fails before it blocks.
func TestWrongGroupFailsBeforeItBlocks(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "wrong-group")
	g := f.start()
	go func() { _, _ = ask(t.Context(), f.source, 4) }()
	if err := f.awaitFailure(g); !strings.Contains(err, "group_used=world, expected_group=mesh") {
		t.Errorf("the group ended with %s", err)
	}
}

// chunks is a Source of given chunks.
type chunks struct {
	mu  sync.Mutex
	all []stage0.Chunk
}

func (c *chunks) Pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

func (c *chunks) Take() stage0.Chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return nil
	}
	first := c.all[0]
	c.all = c.all[1:]
	return first
}

// chunk is an envelope of the latent stage, changed by a test.
type chunk struct {
	change  func(e *wire.Envelope)
	decoded atomic.Int32
	end     chan error // has room for one
}

func newChunk(change func(e *wire.Envelope)) *chunk {
	return &chunk{change: change, end: make(chan error, 1)}
}

func (c *chunk) Prepare() (*wire.Envelope, error) {
	latents := make([]float32, latent.Frames*latent.Channels*latent.Height*latent.Width)
	e := &wire.Envelope{Height: latent.Height, Width: latent.Width, NumDenoiseSteps: 1, NoiseScale: 0.5}
	e.Tensors = []wire.Tensor{
		wire.BF16s("conditioning_embeds", []float32{1, 2}, 1, 1, 2),
		wire.BF16s("latents_in", latents, latent.Frames, latent.Channels, latent.Height, latent.Width),
		wire.Int64s(wire.KeySteps, []int64{500}),
	}
	c.change(e)
	return e, nil
}

func (c *chunk) Decode(*wire.Result) error {
	c.decoded.Add(1)
	c.end <- nil
	return nil
}
func (c *chunk) Fail(err error) { c.end <- err }
func (c *chunk) Flushed()       { c.end <- errors.New("flushed") }

// Break-it 2: the leader fails after it has received an envelope; the others leave by a
// terminal message.
func TestInvalidEnvelopeEndsAllRanksByATerminalMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "none")
	// Rank 0 has another contract, which misses a tensor: its own checks pass.
	f.options.Contract.Inputs = f.options.Contract.Inputs[1:]
	f.options.Source = &chunks{all: []stage0.Chunk{newChunk(func(e *wire.Envelope) { e.Tensors = e.Tensors[1:] })}}
	g := f.start()
	err := f.awaitFailure(g)
	if !strings.Contains(err, "latents_in") && !strings.Contains(err, "conditioning_embeds") {
		t.Errorf("the group ended with %s", err)
	}
	if len(f.log.lines("rank is told to end", "action=ERROR", "mesh_rank=1")) != 1 {
		t.Error("the follower has not left by a terminal message")
	}
	if got := f.log.lines(stage1.PointBroadcast, "chunk_index=0"); len(got) != 0 {
		t.Errorf("the leader broadcast the invalid envelope: %q", got)
	}
}

// Break-it 3: what can't be sent fails before any header, and the group goes on.
func TestNothingIsSentOfAMessageThatCannotBeFinished(t *testing.T) {
	t.Parallel()
	wrong := map[string]func(e *wire.Envelope){
		"an unsupported type":       func(e *wire.Envelope) { e.Tensors[1].DType = "float64" },
		"metadata without a number": func(e *wire.Envelope) { e.NoiseScale = math.NaN() },
		"too little data":           func(e *wire.Envelope) { e.Tensors[1].Data = e.Tensors[1].Data[2:] },
		"a negative dimension":      func(e *wire.Envelope) { e.Tensors[1].Shape = []int{-1, 4, 16, 16} },
		"a missing tensor":          func(e *wire.Envelope) { e.Tensors = e.Tensors[1:] },
		"a surplus tensor":          func(e *wire.Envelope) { e.Tensors = append(e.Tensors, wire.Int64s("more", nil)) },
		"the wrong steps":           func(e *wire.Envelope) { e.NumDenoiseSteps = 3 },
		"infinite latents": func(e *wire.Envelope) {
			x := e.Tensors[1].Float32s()
			x[7] = float32(math.Inf(1))
			e.Tensors[1] = wire.BF16s("latents_in", x, e.Tensors[1].Shape...)
		},
		"context without recompute": func(e *wire.Envelope) {
			e.Tensors = append(e.Tensors, wire.BF16s(wire.KeyContext, []float32{1}, 1, 1, 1, 1))
		},
		"an anchor without recompute": func(e *wire.Envelope) { e.LatentAnchor = true },
	}
	f := newFixture(t, "none")
	source := &chunks{}
	names := map[*chunk]string{}
	for name, change := range wrong {
		c := newChunk(change)
		source.all, names[c] = append(source.all, c), name
	}
	good := newChunk(func(*wire.Envelope) {})
	source.all = append(source.all, good)
	f.options.Source = source
	g := f.start()
	if err := <-good.end; err != nil {
		t.Fatalf("the group did not go on: %v", err)
	}
	for c, name := range names {
		if err := <-c.end; !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.Close()
	if got := f.log.lines(stage1.PointReceived, "chunk_index=0"); len(got) == 0 {
		t.Error("the leader has not received the good chunk")
	}
	if got := f.log.lines(stage1.PointReceived, "chunk_index=1"); len(got) != 0 {
		t.Errorf("the leader received a header of another chunk: %q", got)
	}
}

// Break-it 4: ranks that plan or make another number of calls.
func TestCallCountMismatchEndsTheGroup(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]string{
		"wrong-plan":  "expected_generator_calls=4 planned_call_count=5 rank=2",
		"wrong-calls": "expected_generator_calls=4 observed_generator_calls=3 rank=2",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, fault)
			g := f.start()
			go func() { _, _ = ask(t.Context(), f.source, 4) }()
			if err := f.awaitFailure(g); !strings.Contains(err, want) {
				t.Errorf("the group ended with %s", err)
			}
		})
	}
}

// Break-it 5: results of an earlier epoch are dropped undecoded, and the stream goes on.
func TestResultsOfAnEarlierEpochAreDropped(t *testing.T) {
	t.Parallel()
	want := undisturbed(t, 12)
	f := newFixture(t, "none")
	var g *stage0.Group
	started := make(chan struct{})
	f.options.Reached = func(_ string, ids pipeline.IDs) {
		<-started
		if ids.Chunk%3 == 1 { // before the envelope leaves: its result comes after the cut
			g.Cut()
		}
	}
	g = f.start()
	close(started)
	if got := f.ask(12); !slices.Equal(got, want) {
		t.Errorf("answers after hard cuts:\n%q\nwithout:\n%q", got, want)
	}
	if _, dropped := g.Report(); dropped == 0 {
		t.Error("no result was dropped")
	}
	if len(f.log.lines("dropped_result_epoch=0", "current_epoch=", "call_id=", "chunk_index=")) == 0 {
		t.Error("a dropped result has no line in the log")
	}
}

// Break-it 6: a debug flag on one rank alone is refused at the start.
func TestOneSidedFlagIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "one-sided-digest")
	began := time.Now()
	_, err := stage0.Start(t.Context(), f.options)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), group.KeyOutputDigest) {
		t.Fatalf("start: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the refusal took %v", took)
	}
}

// TestKilledRankEndsTheGroupAndNothingIsLost kills each rank of the mesh at each point at
// which it commits others to wait. The next group answers what was open.
func TestKilledRankEndsTheGroupAndNothingIsLost(t *testing.T) {
	t.Parallel()
	want := undisturbed(t, 6)
	for _, at := range []string{
		"1:" + stage1.PointReceived, "1:" + stage1.PointBroadcast, "1:" + stage1.PointCollective, "1:" + stage1.PointResult,
		"2:" + stage1.PointCollective,
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "kill:"+at+":2")
			g := f.start()
			type answered struct {
				answers []string
				err     error
			}
			done := make(chan answered, 1)
			go func() {
				a, err := ask(t.Context(), f.source, 6)
				done <- answered{a, err}
			}()
			f.awaitFailure(g)
			f.options.Command = command(t, "none")
			f.start()
			if got := <-done; got.err != nil || !slices.Equal(got.answers, want) {
				t.Errorf("answers: %q, %v", got.answers, got.err)
			}
		})
	}
}

// TestSilentRankEndsTheGroup stops a rank instead of killing it: only the watchdogs notice.
func TestSilentRankEndsTheGroup(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"1:" + stage1.PointReceived, "2:" + stage1.PointCollective} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "stop:"+at+":1")
			f.options.Timeout = 3 * time.Second
			g := f.start()
			go func() { _, _ = ask(t.Context(), f.source, 4) }()
			f.awaitFailure(g)
		})
	}
}

// TestKilledRankZeroLeavesNoRankBehind waits until every process that has the standard error
// of the killed one has ended.
func TestKilledRankZeroLeavesNoRankBehind(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "rank-zero")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	var log bytes.Buffer
	if _, err := log.ReadFrom(r); err != nil { // until the last one has closed it
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("rank 0 ended with %v: %s", err, log.String())
	}
	if !strings.Contains(log.String(), stage1.PointReceived) {
		t.Errorf("the ranks have not worked: %s", log.String())
	}
}

// TestIdleGroupLivesLongerThanItsTimeout shows that stage 0 speaks while it has nothing to do.
func TestIdleGroupLivesLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "none")
	f.options.Timeout = 2 * time.Second
	g := f.start()
	for len(f.log.lines(stage1.PointReceived, fmt.Sprintf("call_id=%d ", 8))) == 0 { // a NOOP each half second
		select {
		case <-g.Failed():
			t.Fatal(g.Err())
		case <-f.log.changed:
		}
	}
	f.ask(1)
}
