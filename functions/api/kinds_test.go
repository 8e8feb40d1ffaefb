package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"rollout/functions/status/statustest"
	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
	"rollout/shared/rollout"
	"rollout/shared/secret"
	"rollout/shared/snapshot"
)

// ofKind saves a run of that kind in a phase.
func (d fixture) ofKind(id identity.RunID, kind string, p run.Phase, missions ...string) {
	d.t.Helper()
	m := statustest.Manifest(id)
	m.Kind = kind
	for _, name := range missions {
		m.Config.Missions = append(m.Config.Missions, config.Mission{Name: name})
	}
	d.save(record.ManifestKey(id), m)
	st := run.New(id)
	st.Phase = p
	d.save(record.CoordinatorKey(id), st)
}

func (d fixture) put(key string, content []byte) {
	d.t.Helper()
	if _, err := d.ports.Blobs.Put(d.t.Context(), key, strings.NewReader(string(content)), putOptions); err != nil {
		d.t.Fatal(err)
	}
}

// stage saves a stage of a rollout, as the last that is planned.
func (d fixture) stage(id identity.RunID, s rollout.Stage) {
	d.t.Helper()
	s.Schema = record.Schema
	d.put(fmt.Sprintf("work/%s/rollout/stage/%06d.json", id, s.Input), record.Encode(s))
	d.save(record.PlanKey(id), record.Plan{Schema: record.Schema, Appended: &record.Appended{Input: s.Input}})
}

// step saves a step of the guidance of mission "refunds", with an entry.
func (d fixture) step(id identity.RunID, step int, text string) {
	d.t.Helper()
	g, err := guidance.New("refunds", "Decide.", []string{text})
	if err != nil {
		d.t.Fatal(err)
	}
	if step > 0 {
		g.Step, g.From = step, g.ContentID().String()
	}
	d.put(fmt.Sprintf("work/%s/rollout/guidance/refunds/%06d.json", id, step), g.Encode())
}

func TestRolloutShowsItsBatchesAndGuidance(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.ofKind(runA, config.KindRollout, run.Running, "refunds")
	h := d.Handler(secret.Value{}, d.probes())
	path := "/v1/runs/" + string(runA) + "/rollout"
	if w := get(t, h, path, nil); w.Body.String() != `{"steps":[],"guidance":[]}`+"\n" {
		t.Errorf("before the first batch: %d %s", w.Code, w.Body)
	}
	d.step(runA, 0, "Be kind.")
	d.step(runA, 1, "Be brief.")
	d.stage(runA, rollout.Stage{Input: 1, Kind: rollout.Answering, Guidance: map[string]int{"refunds": 0}})
	d.stage(runA, rollout.Stage{Input: 2, Kind: rollout.Answering, Batch: 1, Guidance: map[string]int{"refunds": 1},
		Totals: rollout.Totals{Scored: 4, Score: 3}, Steps: map[string][]rollout.StepSum{"refunds": {{Scored: 4, Score: 3}}}})
	d.stage(runA, rollout.Stage{Input: 3, Kind: rollout.Answering, Batch: 2, Guidance: map[string]int{"refunds": 1},
		Totals: rollout.Totals{Scored: 8, Score: 5},
		Steps:  map[string][]rollout.StepSum{"refunds": {{Scored: 4, Score: 3}, {Scored: 4, Score: 2}}}})
	want := `{"steps":[{"step":1,"mean":0.75,"best":0.75,"guidance_changed":false},` +
		`{"step":2,"mean":0.5,"best":0.75,"guidance_changed":true}],"guidance":[` +
		`{"revision":0,"mission":"refunds","at":"2026-03-01T12:00:00Z","text":"Decide.\n\n1. Be kind.","mean":0.75},` +
		`{"revision":1,"mission":"refunds","at":"2026-03-01T12:00:00Z","text":"Decide.\n\n1. Be brief.","mean":0.5}]}` + "\n"
	if w := get(t, h, path, nil); w.Body.String() != want {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
}

// Long guidance loses its oldest steps, and the ends of its texts.
func TestLongGuidanceIsBounded(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.ofKind(runA, config.KindRollout, run.Running, "refunds")
	const steps = 40
	for n := range steps {
		d.step(runA, n, strings.Repeat(fmt.Sprint("Rule <", n, ">. "), 4_000))
	}
	d.stage(runA, rollout.Stage{Input: 1, Kind: rollout.Answering, Guidance: map[string]int{"refunds": steps - 1}})
	var got struct {
		Guidance []struct {
			Revision  int
			Text      string
			Shortened bool
		}
	}
	get(t, d.Handler(secret.Value{}, d.probes()), "/v1/runs/"+string(runA)+"/rollout", &got)
	n := len(got.Guidance)
	if n < 2 || n >= steps || got.Guidance[n-1].Revision != steps-1 || got.Guidance[0].Revision != steps-n {
		t.Fatalf("%d revisions are left", n)
	}
	for _, g := range got.Guidance {
		if !g.Shortened || !strings.HasPrefix(g.Text, fmt.Sprint("Decide.\n\n1. Rule <", g.Revision)) {
			t.Errorf("revision %d: %t %.40s", g.Revision, g.Shortened, g.Text)
		}
	}
}

// trained is the metadata of a snapshot.
func trained(step int, curve *record.TrainingCurve) record.TrainingMeta {
	loss := 4 / float64(step)
	return record.TrainingMeta{Step: step, Steps: 9, Loss: &loss, Curve: curve}
}

func TestTrainingShowsItsLossesAndSnapshots(t *testing.T) {
	t.Parallel()
	curve := func(steps ...int) *record.TrainingCurve {
		c := &record.TrainingCurve{Steps: steps}
		for _, s := range steps {
			c.Loss, c.LR = append(c.Loss, 8/float32(s)), append(c.LR, 0.1)
		}
		return c
	}
	two := `[{"id":"1","step":2,"at":"2026-03-01T12:00:02Z","bytes":7},` +
		`{"id":"0","step":4,"at":"2026-03-01T12:00:04Z","bytes":7}]`
	for name, c := range map[string]struct {
		metas []record.TrainingMeta
		live  int // the step that its worker reports
		want  string
	}{
		"before the first step":     {nil, 0, `{"steps":[],"snapshots":[]}`},
		"before the first snapshot": {nil, 1, `{"steps":[{"step":1,"loss":0.5,"lr":null}],"snapshots":[]}`},
		"as of its last snapshot": {[]record.TrainingMeta{trained(4, curve(2, 4)), trained(2, curve(1, 2))}, 4,
			`{"steps":[{"step":2,"loss":4,"lr":0.1},{"step":4,"loss":2,"lr":0.1}],"snapshots":` + two + `}`},
		"and of its worker": {[]record.TrainingMeta{trained(4, curve(2, 4)), trained(2, curve(1, 2))}, 5,
			`{"steps":[{"step":2,"loss":4,"lr":0.1},{"step":4,"loss":2,"lr":0.1},` +
				`{"step":5,"loss":0.5,"lr":null}],"snapshots":` + two + `}`},
		"snapshots of an earlier version": {[]record.TrainingMeta{trained(4, nil), trained(2, nil)}, 0,
			`{"steps":[{"step":2,"loss":2,"lr":null},{"step":4,"loss":1,"lr":null}],"snapshots":` + two + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.ofKind(runA, config.KindTrain, run.Running)
			for n, m := range c.metas {
				meta, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				id := fmt.Sprint(n)
				d.save(snapshot.Key(runA, id), snapshot.Snapshot{Schema: 1, ID: id, Kind: snapshot.TrainState, Run: runA,
					CreatedAt: noon.Add(time.Duration(m.Step) * time.Second), Meta: meta, Parts: []snapshot.Part{{Length: 7}}})
			}
			if c.live > 0 {
				loss := 0.5
				d.save(record.HeartbeatKey("w"), health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready,
					At: noon, DueAt: noon.Add(time.Second), Holds: []health.HeldShard{
						{Run: runA, Training: &health.Training{Step: c.live, Steps: 9, Loss: &loss}}}})
			}
			path := "/v1/runs/" + string(runA) + "/training"
			if w := get(t, d.Handler(secret.Value{}, d.probes()), path, nil); w.Body.String() != c.want+"\n" {
				t.Errorf("%d %s\nwant %s", w.Code, w.Body, c.want)
			}
		})
	}
}

// The longest curve that a snapshot may have fits into an answer.
func TestLongTrainingIsBounded(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.ofKind(runA, config.KindTrain, run.Running)
	c := &record.TrainingCurve{}
	for n := range 10 * record.MaxTrainingCurve {
		c.Steps, c.Loss, c.LR = append(c.Steps, 1_000_000+n), append(c.Loss, 1.2345678e-17), append(c.LR, 1.2345678e-17)
	}
	meta, err := json.Marshal(trained(1_010_000, c))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 80 {
		id := fmt.Sprintf("%064d", n)
		d.save(snapshot.Key(runA, id), snapshot.Snapshot{Schema: 1, ID: id, Kind: snapshot.TrainState, Run: runA,
			CreatedAt: noon, Meta: meta})
	}
	d.save(identity.ShardKey(runA, 0), shard.Doc{Schema: 1})
	var got struct{ Steps, Snapshots []any }
	get(t, d.Handler(secret.Value{}, d.probes()), "/v1/runs/"+string(runA)+"/training", &got)
	if len(got.Steps) != record.MaxTrainingCurve || len(got.Snapshots) != 50 {
		t.Errorf("%d steps, %d snapshots", len(got.Steps), len(got.Snapshots))
	}
}

func TestKindsHaveTheirOwnEndpoints(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	h := d.Handler(secret.Value{}, d.probes())
	for n, c := range []struct {
		kind              string
		rollout, training int
	}{
		{config.KindBatch, 404, 404}, {config.KindRollout, 200, 404}, {config.KindTrain, 404, 200}, {"", 404, 404},
	} {
		id := identity.RunID(fmt.Sprintf("01JE%022d", n))
		if c.kind != "" {
			d.ofKind(id, c.kind, run.Completed)
		}
		for path, want := range map[string]int{"/rollout": c.rollout, "/training": c.training} {
			w := get(t, h, "/v1/runs/"+string(id)+path, nil)
			if w.Code != want || want == http.StatusNotFound && !strings.Contains(w.Body.String(), `"kind":"not_found"`) {
				t.Errorf("%q%s: %d %s, want %d", c.kind, path, w.Code, w.Body, want)
			}
		}
	}
}
