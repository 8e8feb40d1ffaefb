package scenarios

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/localstack/fakellm"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// TrainingPool is the name of the pool of Settings.Trains.
const TrainingPool = "trainers"

const (
	trainingSteps = 10
	stoppedAt     = 5 // the step of the first snapshot
)

// TrainingConfig is the config of a training of ten steps with a snapshot after the fifth.
// The larger the number of minibatches of a step, the longer it takes.
func TrainingConfig(minibatches int) string {
	return fmt.Sprintf(`schema_version = 1
kind = "train"
[algorithm.sft]
base_model = "rollout/tiny"
minibatch_size = 1
gradient_accumulation = %d
[algorithm.sft.optimizer]
lr = 1e-3
[algorithm.sft.budget]
max_steps = %d
[snapshot]
every_steps = %d
keep_last = 2
`, minibatches, trainingSteps, stoppedAt)
}

// TrainingRows are the rows of the training.
const TrainingRows = `{"messages":[{"role":"user","content":"Who made the heaven?"},` +
	`{"role":"assistant","content":"In the beginning God created the heaven."}]}
{"prompt":"And the light ","completion":"was good."}
{"prompt":"And there was ","completion":"evening."}
`

// An upload starts a machine with processors alone, which trains. It is taken away without a
// word after the snapshot of step 5, and another one resumes from that: weights, curve and
// snapshot are those of ten uninterrupted steps on a laptop. Commands list, show, restore and
// prune the snapshots.
func trainingResumesOnAnotherMachine(t *testing.T, c Cloud) {
	d := deploy(t, c, fakellm.Config{}, Settings{Machines: 2, FromNone: true, Trains: true, Idle: 2 * time.Second})
	var id identity.RunID
	var want map[string]string
	for minibatches := 8; ; minibatches *= 4 { // a step that is over too soon can't be interrupted
		key := fmt.Sprintf("prompts/training-%d.jsonl", minibatches)
		config := TrainingConfig(minibatches)
		d.Upload(fmt.Sprintf("prompts/training-%d.toml", minibatches), config)
		id = d.Put(key, TrainingRows)
		if !d.interruptTraining(id) {
			Eventually(t, "the machines of the training end", func() bool { return len(d.Machines()) == 0 })
			continue
		}
		Eventually(t, "the training ends", func() bool { return d.HasEnded(id) })
		l := NewLaptop(t, c.Program, d.engine(), SmallShards)
		want = l.Files(l.Complete(key, TrainingRows, config))
		break
	}
	WantFiles(t, d.Stores().Ports.Blobs, id, want)
	var sum record.Summary
	if text, _ := d.Find(record.OutputKey(id, record.SummaryFile)); json.Unmarshal([]byte(text), &sum) != nil ||
		sum.Training == nil || sum.Training.Steps != trainingSteps {
		t.Fatalf("the summary is %+v, want %d steps", sum, trainingSteps)
	}
	if job := d.job(id); job.Attempt < 2 {
		t.Errorf("the training ended with attempt %d, want another one than the first", job.Attempt)
	}
	d.wantSnapshots(id, sum.Training.Snapshot, want[record.ModelFile])
	Eventually(t, "the machines end", func() bool { return len(d.Machines()) == 0 })
	d.Check()
}

// interruptTraining takes the machine of a training away after the first snapshot. It reports
// whether the training had not ended by then.
func (d *Fixture) interruptTraining(id identity.RunID) bool {
	d.t.Helper()
	Eventually(d.t, "the training has a snapshot", func() bool {
		var s status.Status
		if d.state(id).Phase == "" { // not planned yet: the API may not know it
			return false
		}
		d.get("/v1/runs/"+string(id), &s)
		return d.HasEnded(id) || s.Training != nil && s.Training.SnapshotStep >= stoppedAt
	})
	all := d.Machines()
	if len(all) == 0 || d.HasEnded(id) {
		d.t.Logf("the training ended before it was interrupted")
		return false
	}
	if len(all) > 1 {
		d.t.Errorf("%d machines for one training, want 1", len(all))
	}
	for _, m := range all {
		m.Preempt(0)
		Eventually(d.t, m.ID()+" is gone", m.Ended)
	}
	if d.job(id).State == shard.Done {
		d.t.Logf("the training ended before its machine was gone")
		return false
	}
	return true
}

// job returns the document of a training's only shard.
func (d *Fixture) job(id identity.RunID) (doc shard.Doc) {
	d.t.Helper()
	if _, _, err := host.Load(d.t.Context(), d.Stores().Ports.Docs, identity.ShardKey(id, 0), &doc); err != nil {
		d.t.Fatal(err)
	}
	return doc
}

// wantSnapshots checks that commands find the snapshots of a training that has ended, and
// restore the last one, which has the weights.
func (d *Fixture) wantSnapshots(id identity.RunID, last, weights string) {
	d.t.Helper()
	listed := func() (ids []string) {
		var all []snapshot.Snapshot
		out := d.Do("snapshot", "list", "--run", string(id), "--json")
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			d.t.Fatalf("snapshot list: %v: %s", err, out)
		}
		for _, s := range all {
			ids = append(ids, s.ID)
		}
		return ids
	}
	if got := listed(); len(got) != 2 || got[0] != last {
		d.t.Fatalf("the snapshots are %q, want 2, first %s", got, last)
	}
	var shown snapshot.Snapshot
	if out := d.Do("snapshot", "show", last[:12], "--json"); json.Unmarshal([]byte(out), &shown) != nil ||
		shown.ID != last || shown.Run != id {
		d.t.Errorf("snapshot show: %s", out)
	}
	d.Do("snapshot", "prune", "--run", string(id), "--keep-last", "1")
	if got := listed(); !slices.Equal(got, []string{last}) {
		d.t.Errorf("the snapshots are %q after a prune, want %s", got, last)
	}
	to := filepath.Join(d.t.TempDir(), "state")
	d.Do("snapshot", "restore", last, to)
	if got := read(d.t, filepath.Join(to, record.ModelFile)); got != weights {
		d.t.Errorf("the restored weights have %d bytes, and are not the %d of the run", len(got), len(weights))
	}
}
