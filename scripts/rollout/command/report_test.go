package command_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/leaderboard"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// addTrials adds a run of trials in the phase: two variants, of which the second solves half of the
// tasks.
func (f fixture) addTrials(id identity.RunID, p run.Phase) {
	f.t.Helper()
	f.addRun(id, "x", 0, p)
	c := config.DefaultRun()
	c.Kind, c.Variants = config.KindTrials, []config.Variant{{Name: "plain"}, {Name: "terse"}}
	f.save(record.ManifestKey(id), record.Manifest{Schema: record.Schema, Run: id, Kind: config.KindTrials, Name: "x",
		CreatedAt: noon, Pool: "default", Dialect: "plain", Config: c})
	if !p.Ended() {
		return
	}
	var facts, rows strings.Builder
	for n := range 8 {
		for v, name := range []string{"plain", "terse"} {
			fmt.Fprintf(&facts, `{"schedule_idx":%d,"trial_id":"t%d.%s.r0","task":"q%d","variant":%q,"verdict":"answered",`+
				`"score":%d}`+"\n", 2*n+v, n, name, n, name, v*(n%2))
			fmt.Fprintf(&rows, `{"id":"t%d.%s.r0","prompt":"p","completion":"%s says","finish_reason":"stop"}`+"\n",
				n, name, name)
		}
	}
	zero, half := 0.0, 0.5
	sum := record.Summary{Schema: record.Schema, Run: id, Name: "x", Phase: string(p), Trials: &record.Trials{Tasks: 8,
		Trials: 16, Variants: []record.TrialVariant{{Name: "plain", Trials: 8, Score: &zero},
			{Name: "terse", Trials: 8, Score: &half}}}}
	f.put(record.OutputKey(id, record.SummaryFile), string(record.Encode(sum)))
	f.put(record.OutputKey(id, trials.TrialsFile), facts.String())
	f.put(record.OutputKey(id, record.CompletionsFile), rows.String())
}

func TestReportOfTrialsIsPrintedOrAPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addTrials(runA, run.Completed)
	if r := f.rollout("report", "x"); r.code != 0 || !strings.Contains(r.out, "terse − plain") ||
		!strings.Contains(r.out, "4/0 of 8") {
		t.Errorf("%+v", r)
	}
	r := f.rollout("report", "x", "--json")
	var report leaderboard.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 0 || len(report.Pairs) != 1 ||
		report.Pairs[0].Better != 4 || len(report.Flips) != 4 || report.Flips[0].Second.Answer != "terse says" {
		t.Errorf("%+v, %v", r, err)
	}
	path := filepath.Join(t.TempDir(), "r.html")
	check(t, f.rollout("report", "x", "-o", path, "--variants", "terse,plain"), 0, "", path)
	page, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(page), "plain is better than terse on 0 tasks, and worse on 4") {
		t.Errorf("%.100s, %v", page, err)
	}
	check(t, f.rollout("report", "x", "-o", path), 2, "", "already exists")
}

func TestReportRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addTrials(runA, run.Completed)
	check(t, f.rollout("report", "x", "--variants", "plain"), 2, "", "--variants names two variants")
	check(t, f.rollout("report", "x", "--variants", "plain,other"), 2, "", `no variant "other"`)
	check(t, f.rollout("report", "x", "--json", "-o", "y.html"), 2, "", "name one of them")
	f.addTrials(runB, run.Running)
	check(t, f.rollout("report", string(runB)), 1, "", "has not ended", "rollout status")
	g := newFixture(t)
	g.addRollout(runA, run.Completed)
	check(t, g.rollout("report", "x", "--json"), 2, "", "are for trials")
}
