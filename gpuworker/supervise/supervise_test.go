package supervise

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs a worker whose process is the shell script, until its code is final. The
// script appends a line to its file $0 at each start; run returns these lines.
func run(t *testing.T, script string, edit func(*Worker)) (code int, starts []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "starts")
	w := Worker{Command: []string{"/bin/sh", "-c", script, file}, Env: []string{"CUDA_VISIBLE_DEVICES=3"},
		Log: slog.New(slog.DiscardHandler)}
	edit(&w)
	code = w.Run(t.Context(), make(chan struct{}))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return code, strings.Split(strings.TrimSpace(string(b)), "\n")
}

func TestRunEndsWithFinalCode(t *testing.T) {
	t.Parallel()
	const killedTwice = `echo "$CUDA_VISIBLE_DEVICES $*" >>"$0"; [ "$(wc -l <"$0")" -lt 3 ] || exit 10; kill -9 $$`
	code, starts := run(t, killedTwice, func(w *Worker) { w.FinalCodes = []int{10} })
	if want := fmt.Sprintf("3 --parent %d", os.Getpid()); code != 10 || len(starts) != 3 || starts[0] != want {
		t.Errorf("code %d after the starts %q, want 10 after three of %q", code, starts, want)
	}
}

func TestRunEndsAfterMaxFailing(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{`echo x >>"$0"; exit 7`: 7, `echo x >>"$0"; kill -9 $$`: -1} {
		code, starts := run(t, script, func(w *Worker) { w.MaxFailing = 200 * time.Millisecond })
		if code != want || len(starts) < 2 {
			t.Errorf("%s: code %d after %d starts, want %d after at least 2", script, code, len(starts), want)
		}
	}
}

func TestOutputGoesWhereTheCallerSays(t *testing.T) {
	t.Parallel()
	var stdout, stderr strings.Builder
	code, _ := run(t, `echo x >>"$0"; echo an event; echo a log line >&2; exit 2`,
		func(w *Worker) { w.Stdout, w.Stderr = &stdout, &stderr })
	if code != ExitUsage || stdout.String() != "an event\n" || stderr.String() != "a log line\n" {
		t.Errorf("code %d, %q and %q", code, &stdout, &stderr)
	}
}

func TestAChildThatKeepsTheOutputOpenDoesNotHideTheCode(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	code, starts := run(t, `echo x >>"$0"; sleep 5 >/dev/null & exit 0`,
		func(w *Worker) { w.Stderr, w.FinalCodes = &stderr, []int{0} })
	if code != 0 || len(starts) != 1 {
		t.Errorf("code %d after %d starts", code, len(starts))
	}
}
