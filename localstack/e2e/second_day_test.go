package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// repeatedPrompts is a plain file whose lines have ids of three digits. A server that is
// broken for very sour questions fails one line in ten. Each question is asked by two
// lines.
func repeatedPrompts(items int) string {
	var b strings.Builder
	for n := range items {
		taste := "sweet"
		if n/2%10 == 7 {
			taste = "very sour"
		}
		fmt.Fprintf(&b, "{\"id\":\"%03d\",\"prompt\":\"a %s question, number %d\"}\n", n, taste, n/2)
	}
	return b.String()
}

// askOnce has equal requests asked once.
const askOnce = "\n[defaults.dedupe]\nenabled = true\nsampled = true\n"

// A server fails a tenth of a run's items. When it is mended a retry has the files of a run
// of the whole server, byte by byte but for times. Half of the failed items are copies of
// the others: both get the answer. The rows of the first run were followed meanwhile.
func TestRetryHasTheFilesOfAnUndisturbedRun(t *testing.T) {
	t.Parallel()
	const items = 200
	i := install(t, serve(t, "--latency", "20ms", "--error", "very sour").url, 2, patientHealth+smallShards+askOnce)
	file := promptsFile(t, repeatedPrompts(items))
	broken := i.submit(file)
	followed := filepath.Join(t.TempDir(), "followed.jsonl")
	eventually(t, "the run is there", func() bool { _, ok := i.show(broken); return ok })
	follower := launch(t, rollout, "results", "--dir", i.dir, string(broken), "--follow", "-o", followed)
	i.awaitEnd(broken)
	follower.wantExit(1) // items failed
	if read(t, followed) != read(t, i.bucket("runs/"+string(broken)+"/"+record.CompletionsFile)) {
		t.Error("the rows that were followed differ from those of the file")
	}
	parent := i.outcome(broken)
	if n := parent.Summary.FailedByClass["engine"]; n != items/10 {
		t.Fatalf("the broken server failed %d items, want %d: %v", n, items/10, parent.Summary.FailedByClass)
	}

	i.engine = serve(t).url
	i.up.killGroup()
	i.start()
	retried := do(t, 0, "retry", "--dir", i.dir, string(broken), "--class", "engine")
	child := identity.RunID(strings.TrimSpace(retried.stdoutText()))
	i.awaitEnd(child)
	fresh := i.submit(file)
	i.awaitEnd(fresh)
	wantSame(t, i.outcome(child), i.outcome(fresh))

	retry := i.outcome(child).Summary.Retry
	if retry == nil || retry.Run != broken || retry.Asked != items/10 || retry.Answered != items/10 ||
		retry.Kept != items-items/10 || retry.ParentFailed != items/10 || retry.StillFailed != 0 {
		t.Errorf("the summary says that the rows come from %+v", retry)
	}
	i.wantAgreement(child, fresh, items)
	i.wantShown(child, "014", "a very sour question, number 7")
}

// wantAgreement checks that `rollout compare` finds the same answers in both runs.
func (i *testInstallation) wantAgreement(a, b identity.RunID, items uint64) {
	i.t.Helper()
	var totals struct {
		MatchedBy   string `json:"matched_by"`
		Items, Same uint64
		Differ      uint64
	}
	out := do(i.t, 0, "compare", "--dir", i.dir, "--json", string(a), string(b)).stdoutText()
	if err := json.Unmarshal([]byte(out), &totals); err != nil || totals.Items != items || totals.Same != items {
		i.t.Errorf("compare says %s, %v", out, err)
	}
	if out := do(i.t, 0, "compare", "--dir", i.dir, "--format", "jsonl", string(a), string(b)).stdoutText(); out != "" {
		i.t.Errorf("compare has the differing items\n%s", out)
	}
}

// wantShown checks that `rollout show` has the request and the answer of an item.
func (i *testInstallation) wantShown(id identity.RunID, item, prompt string) {
	i.t.Helper()
	out := do(i.t, 0, "show", "--dir", i.dir, "--json", string(id), item).stdoutText()
	var shown struct {
		Request struct {
			Body struct{ Prompt string }
		}
		Answers []struct{ Text string }
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil || shown.Request.Body.Prompt != prompt ||
		len(shown.Answers) != 1 || shown.Answers[0].Text == "" {
		i.t.Errorf("show says %s, %v", out, err)
	}
}

// Rows of a paused run are there, in order, whoever reads them; those of a run without any
// are none.
func TestPartialResultsOfAPausedRunAreItsFirstRows(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t, "--latency", "100ms").url, 1, patientHealth+smallShards)
	id := i.submit(promptsFile(t, repeatedPrompts(200)))
	eventually(t, "some rows are committed", func() bool { s, _ := i.show(id); return s.Items.Done >= 40 })
	i.control("pause", id)
	i.await(id, "paused", "interrupted")
	partial := do(t, 0, "results", "--dir", i.dir, "--partial", string(id)).stdoutText()
	n := strings.Count(partial, "\n")
	if n < 8 || n >= 200 {
		t.Errorf("%d rows", n)
	}
	i.control("resume", id)
	i.awaitEnd(id)
	whole, err := os.ReadFile(i.bucket("runs/" + string(id) + "/" + record.CompletionsFile))
	if err != nil || !strings.HasPrefix(string(whole), partial) {
		t.Errorf("the rows of the paused run are not the first ones of its file: %v", err)
	}
}
