package stage0_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/latent"
	"rollout/gpuworker/pipeline/rank"
	"rollout/gpuworker/pipeline/stage0"
	"rollout/gpuworker/pipeline/stage1"
	"rollout/gpuworker/pipeline/wire"
	"rollout/shared/core/pipeline"
)

// TestMain runs a rank with a fault, or rank 0, if the arguments ask for it.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "faulty-rank" {
		if err := rank.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, faults(os.Args[2])); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == "rank-zero" {
		rankZero()
	}
	os.Exit(m.Run())
}

// faults returns the hooks of a rank with a fault: its name, and what it needs after colons.
func faults(name string) rank.Hooks {
	var h rank.Hooks
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "one-sided-digest":
		h.Parity = func(own group.Parity) { own[group.KeyOutputDigest] = "true" }
	case "wrong-group", "wrong-plan", "wrong-calls":
		h.Generator = func(g stage1.Generator, handles group.Handles) stage1.Generator {
			if handles.World.Rank != 2 {
				return g
			}
			return faultyGenerator{g, handles, kind}
		}
	case "paced":
		h.Generator = func(g stage1.Generator, _ group.Handles) stage1.Generator { return paced{g} }
	case "kill", "stop": // kill:RANK:POINT:CHUNK
		var self int
		var at, point string
		parts := strings.Split(rest, ":")
		at, point = parts[0], parts[1]
		chunk := parts[2]
		h.Generator = func(g stage1.Generator, handles group.Handles) stage1.Generator {
			self = handles.World.Rank
			return g
		}
		sig := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}[kind]
		h.Reached = func(p string, ids pipeline.IDs) {
			if fmt.Sprint(self) == at && p == point && fmt.Sprint(ids.Chunk) == chunk {
				_ = syscall.Kill(os.Getpid(), sig)
				select {} // the signal ends or stops this process
			}
		}
	}
	return h
}

// faultyGenerator has a fault from chunk 1 on.
type faultyGenerator struct {
	stage1.Generator
	handles group.Handles
	fault   string
}

func (f faultyGenerator) Plan(e *wire.Envelope) (int, error) {
	n, err := f.Generator.Plan(e)
	if f.fault == "wrong-plan" && e.ChunkIndex > 0 {
		n++
	}
	return n, err
}

func (f faultyGenerator) Generate(m *group.Mesh, e *wire.Envelope) (stage1.Output, error) {
	if f.fault == "wrong-group" && e.ChunkIndex > 0 {
		if _, err := f.handles.World.AllGather(nil); err != nil {
			return stage1.Output{}, err
		}
	}
	out, err := f.Generator.Generate(m, e)
	if f.fault == "wrong-calls" && e.ChunkIndex > 0 {
		out.Calls--
	}
	return out, err
}

// fixture starts groups and asks them.
type fixture struct {
	*testing.T
	source  *latent.Engine
	options stage0.Options
	log     *logBuffer
}

type logBuffer struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{} // has room for one
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

// lines returns the lines that have all the words.
func (l *logBuffer) lines(words ...string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			out = append(out, line)
		}
	}
	return out
}

func command(t testing.TB, fault string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, "faulty-rank", fault}
}

func newFixture(t *testing.T, fault string) *fixture {
	t.Helper()
	f := &fixture{T: t, source: &latent.Engine{Name: "latents"}, log: &logBuffer{changed: make(chan struct{}, 1)}}
	f.options = options(f.source, command(t, fault), f.log)
	return f
}

func options(source *latent.Engine, command []string, log io.Writer) stage0.Options {
	return stage0.Options{Ranks: 2, Command: command, Contract: wire.Latent(), Timeout: 20 * time.Second, Source: source,
		Parity: func(s group.Setup) group.Parity { return rank.ParityOf(s, nil) }, Stderr: log,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func (f *fixture) start() *stage0.Group {
	f.Helper()
	g, err := stage0.Start(f.Context(), f.options)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(g.Close)
	f.source.OnPending(g.Wake)
	g.Wake()
	return g
}

// ask asks for n answers at once.
func ask(ctx context.Context, source *latent.Engine, n int) (answers []string, err error) {
	answers = make([]string, n)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			a, err := source.Answer(ctx, engine.Request{Body: fmt.Appendf(nil, "prompt %d", i)}, func() {})
			answers[i], errs[i] = a.Text, err
		})
	}
	all.Wait()
	for _, e := range errs {
		if e != nil {
			return answers, e
		}
	}
	return answers, nil
}

func (f *fixture) ask(n int) []string {
	f.Helper()
	answers, err := ask(f.Context(), f.source, n)
	if err != nil {
		f.Fatal(err)
	}
	return answers
}

// undisturbed returns the answers of a group without a fault.
func undisturbed(t *testing.T, n int) []string {
	t.Helper()
	f := newFixture(t, "none")
	f.start()
	return f.ask(n)
}

// awaitFailure returns the failure of a group, which must come within 10 seconds and leave no
// rank behind.
func (f *fixture) awaitFailure(g *stage0.Group) string {
	f.Helper()
	began := time.Now()
	select {
	case <-g.Failed():
	case <-f.Context().Done():
		f.Fatal("the group does not end")
	}
	err := g.Err().Error()
	g.Close() // waits for the ranks
	if took := time.Since(began); took > 10*time.Second {
		f.Errorf("the group took %v to end", took)
	}
	return err
}

// rankZero runs rank 0 and kills itself when it sends chunk 1.
func rankZero() {
	source := &latent.Engine{Name: "latents"}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	o := options(source, []string{self, "faulty-rank", "none"}, os.Stderr)
	o.Reached = func(_ string, ids pipeline.IDs) {
		if ids.Chunk == 1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	g, err := stage0.Start(context.Background(), o)
	if err != nil {
		panic(err)
	}
	source.OnPending(g.Wake)
	_, _ = ask(context.Background(), source, 8)
}
