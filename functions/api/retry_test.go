package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// parent is what a test changes of a run before it is retried.
type parent struct {
	manifest record.Manifest
	state    run.State
	plan     record.Plan // what it changes of the run's plan
	gone     string      // key of a file that is not there
}

// ended saves a run of 4 items that has ended, with one item that timed out.
func (d fixture) ended(edit func(*parent)) {
	d.t.Helper()
	p := parent{manifest: inputtest.Manifest(2), state: run.New(runA)}
	p.state.Phase, p.state.Items, p.state.Shards = run.CompletedWithErrors, 4, 2
	p.state.Counts = shard.Counts{OK: 3, Failed: 1, ByClass: map[string]int{"timeout": 1}}
	if edit != nil {
		edit(&p)
	}
	inputtest.Plan(d.t, d.ports, p.manifest, inputtest.Prompts(0, 4))
	if p.plan.Problem != "" {
		d.save(record.PlanKey(runA), p.plan)
	}
	d.save(record.CoordinatorKey(runA), p.state)
	for _, key := range []string{record.FileEntriesKey(runA), record.OutputKey(runA, record.CompletionsFile),
		record.OutputKey(runA, record.ErrorsFile)} {
		if _, err := d.ports.Blobs.Put(d.t.Context(), key, strings.NewReader("x"), putOptions); err != nil {
			d.t.Fatal(err)
		}
	}
	if p.gone != "" {
		if err := d.ports.Blobs.Delete(d.t.Context(), p.gone, ""); err != nil {
			d.t.Fatal(err)
		}
	}
}

var retryPath = "/v1/runs/" + string(runA) + "/retry"

func TestPostRetryRequestsAChild(t *testing.T) {
	t.Parallel()
	for body, only := range map[string][]string{
		``:                               {"failed"},
		`{}`:                             {"failed"},
		`{"only":[]}`:                    {"failed"},
		`{"only":["all"]}`:               {"all"},
		`{"only":["timeout","refused"]}`: {"timeout", "refused"},
	} {
		d := newFixture(t)
		d.ended(nil)
		w := ask(t, d.Handler(secret.Value{}, d.probes()), request{method: "POST", path: retryPath, body: body})
		var got api.Retry
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 202 {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
		if !got.Run.Valid() || got.Run == runA || got.Parent != runA || !cmp.Equal(got.Selection.Only, only) {
			t.Errorf("%s: answer %+v", body, got)
		}
		want := []events.Payload{events.RetryRequested{Run: string(got.Run), Parent: string(runA), Only: only}}
		if diff := cmp.Diff(want, d.received(host.TaskQueue)); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", body, diff)
		}
	}
}

// A repeated request names the same child; another selection is another one.
func TestRepeatedRetryNamesTheSameChild(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.ended(nil)
	h := d.Handler(secret.Value{}, d.probes())
	answer := func(body string) string {
		return ask(t, h, request{method: "POST", path: retryPath, body: body}).Body.String()
	}
	if a, b, all := answer(""), answer(`{"only":["failed"]}`), answer(`{"only":["all"]}`); a != b || a == all {
		t.Errorf("%s, %s, %s", a, b, all)
	}
}

func TestPostRetryIsRefused(t *testing.T) {
	t.Parallel()
	gone := func(key string) func(*parent) { return func(p *parent) { p.gone = key } }
	for name, c := range map[string]struct {
		edit       func(*parent)
		path, body string
		code       int
		has        []string
	}{
		"unknown run":   {path: "/v1/runs/" + string(runB) + "/retry", code: 404, has: []string{"there is no run"}},
		"no id":         {path: "/v1/runs/yesterday/retry", code: 404, has: []string{"there is no run"}},
		"unknown field": {body: `{"items":[1]}`, code: 400, has: []string{"items"}},
		"not a list":    {body: `{"only":"failed"}`, code: 400, has: []string{`"kind":"invalid"`}},
		"unknown class": {body: `{"only":["sad"]}`, code: 400,
			has: []string{"selects no item", "use failed, unanswered, unscored, all"}},
		"a running run": {edit: func(p *parent) { p.state.Phase = run.Running }, code: 409,
			has: []string{"has not ended", "stop it"}},
		"a run that is finalizing": {edit: func(p *parent) { p.state.Phase = run.Finalizing }, code: 409,
			has: []string{"has not ended"}},
		"a class that no item has": {body: `{"only":["refused"]}`, code: 409, has: []string{"no item to ask again"}},
		"no failed item": {edit: func(p *parent) { p.state.Counts = shard.Counts{OK: 4} }, code: 409,
			has: []string{"no item to ask again"}},
		"no unanswered item": {body: `{"only":["unanswered"]}`, code: 409, has: []string{"no item to ask again"}},
		"an empty run": {edit: func(p *parent) { p.state.Items, p.state.Counts = 0, shard.Counts{} },
			body: `{"only":["all"]}`, code: 409, has: []string{"no item to ask again"}},
		"a refused run": {edit: func(p *parent) { p.manifest.Kind, p.manifest.Refused = "", "nonsense" }, code: 409,
			has: []string{"was refused: nonsense", "submit its input again"}},
		"a training": {edit: func(p *parent) { p.manifest.Kind = config.KindTrain }, code: 400,
			has: []string{"can't be asked again"}},
		"a run with a judge": {edit: func(p *parent) { p.manifest = inputtest.WithJudge(p.manifest) }, code: 400,
			has: []string{"can't be asked again"}},
		"a run whose input could not be planned": {edit: func(p *parent) {
			p.plan = record.Plan{Schema: record.Schema, Problem: "the input is gone"}
		}, code: 409, has: []string{"ended before its input was planned"}},
		"a run that was cleaned": {edit: gone(record.FileEntriesKey(runA)), code: 404,
			has: []string{"is gone", "submit the input again"}},
		"a run without its plan": {edit: gone(record.IndexKey(runA, 0)), code: 404, has: []string{"is gone"}},
		"a run without its table": {edit: gone(record.ShardTableKey(runA, 0)), code: 404,
			has: []string{"is gone"}},
		"a run without its answers": {edit: gone(record.OutputKey(runA, record.CompletionsFile)), code: 404,
			has: []string{"is gone"}},
		"a run without its error rows": {edit: gone(record.OutputKey(runA, record.ErrorsFile)), code: 404,
			has: []string{"is gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.ended(c.edit)
			q := request{method: "POST", path: c.path, body: c.body}
			if q.path == "" {
				q.path = retryPath
			}
			w := ask(t, d.Handler(secret.Value{}, d.probes()), q)
			if w.Code != c.code {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.code)
			}
			for _, want := range c.has {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s, want %s in it", w.Body, want)
				}
			}
			if sent := d.received(host.TaskQueue); len(sent) > 0 {
				t.Errorf("it sends %+v", sent)
			}
		})
	}
}
