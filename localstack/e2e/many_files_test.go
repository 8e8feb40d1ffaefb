package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"rollout/functions/status"
)

// place matches the parts of an error row that name the file and line of its item.
var place = regexp.MustCompile(`"file":"[^"]*","line":\d+`)

// A run of 10,000 files, in several parts of a list, has the rows of a run whose one file has
// the same lines, though all processes are killed in the midst of it.
func TestRunOfTenThousandFilesHasTheRowsOfOneFile(t *testing.T) {
	t.Parallel()
	const files = 10_000
	row := func(n int) string {
		if n%100 == 99 {
			return fmt.Sprintf("[%d]\n", n)
		}
		return fmt.Sprintf("{\"id\":\"i-%05d\",\"prompt\":\"question %d\"}\n", n, n)
	}
	var all strings.Builder
	for n := range files {
		all.WriteString(row(n))
	}
	s := serve(t)
	whole := newBatch(t, all.String(), s.url, "")
	whole.infer().wantExit(1) // some of its lines are invalid
	want := readOutcome(t, whole.path("out"))

	many := newBatch(t, row(files-1), s.url, "") // its file comes behind those named by numbers
	for n := range files - 1 {
		write(t, many.path(fmt.Sprintf("in/%05d.jsonl", n)), row(n))
	}
	first := many.infer("--events")
	first.whileItWrites(func() bool { return completed(first) >= files/4 })
	first.killGroup()
	if n := completed(first); n >= files*99/100 {
		t.Fatalf("%d items were answered before the kill", n)
	}
	second := many.infer("--events")
	second.whileItWrites(second.ended)
	second.wantExit(1)
	got := readOutcome(t, many.path("out"))
	got.Errors, want.Errors = place.ReplaceAllString(got.Errors, ""), place.ReplaceAllString(want.Errors, "")
	wantSame(t, got, want)

	dir, id := many.path("out/.rollout"), many.runID()
	for _, ref := range []string{"04711.jsonl:1", "#4711", "i-04711"} {
		p := do(t, 0, "explain", "--dir", dir, id, ref)
		if out := p.stdoutText(); !strings.Contains(out, "in/04711.jsonl") {
			t.Errorf("explain %s says %s", ref, out)
		}
	}
	var run status.Status
	if err := json.Unmarshal([]byte(do(t, 0, "status", "--json", "--dir", dir, id).stdoutText()), &run); err != nil {
		t.Fatal(err)
	}
	if len(run.Inputs) == 0 || len(run.Inputs)+run.MoreInputs != files {
		t.Errorf("the status names %d inputs and counts %d more", len(run.Inputs), run.MoreInputs)
	}
}

// whileItWrites polls until ok returns true. It fails the test if the program has written
// nothing for the time of patience.
func (p *process) whileItWrites(ok func() bool) {
	p.t.Helper()
	size, last := int64(-1), time.Now()
	tick := time.NewTicker(20 * pollGap)
	defer tick.Stop()
	for !ok() {
		now := int64(0)
		for _, path := range []string{p.stdout, p.stderr} {
			if info, err := os.Stat(path); err == nil {
				now += info.Size()
			}
		}
		if now != size {
			size, last = now, time.Now()
		}
		if time.Since(last) > patience {
			p.t.Fatalf("%s has written nothing for %s", p.name, patience)
		}
		<-tick.C
	}
}
