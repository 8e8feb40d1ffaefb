package scenarios

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/localstack/clerk"
	"rollout/localstack/fakellm"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// repository is the root of the repository, from the e2e folder of a cloud.
const repository = "../../.."

// A rollout of examples/refunds, shortened to an epoch of 240 tickets, reflects and accepts
// guidance. All its files are those of `rollout up`, times and who answered apart. A model
// takes some time, as a plan grows with each batch, and is a document.
func rolloutLearns(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{Latency: 20 * time.Millisecond, Script: clerk.Answer}, Settings{Machines: 2})
	const key = "prompts/refunds.jsonl"
	config, tickets := Refunds(t, 240)
	l := NewLaptop(t, c.Program, d.engine(), SmallShards)
	want := l.Files(l.Complete(key, tickets, config))
	d.Upload("prompts/refunds.toml", config)
	id := d.Put(key, tickets)
	Eventually(t, "the rollout ends", func() bool { return d.HasEnded(id) })
	WantFiles(t, d.Stores().Ports.Blobs, id, want)
	if !strings.Contains(want[rollout.ReflectionFile], `"result":"accepted"`) {
		t.Errorf("no guidance was accepted: %s", want[rollout.ReflectionFile])
	}
	d.Check()
}

// WantFiles checks that a run has the files of another one, by name. Times, and who answered,
// may differ.
func WantFiles(t *testing.T, blobs blob.Store, id identity.RunID, want map[string]string) {
	t.Helper()
	found, err := blobs.List(t.Context(), record.OutputKey(id, ""), "", blob.MaxList)
	if err != nil || len(found) != len(want) {
		t.Errorf("the run has %d files, want %d: %v", len(found), len(want), err)
	}
	for name, text := range want {
		if name == record.SummaryFile || name == rollout.AttemptsFile {
			continue
		}
		got, ok := find(t, blobs, record.OutputKey(id, name))
		if !ok {
			t.Errorf("the run has no %s", name)
		}
		WantSameLines(t, name, WithoutTimes(got), text)
	}
}

// Refunds returns the config of examples/refunds with short epochs, and its first tickets.
func Refunds(t *testing.T, tickets int) (config, lines string) {
	t.Helper()
	config = read(t, filepath.Join(repository, "examples", "refunds.toml"))
	for _, short := range [][2]string{{"epochs = 3", "epochs = 1"},
		{"\nrollout_batch_size = 60", "\nrollout_batch_size = 70"}, {"\nbatch_size = 16", "\nbatch_size = 32"}} {
		if strings.Count(config, short[0]) != 1 {
			t.Fatalf("examples/refunds.toml has no line %q", short[0])
		}
		config = strings.Replace(config, short[0], short[1], 1)
	}
	all := strings.SplitAfter(read(t, filepath.Join(repository, "examples", "refunds.jsonl")), "\n")
	return config, strings.Join(all[:tickets], "")
}
