package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/report/reporttest"
	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	rolloutfiles "rollout/shared/rollout"
)

// addRollout stores a rollout in that phase. An ended one has steps 0 to 2, of which 2 is promoted.
func (f fixture) addRollout(id identity.RunID, p run.Phase, missions ...string) {
	f.t.Helper()
	f.addRun(id, "x", 0, p)
	if p.Ended() {
		if err := (reporttest.Size{Tickets: 20}).Save(f.t.Context(), f.Bucket, id); err != nil {
			f.t.Fatal(err)
		}
	}
	m := reporttest.Manifest(id)
	m.Name = "x"
	for _, name := range missions {
		m.Config.Missions = append(m.Config.Missions, config.Mission{Name: name})
	}
	f.save(record.ManifestKey(id), m)
}

// step2 is what a person sees of the promoted step.
const step2 = "mission refunds, step 2, promoted\n  Decide on refunds.\n" +
	"  1. Be fair.\n     since step 0; no answer before step 2 named it\n" +
	"  2. Rule 0.\n     since step 1; named by 7 right and 1 wrong answers, last in step 0\n" +
	"  3. Rule 2.\n     new in step 2\n"

func TestGuidanceShowsThePromotedStepOrAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRollout(runA, run.Completed)
	check(t, f.rollout("guidance", "show", "x"), 0, step2)
	check(t, f.rollout("guidance", "show", "x", "--step", "2"), 0, step2)
	check(t, f.rollout("guidance", "show", "x", "--mission", "refunds", "--step", "0"), 0,
		"mission refunds, step 0\n  Decide on refunds.\n  1. Be fair.\n     from the config\n")
	var g guidance.Guidance
	r := f.rollout("guidance", "show", "x", "--json")
	if err := json.Unmarshal([]byte(r.out), &g); err != nil || r.code != 0 || g.Step != 2 || len(g.Entries) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	check(t, f.rollout("guidance", "show", "x", "--step", "3"), 1, "", "no step 3", "from 0 to 2")
	check(t, f.rollout("guidance", "show", "x", "--mission", "other"), 2, "", `no mission "other": it has refunds`)
}

func TestGuidanceOfARunningRolloutIsTheNewestStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRollout(runA, run.Running)
	check(t, f.rollout("guidance", "show", "x"), 1, "", "no guidance yet", "once its first batch is planned")
	for step, text := range []string{
		`{"schema":1,"mission":"refunds","step":0,"from":"","scaffold":"","entries":` +
			`[{"text":"A.","hits":0,"misses":0,"last_used":0,"since":0}]}`,
		`{"schema":1,"mission":"refunds","step":1,"from":"` + strings.Repeat("0a", 32) + `","scaffold":"","entries":[]}`,
	} {
		f.put(record.WorkPrefix+string(runA)+"/rollout/guidance/refunds/00000"+string(rune('0'+step))+".json", text)
	}
	f.save(record.PlanKey(runA), record.Plan{Schema: 1, Appended: &record.Appended{Input: 4}})
	f.put(record.WorkPrefix+string(runA)+"/rollout/stage/000004.json", `{"schema":1,"guidance":{"refunds":1}}`)
	check(t, f.rollout("guidance", "show", "x"), 0, "mission refunds, step 1\n")
	check(t, f.rollout("guidance", "diff", "x"), 0, "mission refunds, steps 0..1\n-  1. A.\n")
	check(t, f.rollout("guidance", "promote", "x", "--step", "0"), 1, "", "has not ended", "rollout status")
	check(t, f.rollout("report", "x"), 1, "", "has not ended", "rollout status")
}

func TestGuidanceDiffComparesSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRollout(runA, run.Completed)
	check(t, f.rollout("guidance", "diff", "x"), 0, "mission refunds, steps 0..2\n+  2. Rule 0.\n+  3. Rule 2.\n")
	check(t, f.rollout("guidance", "diff", "x", "--steps", "2..1"), 0, "mission refunds, steps 2..1\n-  3. Rule 2.\n")
	check(t, f.rollout("guidance", "diff", "x", "--steps", "..1"), 0, "mission refunds, steps 0..1\n+  2. Rule 0.\n")
	check(t, f.rollout("guidance", "diff", "x", "--steps", "1..1"), 0,
		"mission refunds, steps 1..1\n  the entries are the same\n")
	check(t, f.rollout("guidance", "diff", "x", "--steps", "1..", "--json"), 0,
		`{"mission":"refunds","from":1,"to":2,"changes":[{"op":"add","to":3,"new":"Rule 2."}]}`+"\n")
	for _, bad := range []string{"1", "a..b", "-1..2", "1..-2"} {
		check(t, f.rollout("guidance", "diff", "x", "--steps="+bad), 2, "", "--steps")
	}
}

func TestGuidancePromoteReplacesThePromotedStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRollout(runA, run.Completed)
	check(t, f.rollout("guidance", "promote", "x", "--step", "2"), 0, "", "promoted already")
	check(t, f.rollout("guidance", "promote", "x", "--step", "7"), 1, "", "from 0 to 2")
	check(t, f.rollout("guidance", "promote", "x"), 2, "", "--step is missing")
	check(t, f.rollout("guidance", "promote", "x", "--step", "1"), 0, "",
		"step 1 of mission refunds is promoted instead of step 2")
	r := f.rollout("guidance", "show", "x")
	if !strings.HasPrefix(r.out, "mission refunds, step 1, promoted\n") {
		t.Errorf("%+v", r)
	}
	folder := filepath.Join(f.dir, "bucket", "runs", string(runA), "guidance", "refunds")
	promoted, err := os.ReadFile(filepath.Join(folder, "guidance.json"))
	if err != nil {
		t.Fatal(err)
	}
	if step, err := os.ReadFile(filepath.Join(folder, "step-1.json")); err != nil || string(step) != string(promoted) {
		t.Errorf("guidance.json has %s, and step 1 %s (%v)", promoted, step, err)
	}
	var list []rolloutfiles.Promotion
	b, err := os.ReadFile(filepath.Join(folder, "promoted.json"))
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil || len(list) != 1 || list[0].Step != 1 || list[0].Instead != 2 || list[0].At.IsZero() {
		t.Errorf("promoted.json has %s (%v)", b, err)
	}
}

func TestCommandsOfRolloutsNameTheirMissionAndKind(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRollout(runA, run.Completed, "returns")
	check(t, f.rollout("guidance", "promote", "x", "--step", "1"), 2, "", "has 2 missions", "--mission: refunds, returns")
	f.addEndedRun(runB, run.Completed)
	for _, args := range [][]string{
		{"guidance", "show"}, {"guidance", "diff"}, {"guidance", "promote", "--step", "0"}, {"report"},
	} {
		check(t, f.rollout(append(args, string(runB))...), 2, "", "is not a rollout")
	}
}

func TestReportIsANewFile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRollout(runA, run.Completed)
	path := filepath.Join(t.TempDir(), "r.html")
	check(t, f.rollout("report", "x", "-o", path), 0, "", path)
	page, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(page), "<h2>Mission refunds</h2>") {
		t.Errorf("%.100s, %v", page, err)
	}
	check(t, f.rollout("report", "x", "-o", path), 2, "", "already exists")
	if r := f.rollout("report", "x", "-o", "-"); r.code != 0 || r.out != string(page) {
		t.Errorf("code %d, %d bytes instead of %d", r.code, len(r.out), len(page))
	}
}
