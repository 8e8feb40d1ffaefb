package observe_test

import (
	"bytes"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

var rewrite = flag.Bool("rewrite", false, "write the event lines into testdata")

const run = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

// allEvents returns one event of every kind.
func allEvents() []observe.Event {
	c := observe.Claim{Run: run, Shard: 7, Attempt: 2, Worker: "01JD2ZQ4T5WORKER"}
	counts := shard.Counts{OK: 250, Failed: 6, PromptTokens: 3000, CompletionTokens: 4000, WastedTokens: 16}
	return []observe.Event{
		observe.RunSubmitted{Run: run, Name: "nightly", Model: "m/7B", Dialect: "plain"},
		observe.RunRefused{Run: run, Name: "nightly", Reason: "prompts/nightly.toml:2: an unknown key"},
		observe.RunPlanned{Run: run, Shards: 40, Items: 10_000},
		observe.RunPhase{Run: run, Phase: "ending", Previous: "running", Reason: "stopped", Detail: "asked to"},
		observe.RunEnded{
			Run: run, Phase: "stopped", Items: 10_000, Completed: 9_000, Failed: 1_000,
			PromptTokens: 5, CompletionTokens: 6, WastedTokens: 7, Took: 90 * time.Second,
		},
		observe.ShardClaimed{Claim: c},
		observe.ShardCheckpoint{Claim: c, Rows: 100, Bytes: 65_000},
		observe.ShardDone{Claim: c, Counts: counts, Bytes: 170_000},
		observe.ShardDone{Claim: c, Counts: counts, Sealed: fault.CanceledItem},
		observe.ShardLost{Run: run, Shard: 7, Generation: 1, Reason: "holder_dead"},
		observe.ShardReleased{Claim: c},
		observe.ItemDone{Run: run, Shard: 7, Item: 1800, ID: "a-1"},
		observe.ItemDone{Run: run, Shard: 7, Item: 1801, ID: "a-2", Class: fault.TooLong},
		observe.ItemDone{Run: run, Shard: 7, Item: 1802, ID: "a-3", Class: fault.Poison},
		observe.WorkerRegistered{Worker: c.Worker, Pool: "default", MaxInFlight: 64},
		observe.WorkerHeartbeat{
			Worker: c.Worker, Pool: "default", State: "ready", Shards: 2, Busy: 63, MaxInFlight: 64,
			Late: 20 * time.Millisecond,
		},
		observe.WorkerDraining{Worker: c.Worker, Reason: "signal terminated", Shards: 2},
		observe.WorkerDeregistered{Worker: c.Worker},
		observe.WorkerFenced{Worker: c.Worker, Reason: "could not renew its heartbeat"},
		observe.WorkerFailed{
			Worker: c.Worker, DueAt: time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("CET", 3600)),
			Overdue: 5 * time.Second, Shards: 2,
		},
		observe.EngineStarted{Server: "http://127.0.0.1:8000/v1", Model: "m/7B"},
		observe.EngineDied{Server: "http://127.0.0.1:8000/v1", Start: "1764290000"},
	}
}

type fixedClock struct{}

func (fixedClock) Now() time.Time {
	return time.Date(2026, 3, 1, 13, 0, 0, 5e8, time.FixedZone("CET", 3600))
}

// The fields of each event and their order are a contract: dashboards read them.
func TestEventLinesMatchGoldenFile(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := observe.NewEmitter(&out, fixedClock{}, slog.New(slog.DiscardHandler))
	for _, ev := range allEvents() {
		e.Emit(t.Context(), ev)
	}
	const golden = "testdata/events.jsonl"
	if *rewrite {
		if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the lines differ; run with -rewrite and compare:\n%s", &out)
	}
}

func TestEveryEventNameHasAnEvent(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, e := range allEvents() {
		known[e.EventName()] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../../events/observe.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			name, _ := strconv.Unquote(lit.Value)
			names++
			if !known[name] {
				t.Errorf("no event has the name %q", name)
			}
		}
		return true
	})
	if names != len(known) {
		t.Errorf("%d names for %d events, want equal numbers", names, len(known))
	}
}

func TestNoEventFieldLooksSecret(t *testing.T) {
	t.Parallel()
	for _, e := range allEvents() {
		for _, a := range e.Attrs() {
			if observe.LooksSecret(a.Key) {
				t.Errorf("%s: the field %s would be redacted", e.EventName(), a.Key)
			}
		}
	}
}

// flushed is a buffered writer. seen has the flushed bytes.
type flushed struct {
	pending, seen bytes.Buffer
	short         int // the number of bytes that a write passes on before it fails with err
	err           error
}

func (f *flushed) Write(p []byte) (int, error) {
	if f.err != nil {
		f.seen.Write(p[:f.short])
		return f.short, f.err
	}
	return f.pending.Write(p)
}

func (f *flushed) Flush() error {
	_, err := f.pending.WriteTo(&f.seen)
	return err
}

func TestEmitFlushesEachEvent(t *testing.T) {
	t.Parallel()
	var w flushed
	e := observe.NewEmitter(&w, fixedClock{}, slog.New(slog.DiscardHandler))
	e.Emit(t.Context(), observe.RunPlanned{Run: run, Shards: 1, Items: 3})
	want := `{"time":"2026-03-01T12:00:00.5Z","event":"run_planned","run":"` + run + `","shards":1,"items":3}` + "\n"
	if got := w.seen.String(); got != want {
		t.Errorf("a reader sees\n%s, want\n%s", got, want)
	}
	if err := e.Err(); err != nil {
		t.Error(err)
	}
}

// A full disk loses events only while it is full.
func TestEmitterRecoversAfterFailedWrites(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	full := errors.New("disk full")
	w := flushed{err: full, short: 9}
	e := observe.NewEmitter(&w, fixedClock{}, observe.NewLogger(&log, observe.JSON, slog.LevelInfo))
	for range 3 {
		e.Emit(t.Context(), observe.WorkerDeregistered{Worker: "a"})
		w.short = 0
	}
	w.err = nil
	e.Emit(t.Context(), observe.WorkerDeregistered{Worker: "b"})
	lines := strings.Split(strings.TrimSpace(w.seen.String()), "\n")
	if len(lines) != 2 || lines[0] != `{"time":"` || !strings.HasSuffix(lines[1], `"worker":"b"}`) {
		t.Errorf("a reader sees %q", lines)
	}
	if err := e.Err(); !errors.Is(err, full) || !strings.Contains(err.Error(), "worker_deregistered") {
		t.Errorf("Err() = %v, want the first failure with its event", err)
	}
	got := log.String()
	if strings.Count(got, "\n") != 2 || !strings.Contains(got, "cannot write events") ||
		!strings.Contains(got, `"lost":3`) {
		t.Errorf("the log has\n%s\nwant one warning each when writing fails and works again", got)
	}
}

func TestNilEmitterDoesNothing(t *testing.T) {
	t.Parallel()
	var e *observe.Emitter
	e.Emit(t.Context(), observe.WorkerDeregistered{Worker: "a"})
	if err := e.Err(); err != nil {
		t.Error(err)
	}
}

func TestRecordWithoutReceiversAllocatesNothing(t *testing.T) {
	var e observe.Event = observe.ShardClaimed{}
	log, ctx := slog.New(slog.DiscardHandler), t.Context()
	if n := testing.AllocsPerRun(100, func() { observe.Observer{}.Record(ctx, log, e) }); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
