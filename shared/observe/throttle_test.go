package observe_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

// throttled runs f with a logger and a fake clock, and returns the written lines.
func throttled(t *testing.T, f func(log *slog.Logger)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var b bytes.Buffer
		f(observe.NewLogger(&b, observe.Text, slog.LevelInfo))
		lines = strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	})
	return lines
}

func TestPersistentProblemIsLoggedWithGrowingGaps(t *testing.T) {
	t.Parallel()
	full := fault.New(fault.Exhausted, "the disk is full")
	lines := throttled(t, func(log *slog.Logger) {
		for range 4 * 60 { // a minute
			log.Warn("scan failed", "error", full)
			<-time.After(250 * time.Millisecond)
		}
		<-time.After(time.Hour)
		log.Warn("scan failed", "error", full)
	})
	if len(lines) != 4 {
		t.Fatalf("%d lines, want lines at 0, 10 and 30 s, and when the problem recurs:\n%s",
			len(lines), strings.Join(lines, "\n"))
	}
	for i, want := range []string{"", "held=39", "held=79", "held=119"} {
		if !strings.Contains(lines[i], "the disk is full") || !strings.Contains(lines[i], want) ||
			want == "" && strings.Contains(lines[i], "held") {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
}

func TestDifferentProblemsAreNotThrottled(t *testing.T) {
	t.Parallel()
	full, gone := fault.New(fault.Exhausted, "full"), fault.New(fault.Unavailable, "gone")
	lines := throttled(t, func(log *slog.Logger) {
		log.Warn("scan failed", "error", full)
		log.Warn("scan failed", "error", gone)                         // another kind
		log.Warn("heartbeat failed", "error", full)                    // another message
		log.Warn("can't be finalized", "run", "A", "error", full)      // another run
		log.With("run", "B").Warn("can't be finalized", "error", full) // and another
		log.With("worker", "1").Warn("fenced", "error", fault.New(fault.Fenced, "lost"))
		log.With("worker", "2").Warn("fenced", "error", fault.New(fault.Fenced, "lost"))
		log.Warn("no error")
		log.Warn("no error")
		log.Info("state", "error", full)
		log.Info("state", "error", full)
	})
	if len(lines) != 11 {
		t.Errorf("%d lines, want 11:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}

func TestDerivedLoggersShareThrottle(t *testing.T) {
	t.Parallel()
	full := fault.New(fault.Exhausted, "full")
	lines := throttled(t, func(log *slog.Logger) {
		log.With("worker", "1").Warn("heartbeat failed", "error", full)
		log.With("worker", "2").WithGroup("g").Warn("heartbeat failed", "error", full) // a derived logger of the same process
	})
	if len(lines) != 1 {
		t.Errorf("%d lines, want 1:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
