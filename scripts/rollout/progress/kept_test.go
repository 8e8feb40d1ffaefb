package progress

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/status"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

func TestKeptNamesWhatStaysOfAnEndedRun(t *testing.T) {
	t.Parallel()
	const id = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	work := record.ShardObjectKey(id, 0, 1, "x")
	p := hosttest.New()
	for key, size := range map[string]int{
		record.OutputKey(id, record.CompletionsFile): 2048, record.OutputKey(id, record.SummaryFile): 1024,
		record.FileEntriesKey(id): 24, record.ShardTableKey(id, 0): 1000, work: 4096,
		record.UnpackedKey(id, 0): 512, "prompts/x.jsonl": 5120,
	} {
		hosttest.Put(t, p, key, strings.Repeat("x", size))
	}
	s := status.Status{Run: id, Inputs: []string{"prompts/x.jsonl", "/home/me/y.jsonl"}}
	const kept = "  kept        3.0 KiB of answers, 1.0 KiB of index for show and retry, 5.0 KiB of input in prompts/, " +
		"512 B of copies of the input"
	for _, c := range []struct {
		all   bool
		roles []status.Role
		want  string
	}{
		{true, nil, kept + ", 4.0 KiB of work files (storage.keep_work)\n"},
		{false, make([]status.Role, 2), kept + ", 4.0 KiB of what judges and reflections answered\n"},
		{false, nil, kept + ", 4.0 KiB of work files that are still to be freed\n"},
		{false, nil, kept + "; the other work files are freed\n"},
	} {
		s.Roles = c.roles
		if strings.HasSuffix(c.want, "freed\n") && !strings.Contains(c.want, "still") {
			if err := p.Blobs.Delete(t.Context(), work, ""); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		if err := WriteKept(t.Context(), &out, s, p, c.all); err != nil || out.String() != c.want {
			t.Errorf("%v: %q, want %q", err, out.String(), c.want)
		}
	}
}

// With keep_work = "all" nothing is freed that its line would wait for.
func TestKeptDoesNotWaitWhereAllIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
		p := hosttest.New()
		hosttest.Save(t, p, record.OpenRunKey(id), record.OpenRun{Schema: 1, Run: id})
		for all, want := range map[bool]time.Duration{true: 0, false: keptLooks * keptWait} {
			began := time.Now()
			if err := WriteKept(t.Context(), io.Discard, status.Status{Run: id}, p, all); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != want {
				t.Errorf("all is kept: %t: waited %s, want %s", all, waited, want)
			}
		}
	})
}
