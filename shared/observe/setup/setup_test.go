package setup_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"rollout/shared/clock"
	"rollout/shared/observe"
	"rollout/shared/observe/setup"
)

// A process passes its options to the worker processes that it starts.
func TestArgsRoundTripThroughFlags(t *testing.T) {
	t.Parallel()
	for _, want := range []setup.Options{
		{}, {Events: true}, {EventsFile: "a b.jsonl"}, {Events: true, TraceFile: "t.jsonl"},
	} {
		var got setup.Options
		fs := pflag.NewFlagSet("worker", pflag.ContinueOnError)
		got.AddFlags(fs)
		if err := fs.Parse(want.Args()); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%v gives %+v, want %+v (%v)", want.Args(), got, want, err)
		}
	}
}

func TestSeveralProcessesAppendToEventsFile(t *testing.T) {
	t.Parallel()
	o := setup.Options{EventsFile: filepath.Join(t.TempDir(), "events.jsonl")}
	log := slog.New(slog.DiscardHandler)
	in := setup.Environment{
		Stdout: &bytes.Buffer{}, Clock: clock.System{}, Log: log, Getenv: func(string) string { return "" },
	}
	first, closeFirst, err := o.Open(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	second, closeSecond, err := o.Open(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	first.Record(t.Context(), log, observe.WorkerDeregistered{Worker: "a"})
	second.Record(t.Context(), log, observe.WorkerDeregistered{Worker: "b"})
	first.Record(t.Context(), log, observe.WorkerDeregistered{Worker: "c"})
	for _, end := range []func() error{closeFirst, closeSecond} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	b, err := os.ReadFile(o.EventsFile)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err != nil || len(lines) != 3 || !strings.Contains(lines[2], `"c"`) {
		t.Errorf("the file has %q, %v, want three lines in order", b, err)
	}
}
