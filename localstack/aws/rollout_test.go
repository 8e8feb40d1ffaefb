package emulators

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// rolloutToml is the config of a rollout in three batches of 20 tickets, with four answers
// each.
const rolloutToml = `schema_version = 1
kind = "rollout"
[[mission]]
name = "m"
entries = ["Be right."]
[[decode]]
temperature = 0.8
samples = 3
[[decode]]
temperature = 0.0
[answer]
pattern = "#([0-9a-c])"
[runner]
rollout_batch_size = 20
parallelism = 7
`

// A rollout over S3, DynamoDB and SQS, over a network that throttles and loses replies, with
// a worker that crashes in its middle, has byte for byte the files of one over stores in
// memory.
func TestRolloutOverTheDriversHasTheBytesOfOneInMemory(t *testing.T) {
	t.Parallel()
	var tickets strings.Builder
	for n := range 50 {
		fmt.Fprintf(&tickets, `{"group_id":"Fall %d ✓","content":"Wörter & \"quotes\" %d","label":"%x"}`+"\n", n, n, n%13)
	}
	tickets.WriteString("no ticket\n")
	local, cloud := localAndCloud(t)
	want, id := local.completeRun(t, rolloutToml, tickets.String(), false)
	files := local.rolloutFiles(t, id)
	if n := strings.Count(want[0], "\n"); n != 200 || strings.Count(files[rollout.SelectionsFile], "\n") != 50 ||
		strings.Count(files[rollout.TrajectoriesFile]+files[rollout.FailuresFile], "\n") != 201 {
		t.Fatalf("an undisturbed run has %d answers, and the files %v", n, files)
	}
	got, id := cloud.completeRun(t, rolloutToml, tickets.String(), true)
	for n := range want {
		if got[n] != want[n] {
			t.Errorf("file %d differs: %d and %d bytes", n, len(got[n]), len(want[n]))
		}
	}
	for name, text := range cloud.rolloutFiles(t, id) {
		if text != files[name] {
			t.Errorf("%s differs: %d and %d bytes", name, len(text), len(files[name]))
		}
	}
}

// rolloutFiles returns the files of an ended rollout that depend on its answers alone.
func (s stores) rolloutFiles(t *testing.T, id identity.RunID) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{rollout.TrajectoriesFile, rollout.FailuresFile, rollout.SelectionsFile,
		rollout.ReviewFile, rollout.MetricsFile} {
		r, _, err := s.blobs.Get(t.Context(), record.OutputKey(id, name), blob.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		_ = r.Close() // read only: nothing can be lost
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}
