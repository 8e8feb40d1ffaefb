package finalize_test

import (
	"encoding/json"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// newTrainingFixture is a world with a training that is over, with the row; without one it
// was stopped.
func newTrainingFixture(t *testing.T, row *record.Trained) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.Manifest(1)
	s := config.DefaultSFT()
	s.BaseModel.URI = config.ModelTiny
	m.Kind, m.Name, m.Config.Algorithm = config.KindTrain, "lesson", &config.Algorithm{Kind: config.AlgorithmSFT, SFT: s}
	inputtest.Plan(t, d.Ports, m, `{"id":"lesson","prompt":"train sft"}`+"\n")
	st := run.New(id)
	st.Phase, st.Reason, st.Shards, st.Items, st.Complete, st.NextShard, st.FrozenFrontier = run.Finalizing, run.ReasonDone, 1, 1, true, 1, 1
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

func (d fixture) endTraining() error {
	return finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), finalize.Options{}).Finalize(d.t.Context(), events.Finalize{Run: string(id)})
}

func (d fixture) trained() *record.Trained {
	d.t.Helper()
	var s record.Summary
	if err := json.Unmarshal([]byte(hosttest.Object(d.t, d.Ports, record.OutputKey(id, record.SummaryFile))), &s); err != nil {
		d.t.Fatal(err)
	}
	return s.Training
}

func trainedFile(name, content string) record.TrainedFile {
	return record.TrainedFile{Name: name, Content: identity.TextContent(content).String(), Length: int64(len(content))}
}

func TestATrainingsFilesAreGivenToUsers(t *testing.T) {
	t.Parallel()
	f := trainedFile(record.ModelFile, "weights")
	d := newTrainingFixture(t, &record.Trained{ID: "lesson", Algorithm: "sft", Steps: 10, Snapshot: "5a", Files: []record.TrainedFile{f}})
	hosttest.Put(t, d.Ports, record.TrainingFileKey(id, f.Content), "weights")
	for range 2 { // the second time there is nothing left to do
		if err := d.endTraining(); err != nil {
			t.Fatal(err)
		}
	}
	if got := hosttest.Object(t, d.Ports, record.OutputKey(id, record.ModelFile)); got != "weights" {
		t.Errorf("the model is %q", got)
	}
	if s := d.trained(); s == nil || s.Snapshot != "5a" || s.Steps != 10 {
		t.Errorf("the summary tells %+v", s)
	}
}

func TestAStoppedTrainingTellsItsLastSnapshot(t *testing.T) {
	t.Parallel()
	d := newTrainingFixture(t, nil)
	if err := d.endTraining(); err != nil {
		t.Fatal(err)
	}
	if s := d.trained(); s == nil || s.Snapshot != "5a" || s.Steps != 7 || s.Algorithm != "sft" || len(s.Files) != 0 {
		t.Errorf("the summary tells %+v", s)
	}
	if errs := hosttest.Object(t, d.Ports, record.OutputKey(id, record.ErrorsFile)); !strings.Contains(errs, `"id":"lesson"`) || !strings.Contains(errs, "canceled") {
		t.Errorf("errors: %s", errs)
	}
}

// Rows come from workers: what they name is no key before it is looked at.
func TestTheRowOfATrainingIsHostile(t *testing.T) {
	t.Parallel()
	good := trainedFile(record.ModelFile, "weights")
	for why, c := range map[string]struct {
		files []record.TrainedFile
		want  string
	}{
		"a path":         {[]record.TrainedFile{trainedFile("../other/summary.json", "weights")}, "names the file"},
		"another name":   {[]record.TrainedFile{trainedFile(record.SummaryFile, "weights")}, "names the file"},
		"no content":     {[]record.TrainedFile{{Name: record.ModelFile, Content: "../../prompts/x", Length: 7}}, "names no content"},
		"another length": {[]record.TrainedFile{{Name: good.Name, Content: good.Content, Length: 1 << 40}}, "has 7 bytes"},
		"many files":     {make([]record.TrainedFile, 17), "names 17 files"},
	} {
		d := newTrainingFixture(t, &record.Trained{ID: "lesson", Files: c.files})
		hosttest.Put(t, d.Ports, record.TrainingFileKey(id, good.Content), "weights")
		if err := d.endTraining(); !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", why, err, c.want)
		}
	}
}
