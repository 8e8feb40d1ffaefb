package finalize_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// newTrainingFixture returns stores with a training that has committed the row, or
// that was stopped if row is nil.
func newTrainingFixture(t *testing.T, row *record.Trained) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.Manifest(1)
	s := config.DefaultSFT()
	s.BaseModel.URI = config.ModelTiny
	m.Kind, m.Name, m.Config.Algorithm = config.KindTrain, "lesson", &config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}
	inputtest.Plan(t, d.Ports, m, `{"id":"lesson","prompt":"train sft"}`+"\n")
	st := run.New(id)
	st.Phase, st.Reason, st.Complete = run.Finalizing, run.ReasonDone, true
	st.Shards, st.Items, st.NextShard, st.FrozenFrontier = 1, 1, 1, 1
	st.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 1})
	if row == nil {
		st.Reason = run.ReasonStopped
		doc := shard.New(id, 0)
		doc.Snapshot = &shard.Snapshot{ID: "5a", Step: 7, Steps: 10}
		doc, err := doc.Seal(fault.CanceledItem, 1)
		if err != nil {
			t.Fatal(err)
		}
		d.doc(doc)
	} else {
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		d.commit(0, []result.Row{{Item: 0, Bytes: append(b, '\n')}})
	}
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), st)
	return d
}

// trained returns what the summary says about the training.
func (d fixture) trained() *record.Trained {
	d.t.Helper()
	var s record.Summary
	if err := json.Unmarshal([]byte(d.file(record.SummaryFile)), &s); err != nil {
		d.t.Fatal(err)
	}
	return s.Training
}

func trainedFile(name, content string) record.TrainedFile {
	return record.TrainedFile{Name: name, Content: identity.TextContent(content).String(), Length: int64(len(content))}
}

func TestFilesOfATrainingArePublished(t *testing.T) {
	t.Parallel()
	f := trainedFile(record.ModelFile, "weights")
	d := newTrainingFixture(t, &record.Trained{ID: "lesson", Algorithm: "sft", Steps: 10, Snapshot: "5a",
		Files: []record.TrainedFile{f}})
	hosttest.Put(t, d.Ports, record.TrainingFileKey(id, f.Content), "weights")
	for range 2 { // the second call finds everything done
		if err := d.finalize(); err != nil {
			t.Fatal(err)
		}
	}
	if got := hosttest.Object(t, d.Ports, record.OutputKey(id, record.ModelFile)); got != "weights" {
		t.Errorf("the model is %q", got)
	}
	if s := d.trained(); s == nil || s.Snapshot != "5a" || s.Steps != 10 {
		t.Errorf("the summary has %+v", s)
	}
}

func TestSummaryOfStoppedTrainingNamesItsLastSnapshot(t *testing.T) {
	t.Parallel()
	d := newTrainingFixture(t, nil)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	if s := d.trained(); s == nil || s.Snapshot != "5a" || s.Steps != 7 || s.Algorithm != "sft" || len(s.Files) != 0 {
		t.Errorf("the summary has %+v", s)
	}
	errs := d.file(record.ErrorsFile)
	if !strings.Contains(errs, `"id":"lesson"`) || !strings.Contains(errs, "canceled") {
		t.Errorf("errors: %s", errs)
	}
}

// The row of a training comes from a worker, and is checked before its names
// become keys.
func TestHostileRowOfATrainingIsCorrupt(t *testing.T) {
	t.Parallel()
	good := trainedFile(record.ModelFile, "weights")
	for why, c := range map[string]struct {
		files []record.TrainedFile
		want  string
	}{
		"path":         {[]record.TrainedFile{trainedFile("../other/summary.json", "weights")}, "names the file"},
		"another name": {[]record.TrainedFile{trainedFile(record.SummaryFile, "weights")}, "names the file"},
		"invalid content": {[]record.TrainedFile{{Name: record.ModelFile, Content: "../../prompts/x", Length: 7}},
			"names no content"},
		"wrong length":   {[]record.TrainedFile{{Name: good.Name, Content: good.Content, Length: 1 << 40}}, "has 7 bytes"},
		"too many files": {make([]record.TrainedFile, 17), "names 17 files"},
	} {
		d := newTrainingFixture(t, &record.Trained{ID: "lesson", Files: c.files})
		hosttest.Put(t, d.Ports, record.TrainingFileKey(id, good.Content), "weights")
		if err := d.finalize(); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", why, err, c.want)
		}
	}
}
