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

// keep runs a worker whose life is the script, until its code is final.
func keep(t *testing.T, script string, edit func(*Worker)) (code int, lives []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lives")
	w := Worker{Command: []string{"/bin/sh", "-c", script, file}, Env: []string{"CUDA_VISIBLE_DEVICES=3"}, Log: slog.New(slog.DiscardHandler)}
	edit(&w)
	code = w.Run(t.Context(), make(chan struct{}))
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return code, strings.Split(strings.TrimSpace(string(b)), "\n")
}

func TestAFinalCodeEndsIt(t *testing.T) {
	t.Parallel()
	const thirdTimeLucky = `echo "$CUDA_VISIBLE_DEVICES $*" >>"$0"; [ "$(wc -l <"$0")" -lt 3 ] || exit 10; kill -9 $$`
	code, lives := keep(t, thirdTimeLucky, func(w *Worker) { w.FinalCodes = []int{10} })
	if want := fmt.Sprintf("3 --parent %d", os.Getpid()); code != 10 || len(lives) != 3 || lives[0] != want {
		t.Errorf("code %d after the lives %q, want 10 after three of %q", code, lives, want)
	}
}

func TestItIsNotKeptForEverIfItOnlyDies(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]int{`echo x >>"$0"; exit 7`: 7, `echo x >>"$0"; kill -9 $$`: -1} {
		code, lives := keep(t, script, func(w *Worker) { w.MaxFailing = 200 * time.Millisecond })
		if code != want || len(lives) < 2 {
			t.Errorf("%s: code %d after %d lives, want %d after some", script, code, len(lives), want)
		}
	}
}
