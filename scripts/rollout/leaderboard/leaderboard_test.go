package leaderboard_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"testing"

	"rollout/scripts/rollout/leaderboard"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/statistics"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/record"
	"rollout/shared/trials"
)

const testRun identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

// fixture writes the files of an ended run of trials.
type fixture struct {
	t                   *testing.T
	blobs               blob.Store
	summary             record.Summary
	facts, rows         bytes.Buffer
	replications, count int
}

func newFixture(t *testing.T, replications int, variants ...string) *fixture {
	f := &fixture{t: t, blobs: memory.NewBucket(clock.System{}), replications: replications}
	f.summary = record.Summary{Schema: record.Schema, Run: testRun, Name: "<b>n</b>", Phase: "completed", Model: "m",
		Trials: &record.Trials{}}
	for _, v := range variants {
		f.summary.Trials.Variants = append(f.summary.Trials.Variants, record.TrialVariant{Name: v})
	}
	return f
}

// trial adds a trial with its score, or one that the infrastructure lost, for NaN.
func (f *fixture) trial(task, variant string, replication int, score float64) {
	f.t.Helper()
	fact := trials.Fact{Trial: trials.Trial{Index: uint64(f.count), ID: fmt.Sprintf("t%d", f.count), Task: task,
		Variant: variant, Replication: replication}, Verdict: trials.Answered, Score: &score}
	f.count++
	if math.IsNaN(score) {
		fact.Verdict, fact.Class, fact.Score = trials.Infrastructure, fault.Engine, nil
	} else {
		fmt.Fprintf(&f.rows, `{"id":%q,"prompt":"p","completion":"<i>%s of %s</i>","finish_reason":"stop"}`+"\n",
			fact.ID, variant, fact.ID)
	}
	b, err := json.Marshal(fact)
	if err != nil {
		f.t.Fatal(err)
	}
	f.facts.Write(append(b, '\n'))
}

func (f *fixture) put(name string, b []byte) {
	f.t.Helper()
	_, err := f.blobs.Put(f.t.Context(), record.OutputKey(testRun, name), bytes.NewReader(b), blob.PutOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) read(o leaderboard.Options) (leaderboard.Report, error) {
	f.t.Helper()
	f.put(record.SummaryFile, record.Encode(f.summary))
	f.put(trials.TrialsFile, f.facts.Bytes())
	f.put(record.CompletionsFile, f.rows.Bytes())
	m := record.Manifest{Run: testRun, Kind: config.KindTrials}
	m.Config.Design = &config.Design{Replications: f.replications}
	return leaderboard.Read(f.t.Context(), leaderboard.Run{Blobs: f.blobs, Manifest: m}, o)
}

func (f *fixture) report() leaderboard.Report {
	f.t.Helper()
	r, err := f.read(leaderboard.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// score gives a variant the mean score of the summary.
func (f *fixture) score(variant string, mean float64) {
	for n, v := range f.summary.Trials.Variants {
		if v.Name == variant {
			f.summary.Trials.Variants[n].Score = &mean
		}
	}
}

func near(x *float64, want, tolerance float64) bool {
	return x != nil && math.Abs(*x-want) <= tolerance
}

// TestPairedTestSeesWhatAnUnpairedOneMisses has 220 tasks, of which 30 are right under the second
// variant alone and 12 under the first alone. An unpaired z-test gives p = 0.080 for the two shares,
// the exact test of the pairs 0.008.
func TestPairedTestSeesWhatAnUnpairedOneMisses(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "new", "old")
	f.score("new", 99.0/220)
	f.score("old", 81.0/220)
	for n := range 220 {
		first, second := 0.0, 0.0
		switch {
		case n < 30:
			second = 1
		case n < 42:
			first = 1
		case n < 42+69:
			first, second = 1, 1
		}
		f.trial(fmt.Sprint("q", n), "old", 0, first)
		f.trial(fmt.Sprint("q", n), "new", 0, second)
	}
	r := f.report()
	if len(r.Pairs) != 1 {
		t.Fatalf("%+v", r.Pairs)
	}
	p := r.Pairs[0]
	if p.First != "old" || p.Second != "new" || p.Tasks != 220 || p.Better != 30 || p.Worse != 12 ||
		p.Test != statistics.TestMcNemar || !near(p.P, 0.00792, 5e-6) || !near(p.Adjusted, *p.P, 0) || !p.Differs() ||
		!near(p.Difference, 18.0/220, 1e-12) || *p.Low <= 0 || p.Detectable == nil {
		t.Errorf("%+v", p)
	}
	a, b, n := 81.0/220, 99.0/220, 220.0
	z := (b - a) / math.Sqrt(a*(1-a)/n+b*(1-b)/n)
	if unpaired := math.Erfc(z / math.Sqrt2); math.Abs(unpaired-0.080) > 0.0005 {
		t.Errorf("the unpaired p is %v", unpaired)
	}
	if r.Unsolved.Count != 109 || r.Solved.Count != 69 || len(r.Unsolved.First) != 50 {
		t.Errorf("unsolved %d, solved %d", r.Unsolved.Count, r.Solved.Count)
	}
}

// TestPassAtK checks the unbiased estimates by hand: of three trials two are right in task a, and
// none in task b.
func TestPassAtK(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 3, "v")
	for n, score := range []float64{1, 0, 1} {
		f.trial("a", "v", n, score)
		f.trial("b", "v", n, 0)
	}
	r := f.report()
	for n, want := range []struct{ any, all float64 }{{1. / 3, 1. / 3}, {.5, 1. / 6}, {.5, 0}} {
		if p := r.Passes[n]; p.K != n+1 || !near(p.Any[0], want.any, 1e-12) || !near(p.All[0], want.all, 1e-12) ||
			p.Tasks[0] != 2 {
			t.Errorf("k = %d: %v, %v", p.K, *p.Any[0], *p.All[0])
		}
	}
	if len(r.Passes) != 3 || len(r.Pairs) != 0 || r.Second != "" {
		t.Errorf("%+v", r)
	}
}

// TestReplicationsOfATaskCountOnce gives two variants many replications of the same four tasks: more
// of the same show no more.
func TestReplicationsOfATaskCountOnce(t *testing.T) {
	t.Parallel()
	var ps []float64
	for _, replications := range []int{2, 40} {
		f := newFixture(t, replications, "x", "y")
		for n, score := range []float64{0.5, 1, 0.5, 1} {
			for k := range replications {
				f.trial(fmt.Sprint(n), "x", k, score)
				f.trial(fmt.Sprint(n), "y", k, float64(n%2))
			}
		}
		p := f.report().Pairs[0]
		if p.Tasks != 4 || p.P == nil || p.Test != statistics.TestStudent || p.Low == nil {
			t.Fatalf("%+v", p)
		}
		ps = append(ps, *p.P)
	}
	if math.Abs(ps[0]-ps[1]) > 1e-12 {
		t.Errorf("p is %v", ps)
	}
}

// TestLostTrialsMoveNothing loses some trials of the infrastructure.
func TestLostTrialsMoveNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "x", "y")
	for n := range 20 {
		f.trial(fmt.Sprint(n), "x", 0, 1)
		f.trial(fmt.Sprint(n), "x", 1, math.NaN())
		f.trial(fmt.Sprint(n), "y", 0, 0)
		f.trial(fmt.Sprint(n), "y", 1, 0)
	}
	f.trial("only x", "x", 0, 1)
	if p := f.report().Pairs[0]; p.Tasks != 20 || !near(p.Difference, 1, 0) || p.Better != 20 {
		t.Errorf("%+v", p)
	}
}

func TestVariantsAreRankedAndPairsAdjusted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "none", "low", "high", "mid")
	f.score("low", 0.1)
	f.score("mid", 0.5)
	f.score("high", 0.9)
	for n := range 40 {
		for v, share := range map[string]int{"low": 4, "mid": 20, "high": 36} {
			score := 0.0
			if n < share {
				score = 1
			}
			f.trial(fmt.Sprint(n), v, 0, score)
		}
	}
	r := f.report()
	var names []string
	for _, v := range r.Variants {
		names = append(names, v.Name)
	}
	if !slices.Equal(names, []string{"high", "mid", "low", "none"}) || len(r.Pairs) != 6 {
		t.Fatalf("%v, %d pairs", names, len(r.Pairs))
	}
	for _, p := range r.Pairs {
		if (p.First == "none") != (p.P == nil) || p.P != nil && (*p.Adjusted < *p.P || !p.Differs()) {
			t.Errorf("%+v", p)
		}
	}
	if r.First != "mid" || r.Second != "high" || r.Better != 16 || r.Worse != 0 || len(r.Flips) != 16 {
		t.Errorf("%s, %s: %d better, %d worse, %d flips", r.First, r.Second, r.Better, r.Worse, len(r.Flips))
	}
}

// TestFlipsShowTheAnswersOfOneReplication also takes variants that the caller names.
func TestFlipsShowTheAnswersOfOneReplication(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "a", "b", "c")
	f.trial("q", "a", 0, 0) // t0
	f.trial("q", "a", 1, 1) // t1
	f.trial("q", "c", 0, 0) // t2
	f.trial("q", "c", 1, 0) // t3
	r, err := f.read(leaderboard.Options{First: "a", Second: "c"})
	if err != nil || len(r.Flips) != 1 || r.Worse != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := r.Flips[0]; got.Task != "q" || got.First.Trial != "t1" || got.Second.Trial != "t3" ||
		got.First.Answer != "<i>a of t1</i>" || got.Second.Answer != "<i>c of t3</i>" || got.First.Mean != 0.5 {
		t.Errorf("%+v", got)
	}
	for _, o := range []leaderboard.Options{{First: "a", Second: "none"}, {First: "a", Second: "a"}} {
		if _, err := f.read(o); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestWritersMakeNamesHarmless writes a report with hostile names as text and as a page.
func TestWritersMakeNamesHarmless(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "a", "b")
	f.score("a", 0.5)
	f.score("b", 1)
	const hostile = "\x1b[31m<script>alert(1)</script>\u202e"
	for n := range 3 {
		for k := range 2 {
			f.trial(fmt.Sprint(hostile, n), "a", k, 0)
			f.trial(fmt.Sprint(hostile, n), "b", k, float64(n%2))
		}
	}
	r := f.report()
	var page, again, text bytes.Buffer
	for _, err := range []error{leaderboard.WritePage(&page, r), leaderboard.WritePage(&again, f.report()),
		leaderboard.WriteText(&text, r)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if page.String() != again.String() {
		t.Error("two pages of the same files differ")
	}
	for _, bad := range []string{"<script", "<i>", "<b>n", "\x1b", "\u202e"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	_, style, _ := strings.Cut(page.String(), "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if !strings.Contains(html.UnescapeString(page.String()), policy) {
		t.Errorf("the page lacks the policy %q", policy)
	}
	for _, want := range []string{"&lt;i&gt;b of ", "pass@k", "b − a", "1.000"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, bad := range []string{"\x1b", "\u202e"} {
		if strings.Contains(text.String(), bad) {
			t.Errorf("the text has %q", bad)
		}
	}
	for _, want := range []string{"variant", "b − a", "pass^k", "no variant solves 2 tasks: ",
		"b is better than a on 1 task"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, text.String())
		}
	}
}

func TestRunWithoutFilesIsNotFound(t *testing.T) {
	t.Parallel()
	m := record.Manifest{Run: testRun, Kind: config.KindTrials}
	run := leaderboard.Run{Blobs: memory.NewBucket(clock.System{}), Manifest: m}
	if _, err := leaderboard.Read(t.Context(), run, leaderboard.Options{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("it is read: %v", err)
	}
}

// TestReducersMakeTheScoreOfATask has two variants with the same means, of which one is right in
// every task now and then, and the other always in half of them.
func TestReducersMakeTheScoreOfATask(t *testing.T) {
	t.Parallel()
	for reducer, want := range map[string][2]float64{
		"median": {0, 0.5}, "max": {1, 0.5}, "mode": {0, 0.5}, "at_least_2": {0, 0.5}, "at_least_1": {1, 0.5},
	} {
		f := newFixture(t, 3, "often", "steady")
		f.score("often", 1.0/3)
		f.score("steady", 0.5)
		for task := range 10 {
			for r := range 3 {
				f.trial(fmt.Sprint("q", task), "often", r, map[bool]float64{true: 1}[r == 1])
				f.trial(fmt.Sprint("q", task), "steady", r, float64(task%2))
			}
		}
		got, err := f.read(leaderboard.Options{Reduce: reducer})
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]leaderboard.Reduced{}
		for _, v := range got.Reduced {
			by[v.Variant] = v
		}
		if !near(by["often"].Score, want[0], 1e-12) || !near(by["steady"].Score, want[1], 1e-12) || by["often"].Tasks != 10 ||
			got.Reducer != reducer || !near(got.Pairs[0].Difference, want[1]-want[0], 1e-12) {
			t.Errorf("%s: %+v, pair %+v, want %v", reducer, got.Reduced, got.Pairs[0], want)
		}
	}
	f := newFixture(t, 1, "one", "two")
	if r := f.report(); r.Reducer != "mean" || r.Reduced != nil {
		t.Errorf("without a reducer: %+v", r)
	}
	if _, err := f.read(leaderboard.Options{Reduce: "sum"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("an unknown reducer: %v", err)
	}
}

// TestReportSaysWhereAVariantWasPruned checks both writers.
func TestReportSaysWhereAVariantWasPruned(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "x", "y")
	f.trial("a", "x", 0, 1)
	f.trial("a", "y", 0, 0)
	y := &f.summary.Trials.Variants[1]
	y.Trials, y.Pruned = 5, 2
	y.PrunedAt = &record.PrunedAt{Look: 3, Looks: 10, From: 7, Why: "look 3 of 10: its score 0 is <worse>"}
	r := f.report()
	var text, page bytes.Buffer
	if err := leaderboard.WriteText(&text, r); err != nil {
		t.Fatal(err)
	}
	if err := leaderboard.WritePage(&page, r); err != nil {
		t.Fatal(err)
	}
	const want = "y: pruned after 3 of 5 trials, at look 3 of 10: its score 0 is <worse>"
	if !strings.Contains(text.String(), want+"\n") || !strings.Contains(page.String(), html.EscapeString(want)) {
		t.Errorf("%s\n%s", text.String(), page.String())
	}
}

// Costs are in the text and on the page as soon as one is known; what is not known is a dash.
func TestReportShowsWhatVariantsCost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "dear", "free")
	f.trial("q", "dear", 0, 1)
	f.trial("q", "free", 0, 0)
	text := func() string {
		var b, page bytes.Buffer
		r := f.report()
		if err := leaderboard.WriteText(&b, r); err != nil {
			t.Fatal(err)
		}
		if err := leaderboard.WritePage(&page, r); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(page.String(), `id="costs"`); has != r.HasCosts() {
			t.Errorf("the page has costs: %t", has)
		}
		return b.String()
	}
	if got := text(); strings.Contains(got, "solved tasks") {
		t.Errorf("costs of which nothing is known: %s", got)
	}
	num := func(x float64) *float64 { return &x }
	v := &f.summary.Trials.Variants[0]
	v.Model, v.TokensUSD, v.SolvedTasks, v.USDPerSolved = "large", num(3), 2, num(1.5)
	v.UntilSuccess = &record.UntilSuccess{Trials: 1.25, USD: num(1.2), Seconds: num(7), SuccessMedian: num(4),
		SuccessP90: num(6)}
	f.summary.Trials.JudgesUSD = num(0.5)
	got := strings.Join(strings.Fields(text()), " ")
	for _, want := range []string{"dear large $3.00 2 $1.50 1.25 trials $1.20 7.00 s 4.00 s to 6.00 s",
		"free – 0 – – – – –", "judges: $0.50"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}
