package submit_test

import (
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

const childID = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"

// ended plans a run of 4 items and saves it as ended, with one item that timed out.
func (d *fixture) ended(edit ...func(*record.Manifest, *run.State)) record.Manifest {
	m := inputtest.Manifest(2)
	m.ModelURI, m.ModelID = "m", identity.Model("m", "").String()
	s := run.New(m.Run)
	s.Phase, s.Items, s.Shards = run.CompletedWithErrors, 4, 2
	s.Counts = shard.Counts{OK: 3, Failed: 1, ByClass: map[string]int{"timeout": 1}}
	for _, f := range edit {
		f(&m, &s)
	}
	m = inputtest.Plan(d.t, d.Ports, m, inputtest.Prompts(0, 4))
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(m.Run), s)
	for _, key := range []string{record.FileEntriesKey(m.Run), record.OutputKey(m.Run, record.CompletionsFile),
		record.OutputKey(m.Run, record.ErrorsFile)} {
		hosttest.Put(d.t, d.Ports, key, "x")
	}
	return m
}

// retry asks for a child of the run, and returns its manifest.
func (d *fixture) retry(parent record.Manifest, only []string) record.Manifest {
	d.t.Helper()
	return d.request(events.RetryRequested{Run: childID, Parent: string(parent.Run), Only: only})
}

// request asks for a child, and returns its manifest.
func (d *fixture) request(e events.RetryRequested) record.Manifest {
	d.t.Helper()
	if err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Retry(d.t.Context(), e); err != nil {
		d.t.Fatal(err)
	}
	return hosttest.Load[record.Manifest](d.t, d.Ports, record.ManifestKey(childID))
}

func TestChildHasTheManifestOfItsParent(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	parent := d.ended()
	m := d.retry(parent, []string{"timeout"})
	if m.Refused != "" || m.Parent == nil || m.Parent.Run != parent.Run || !m.Parent.Selection.Selects(0, "timeout") ||
		m.ModelID != parent.ModelID || m.Pool != "default" || m.Inputs[0] != parent.Inputs[0] || m.Run != childID {
		t.Errorf("%+v", m)
	}
	if d.planned() != 1 {
		t.Error("its plan is not asked for")
	}
	d.retry(parent, []string{"all"})
	again := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(childID))
	if again.Parent.Selection.Selects(0, "") || d.planned() != 1 {
		t.Errorf("a repeated request changes the child to %+v", again.Parent)
	}
}

func TestChildWithSettingsKeepsTheSettingsOfItsIDs(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	few := 10
	parent := d.ended(func(m *record.Manifest, s *run.State) {
		m.Config = config.DefaultRun()
		m.Config.Sampling.MaxTokens = &few
		s.Counts.Finish = map[string]int{"length": 2}
	})
	e := events.RetryRequested{Run: childID, Parent: string(parent.Run), FinishReasons: []string{"length"},
		Set: []string{"sampling.max_tokens=800", "limits.failures=9"}}
	s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at})
	if err := s.Retry(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	m := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(childID))
	if m.Refused != "" || *m.Config.Sampling.MaxTokens != 800 || m.Config.Limits.Failures != 9 ||
		m.Original == nil || *m.Original.Sampling.MaxTokens != 10 || len(m.Parent.Set) != 2 ||
		m.Parent.Selection.Finish[0] != "length" {
		t.Errorf("the child is %+v", m)
	}
	if m.DialectModel().Original == nil || string(m.DialectModel().Original.Params) != `{"max_tokens":10}` {
		t.Errorf("its model is %+v", m.DialectModel())
	}
}

func TestRetryThatCannotRunIsRefusedWithARemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit        func(*record.Manifest, *run.State)
		set, finish []string
		gone        func(record.Manifest) string
		only        []string
		items       []int
		want        string
	}{
		"still running": {edit: func(_ *record.Manifest, s *run.State) { s.Phase = run.Running }, want: "stop it"},
		"paused": {edit: func(_ *record.Manifest, s *run.State) { s.Phase = run.Paused },
			want: "resume it, or stop it"},
		"nothing selected": {only: []string{"refused"}, want: "choose others"},
		"an unknown class": {only: []string{"sad"}, want: "use failed, unanswered, unscored, all"},
		"a run that was refused before its kind was read": {want: "was refused: nonsense",
			edit: func(m *record.Manifest, _ *run.State) { m.Kind, m.Refused = "", "nonsense" }},
		"a training": {want: `kind "train"`,
			edit: func(m *record.Manifest, _ *run.State) { m.Kind = config.KindTrain }},
		"a parent that was cleaned": {want: "submit the input again", gone: func(m record.Manifest) string {
			return record.FileEntriesKey(m.Run)
		}},
		"a plan that is gone": {want: "submit the input again", gone: func(m record.Manifest) string {
			return record.ShardTableKey(m.Run, 0)
		}},
		"files that are gone": {want: "submit the input again", gone: func(m record.Manifest) string {
			return record.OutputKey(m.Run, record.ErrorsFile)
		}},
		"items of a run that asks identical requests once": {only: []string{"timeout"}, items: interval.Of(
			interval.Range{Lo: 1, Hi: 2}).Gaps(), want: "by their classes",
			edit: func(m *record.Manifest, _ *run.State) { m.Config.Dedupe.Enabled = true }},
		"a finish reason that no answer has": {finish: []string{"length"}, want: "choose others"},
		"a setting of the model": {set: []string{"model.uri=other"}, want: "a retry can't set model.uri",
			edit: func(m *record.Manifest, _ *run.State) { m.Config = config.DefaultRun() }},
		"a wrong setting": {set: []string{"sampling.top_p=7"}, want: "sampling.top_p: must be",
			edit: func(m *record.Manifest, _ *run.State) { m.Config = config.DefaultRun() }},
		"a model that is served no more": {want: "no pool serves the model old",
			edit: func(m *record.Manifest, _ *run.State) { m.ModelURI = "old" }},
		"a grader whose service is gone": {want: "reward",
			edit: func(m *record.Manifest, _ *run.State) {
				m.Config.Grades = []config.Grade{{Name: "quality", Kind: config.GradeHTTP, Service: "reward"}}
			}},
		"a run with a judge": {want: "submit the lines of the failed items as a run of their own",
			edit: func(m *record.Manifest, _ *run.State) {
				m.Config.Grades = []config.Grade{{Name: "style", Kind: config.GradeJudge}}
			}},
		"another revision of the model": {want: "another revision",
			edit: func(m *record.Manifest, _ *run.State) { m.ModelID = identity.Model("m", "old").String() }},
	} {
		d := newFixture(t)
		if c.edit == nil {
			c.edit = func(*record.Manifest, *run.State) {}
		}
		if c.only == nil && c.finish == nil {
			c.only = []string{"failed"}
		}
		parent := d.ended(c.edit)
		if c.gone != nil {
			if err := d.Blobs.Delete(t.Context(), c.gone(parent), ""); err != nil {
				t.Fatal(err)
			}
		}
		e := events.RetryRequested{Run: childID, Parent: string(parent.Run), Only: c.only, Items: c.items,
			FinishReasons: c.finish, Set: c.set}
		if m := d.request(e); !strings.Contains(m.Refused, c.want) {
			t.Errorf("%s: refused with %q, want %q", name, m.Refused, c.want)
		}
	}
}
