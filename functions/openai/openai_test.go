package openai

import (
	"slices"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
)

const anyRun = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

func TestLaterFilesSortFirst(t *testing.T) {
	t.Parallel()
	var ids []string
	for _, ms := range []int64{0, 1, 999, 1_700_000_000_000, 1_700_000_000_001, 4_000_000_000_000} {
		id := newFileID(time.UnixMilli(ms))
		if !isUploadID(id) {
			t.Errorf("%s is not taken for the id of a file", id)
		}
		ids = append([]string{id}, ids...)
	}
	if !slices.IsSorted(ids) {
		t.Errorf("the ids of later files do not sort first: %q", ids)
	}
}

// Ids of files come from outside, and become parts of keys.
func TestHostileFileIDs(t *testing.T) {
	t.Parallel()
	good := newFileID(time.UnixMilli(1))
	for _, id := range []string{"", "file-", good[:len(good)-1], good + "0", good[:30] + "/",
		"file-../../../../../../../../xx", "file-" + good[5:30] + "l", "FILE-" + good[5:], good[5:], good[:30] + "\n"} {
		if isUploadID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
	for _, id := range []string{"file-" + anyRun, "file-" + anyRun + "-", "file-" + anyRun + "-summary", anyRun + "-input",
		"file-" + anyRun + "-input/..", "file-..-input"} {
		if _, _, ok := parseRunFileID(id); ok {
			t.Errorf("%q is accepted", id)
		}
	}
	if r, p, ok := parseRunFileID(runFileID(anyRun, partOutput)); !ok || r != anyRun || p != partOutput {
		t.Errorf("got %s, %s, %v", r, p, ok)
	}
	if _, err := parseBatchID("batch_../x"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a batch with a path: %v", err)
	}
}

func TestFilesArePagedInBothOrders(t *testing.T) {
	t.Parallel()
	all := []string{"file-a", "file-b", "file-c", "file-d", "file-e"} // the newest first
	for _, c := range []struct {
		after  string
		oldest bool
		limit  int
		want   []string
		more   bool
	}{
		{"", false, 2, []string{"file-a", "file-b"}, true},
		{"file-b", false, 2, []string{"file-c", "file-d"}, true},
		{"file-d", false, 2, []string{"file-e"}, false},
		{"file-bb", false, 9, []string{"file-c", "file-d", "file-e"}, false}, // a file that is deleted since
		{"", true, 2, []string{"file-e", "file-d"}, true},
		{"file-d", true, 2, []string{"file-c", "file-b"}, true},
		{"file-b", true, 2, []string{"file-a"}, false},
		{"file-bb", true, 9, []string{"file-b", "file-a"}, false},
		{"", true, 1, []string{"file-e"}, true},
		{"", false, 5, all, false},
		{"file-e", false, 5, nil, false},
	} {
		p := filePage{limit: c.limit, after: c.after, oldest: c.oldest}
		for _, id := range all {
			if !p.add(FileObject{ID: id}) {
				break
			}
		}
		p.end()
		var got []string
		for _, f := range p.files {
			got = append(got, f.ID)
		}
		if !slices.Equal(got, c.want) || p.more != c.more {
			t.Errorf("%d after %q, the oldest first %v: %q, more %v, want %q, %v", c.limit, c.after, c.oldest, got, p.more,
				c.want, c.more)
		}
	}
}

func TestCompletionWindows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"24h": 24 * time.Hour, "90m": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour, "1s": time.Second, "90d": maxWindow} {
		if got, err := parseWindow(text); err != nil || got != want {
			t.Errorf("%q is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "24", "-1h", "0s", "91d", "1000d", "99999999d", "1e9h", "tomorrow", "1ms"} {
		if got, err := parseWindow(text); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q is accepted as %s: %v", text, got, err)
		}
	}
}

// The status of a batch follows from the phase of its run and what a user asked for.
func TestStatusOfABatch(t *testing.T) {
	t.Parallel()
	stop := record.Control{Desired: record.DesiredEnd, Reason: string(run.ReasonStopped)}
	expire := record.Control{Desired: record.DesiredEnd, Reason: string(run.ReasonExpired)}
	for _, c := range []struct {
		phase   run.Phase
		control record.Control
		want    string
	}{
		{run.Planning, record.Control{}, "validating"},
		{run.Running, record.Control{}, "in_progress"},
		{run.Paused, record.Control{Desired: record.DesiredPause}, "in_progress"},
		{run.Interrupted, record.Control{}, "in_progress"},
		{run.Running, stop, "cancelling"},
		{run.Planning, stop, "cancelling"},
		{run.Ending, stop, "cancelling"},
		{run.Finalizing, stop, "cancelling"},
		{run.Ending, expire, "finalizing"},
		{run.Finalizing, record.Control{}, "finalizing"},
		{run.Completed, stop, "completed"}, // the end was faster
		{run.CompletedWithErrors, record.Control{}, "completed"},
		{run.Stopped, stop, "cancelled"},
		{run.Expired, expire, "expired"},
		{run.OverBudget, record.Control{}, "failed"},
		{run.Failed, record.Control{}, "failed"},
	} {
		v := view{id: anyRun, made: true, run: status.Status{Phase: c.phase}, control: c.control}
		if got := v.batch().Status; got != c.want {
			t.Errorf("a run that is %s, with %q asked for, is %s as a batch, want %s", c.phase, c.control.Desired, got, c.want)
		}
	}
	if got := (view{id: anyRun, asked: record.Batch{Run: anyRun}}).batch().Status; got != "validating" {
		t.Errorf("a batch without a run is %s", got)
	}
}
