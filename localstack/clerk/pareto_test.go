package clerk_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/clerk"
	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

const cancellationsConfig = `
schema_version = 1
kind = "rollout"
[rollout]
seed = %d
epochs = 2
system = "{guidance}"
prompt = "{content}"
[[mission]]
name = "bookings"
scaffold = "You decide whether a booking that was cancelled is refunded."
entries = ["When in doubt, be fair to both sides."]
[[decode]]
samples = 2
[answer]
pattern = "Verdict: ([a-z]+)"
verdicts = ["refund", "refuse"]
[runner]
rollout_batch_size = 40
[reflection]
batch_size = 8
max_operations = 1
pareto = %d
[gate]
holdout_share = 0.15
resamples = 400
`

// cancellations returns n tickets of two kinds.
func cancellations(n int) string {
	var b strings.Builder
	for i := range n {
		content, label := clerk.Cancellation(i)
		b.Write(append(record.Encode(map[string]any{"group_id": fmt.Sprintf("b%d", i), "content": content, "label": label}),
			'\n'))
	}
	return b.String()
}

// bookings returns a run over tickets of two kinds that need different guidance, of which a
// plan can add one part.
func bookings(t testing.TB, seed, pareto int) *bench {
	return newBench(t, runConfig(t, fmt.Sprintf(cancellationsConfig, seed, pareto)), cancellations(240), clerks(t))
}

// TestFrontFindsWhatNeedsTwoSteps has a mission in which each rule alone helps one kind of
// tickets and harms the other, so that no candidate with one rule wins a comparison of
// means. Without a front nothing is ever learnt; with one, the second rule is added to a
// candidate that was kept for the kind that it helps.
func TestFrontFindsWhatNeedsTwoSteps(t *testing.T) {
	t.Parallel()
	for seed := range 2 {
		without := bookings(t, seed, 0)
		if sum := without.run(); sum.Accepted > 0 || sum.Reflections < 3 || sum.Fronts != nil {
			t.Errorf("seed %d, without a front: %d of %d reflections are accepted", seed, sum.Accepted, sum.Reflections)
		}
		with := bookings(t, seed, 4)
		sum := with.run()
		m := sum.Missions["bookings"]
		t.Logf("seed %d: %d of %d reflections accepted, holdout %.2f → %.2f, front of %d", seed, sum.Accepted,
			sum.Reflections, *m.HoldoutAtStart, *m.Holdout, sum.Fronts["bookings"])
		if sum.Accepted == 0 || *m.Holdout < *m.HoldoutAtStart+0.3 {
			t.Errorf("seed %d, with a front: %d of %d reflections are accepted, holdout %v → %v", seed, sum.Accepted,
				sum.Reflections, *m.HoldoutAtStart, *m.Holdout)
		}
		texts := with.promoted("bookings").Text()
		for _, rule := range clerk.CancellationRules() {
			if !strings.Contains(texts, rule) {
				t.Errorf("seed %d: the promoted guidance lacks %q:\n%s", seed, rule, texts)
			}
		}
	}
}

// fronts returns the rows of fronts.jsonl.
func (b *bench) fronts() (out []rollout.FrontRow) {
	b.Helper()
	for line := range strings.Lines(b.object(record.OutputKey(testRun, rollout.FrontsFile))) {
		var r rollout.FrontRow
		b.check(json.Unmarshal([]byte(line), &r))
		out = append(out, r)
	}
	return out
}

// TestReflectionBeginsWithAMemberOfTheFront follows the reflections of runs: each begins with
// the present guidance or with a member of the front at that time, whose answers to the
// tickets it is shown; its plans change that guidance; and what is accepted was made from
// it, replaces the present step, and has the name of its step from then on.
func TestReflectionBeginsWithAMemberOfTheFront(t *testing.T) {
	t.Parallel()
	begun, again := 0, 0
	for seed := range 3 {
		b := bookings(t, seed, 3)
		b.run()
		rows := map[int]rollout.FrontRow{} // by the reflection
		for _, row := range b.fronts() {
			rows[row.Reflection] = row
			if len(row.Members) == 0 || len(row.Members) > 3 {
				t.Errorf("seed %d: the front has %d members: %+v", seed, len(row.Members), row)
			}
		}
		texts := map[string]guidance.Guidance{}
		var now rollout.FrontRow
		for _, r := range b.reflections() {
			present, err := guidance.Decode([]byte(b.object(rollout.GuidanceKey(testRun, "bookings", r.Step))))
			b.check(err)
			texts[fmt.Sprint("step ", r.Step)] = present
			basis := present
			if r.Parent != "" {
				again++
				basis = texts[r.Parent]
				if !slices.ContainsFunc(now.Members, func(m rollout.FrontMember) bool { return m.Name == r.Parent }) {
					t.Errorf("seed %d: reflection %d begins with %s, and the front is %+v", seed, r.Number, r.Parent, now)
				}
			}
			begun++
			b.wantShown(r, basis)
			for n, c := range r.Candidates {
				if c.Guidance == nil {
					continue
				}
				texts[fmt.Sprintf("r%d.%d", r.Number, n)] = *c.Guidance
				if c.Guidance.Step != r.Step+1 || c.Guidance.From != present.ContentID().String() {
					t.Errorf("seed %d: candidate %d of reflection %d is step %d from %s", seed, n, r.Number, c.Guidance.Step,
						c.Guidance.From)
				}
				if diff := guidance.Diff(basis, *c.Guidance); len(diff) != 1 {
					t.Errorf("seed %d: candidate %d of reflection %d changes %+v of %s", seed, n, r.Number, diff, r.Parent)
				}
			}
			if row, changed := rows[r.Number]; changed {
				now = row
			}
			for _, m := range now.Members {
				if m.Name == fmt.Sprintf("r%d.%d", r.Number, r.Best) && r.Result == rollout.ResultAccepted {
					t.Errorf("seed %d: the front calls step %d %s", seed, r.NewStep, m.Name)
				}
			}
		}
	}
	t.Logf("%d of %d reflections begin with another guidance than the present one", again, begun)
	if again < 3 || again == begun {
		t.Errorf("%d of %d reflections begin with another guidance than the present one", again, begun)
	}
}

// wantShown checks that the requests of a reflection show that guidance, and that those
// which ask its tickets again do.
func (b *bench) wantShown(r rollout.Record, basis guidance.Guidance) {
	b.Helper()
	asked := 0
	for id, body := range b.bodies {
		switch {
		case strings.HasPrefix(id, fmt.Sprintf("r%d.", r.Number)):
			for _, e := range basis.Entries {
				if !strings.Contains(string(body), e.Text) {
					b.Errorf("%s does not show the entry %q", id, e.Text)
				}
			}
		case strings.Contains(id, fmt.Sprintf(".r%d.b.", r.Number)):
			asked++
			if !containsText(body, basis.Text()) {
				b.Errorf("%s asks under another guidance than %s", id, r.Parent)
			}
		}
	}
	if (asked > 0) != (r.Parent != "") {
		b.Errorf("reflection %d begins with %q, and %d answers are asked again", r.Number, r.Parent, asked)
	}
}

// TestFrontIsTheSameForAnyWorkers repeats runs with a front in another order of answers and
// with other shards.
func TestFrontIsTheSameForAnyWorkers(t *testing.T) {
	t.Parallel()
	var want map[string]string
	for n, parallelism := range []int{0, 1, 3, 8} {
		b := bookings(t, 1, 4)
		b.manifest.Config.Runner.Parallelism, b.shuffle = parallelism, uint64(n)
		b.run()
		got := b.objects(rollout.AttemptsFile)
		if want == nil {
			want = got
		}
		same(t, fmt.Sprintf("cut into %d", parallelism), got, want)
	}
}

// TestCrashesChangeNoFront ends the process at the edges of every stage of a run with a
// front, and lets several append each stage at once.
func TestCrashesChangeNoFront(t *testing.T) {
	t.Parallel()
	undisturbed := bookings(t, 2, 4)
	if sum := undisturbed.run(); sum.Accepted == 0 {
		t.Fatalf("the run learns nothing: %+v", sum)
	}
	if !slices.ContainsFunc(undisturbed.stages(), func(s rollout.Stage) bool { return s.Kind == rollout.Reanswering }) {
		t.Fatal("no reflection begins with another guidance than the present one")
	}
	b := bookings(t, 2, 4)
	crashes := 0
	for number := 1; ; number++ {
		crashes += b.everyCrash(number)
		if !b.stage(b.bucket, number, plainly) {
			break
		}
	}
	b.publish()
	t.Logf("%d crashes in %d stages", crashes, len(b.stages()))
	same(t, "with crashes", b.objects(), undisturbed.objects())
	b.sameRequests(undisturbed)
}

// TestMissionWithoutKnownOutcomesHasNoFront has one mission whose tickets have no labels.
func TestMissionWithoutKnownOutcomesHasNoFront(t *testing.T) {
	t.Parallel()
	c, _ := small(t)
	c = withMissions(c, "lamps", "silent")
	c.Reflection.Pareto = 4
	b := newBench(t, c, deskTickets("lamps", 150, 150)+deskTickets("silent", 60, 0), clerks(t))
	sum := b.run()
	if sum.Fronts["lamps"] == 0 || len(sum.Fronts) != 1 {
		t.Errorf("the fronts are %v", sum.Fronts)
	}
	for _, r := range b.reflections() {
		if r.Mission == "silent" && r.Parent != "" {
			t.Errorf("reflection %d begins with %s", r.Number, r.Parent)
		}
	}
}

// TestParetoNeedsTheGate has settings without effect.
func TestParetoNeedsTheGate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"pareto = 1\n":                   "set 2 or more",
		"pareto = 33\n":                  "reflection.pareto",
		"pareto = 4\n[gate]\noff = true": "reflection.pareto: needs the gate",
	} {
		_, err := config.ParseRun("run.toml", []byte("schema_version = 1\nkind = \"rollout\"\n[[mission]]\nname = \"m\"\n"+
			"[reflection]\n"+text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
