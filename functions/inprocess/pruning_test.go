package inprocess_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/functions/finalize"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/trials"
)

// race is a run of trials that prunes: 4 variants × 24 tasks × 3 replications. Its functions are
// processes that live for a few writes; its workers answer in any order.
type race struct {
	host.Ports
	t       *testing.T
	rand    *rand.Rand
	workers int
	mortal  bool // processes crash
	crashes int
	asked   map[int]int // how often each trial was answered
}

const raceRun = inputtest.RunID

func newRace(t *testing.T, rule config.Pruning, workers int, mortal bool) *race {
	t.Helper()
	r := &race{Ports: hosttest.New(), t: t, workers: workers, mortal: mortal, asked: map[int]int{},
		rand: rand.New(rand.NewPCG(uint64(workers), 1))}
	var b strings.Builder
	for n := range 24 {
		fmt.Fprintf(&b, "{\"id\":\"q%d\",\"prompt\":\"case %d\",\"answer\":\"x\"}\n", n, n)
	}
	m := inputtest.Manifest(1)
	c := config.DefaultRun()
	c.Kind = config.KindTrials
	c.Design = &config.Design{Replications: 3, Order: config.TrialsInterleaved, Seed: 7}
	c.Variants = []config.Variant{{Name: "poor"}, {Name: "good"}, {Name: "poorer"}, {Name: "better"}}
	c.Grades = []config.Grade{{Name: "right", Kind: config.GradeExact, Expected: "task.answer"}}
	c.Pruning = &rule
	m.Kind, m.Config = config.KindTrials, c
	key := "prompts/0.jsonl"
	m.Inputs = []record.Input{{Key: key, Version: hosttest.Put(t, r.Ports, key, b.String()), Size: int64(b.Len())}}
	hosttest.Save(t, r.Ports, record.ManifestKey(raceRun), m)
	return r
}

// process returns the ports of a process, which crashes at one of its first writes.
func (r *race) process(writes int) host.Ports {
	if !r.mortal {
		return r.Ports
	}
	return hosttest.Crashing(r.Ports, r.rand.IntN(writes), r.rand.IntN(2) == 0)
}

// crashed reports whether a process has crashed. Another error fails the test.
func (r *race) crashed(err error) bool {
	r.t.Helper()
	if err == nil {
		return false
	}
	if !r.mortal {
		r.t.Fatal(err)
	}
	r.crashes++
	return true
}

// run runs the run to its end.
func (r *race) run() run.State {
	r.t.Helper()
	for range 3000 {
		switch s := r.state(); {
		case s.Phase.Ended():
			return s
		case s.Phase == run.Finalizing:
			p := r.process(12)
			f := finalize.New(p, input.NewIndex(p.Blobs, p.Docs), finalize.Options{})
			r.crashed(f.Finalize(r.t.Context(), events.Finalize{Run: string(raceRun)}))
		case s.PlanOutstanding():
			r.plan()
		default:
			r.answer(s)
		}
		r.coordinate()
	}
	r.t.Fatalf("the run does not end: %+v", r.state())
	return run.State{}
}

// state returns the run's state.
func (r *race) state() run.State {
	r.t.Helper()
	s := run.New(raceRun)
	if _, _, err := host.Load(r.t.Context(), r.Docs, record.CoordinatorKey(raceRun), &s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// plan lets planning go on, in processes of their own.
func (r *race) plan() {
	p := plan.New(r.process(8), plan.Options{})
	if r.crashed(p.Submitted(r.t.Context(), events.RunSubmitted{Run: string(raceRun)})) {
		return
	}
	ms, err := r.Queues.Receive(r.t.Context(), host.PlanQueue, 100, time.Minute, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range ms {
		if err := r.Queues.Ack(r.t.Context(), host.PlanQueue, []string{m.Receipt}); err != nil {
			r.t.Fatal(err)
		}
		_, e, err := events.Decode(m.Body)
		if err != nil {
			r.t.Fatal(err)
		}
		r.crashed(plan.New(r.process(8), plan.Options{}).CutRange(r.t.Context(), e.(events.PlanRange)))
	}
}

// coordinate reports all shards in flight that are done, and the end of finalize.
func (r *race) coordinate() {
	s := r.state()
	evs := []run.Event{{Kind: run.Reevaluate}}
	for _, c := range s.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			var d shard.Doc
			if _, found, err := host.Load(r.t.Context(), r.Docs, identity.ShardKey(raceRun, n), &d); err != nil {
				r.t.Fatal(err)
			} else if found {
				evs = append(evs, run.Event{Kind: run.ShardDone, Shard: n, Counts: d.Counts})
			}
		}
	}
	if s.Phase == run.Finalizing {
		var sum record.Summary
		err := input.ReadJSON(r.t.Context(), r.Blobs, record.OutputKey(raceRun, record.SummaryFile), &sum)
		if err == nil {
			evs = append(evs, run.Event{Kind: run.Finalized, Counts: s.Counts})
		}
	}
	r.rand.Shuffle(len(evs), func(i, j int) { evs[i], evs[j] = evs[j], evs[i] })
	p := r.process(4)
	c := coordinate.New(p, input.NewIndex(p.Blobs, p.Docs), coordinate.Options{})
	_, err := c.Apply(r.t.Context(), raceRun, evs)
	r.crashed(err)
}

// answer answers some of the trials in flight.
func (r *race) answer(s run.State) {
	var open []int
	for _, c := range s.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			open = append(open, n)
		}
	}
	r.rand.Shuffle(len(open), func(i, j int) { open[i], open[j] = open[j], open[i] })
	for _, n := range open[:min(r.workers, len(open))] {
		if _, found, err := host.Load(r.t.Context(), r.Docs, identity.ShardKey(raceRun, n), &shard.Doc{}); err != nil {
			r.t.Fatal(err)
		} else if !found {
			r.commit(n)
		}
	}
}

// commit commits a trial. What it comes to depends on its place alone: one in 20 is lost to the
// server, one in 19 is refused, and the others are right as often as the variant's name says.
func (r *race) commit(n int) {
	r.t.Helper()
	r.asked[n]++
	dice := rand.New(rand.NewPCG(uint64(n), 11))
	chance := []float64{0.2, 0.85, 0.1, 0.95}[n%4]
	lost, refused, right := dice.IntN(20) == 0, dice.IntN(19) == 0, dice.Float64() < chance
	d := shard.New(raceRun, n)
	d.State, d.Worker, d.Items, d.Counts = shard.Done, "w", 1, shard.Counts{OK: 1}
	score := grade.Score{}
	if right {
		score.Value = 1
	}
	id := fmt.Sprintf("trial-%d", n)
	row := result.Row{Bytes: fmt.Appendf(nil, `{"id":%q,"messages":[],"completion":"x","finish_reason":"stop",`, id)}
	row.Bytes = append(grade.AppendMembers(row.Bytes, []config.Grade{{Name: "right"}}, [][]grade.Score{{score}}), "}\n"...)
	if lost || refused {
		row.Class = map[bool]fault.Class{true: fault.Engine, false: fault.Refused}[lost]
		d.Counts = shard.Counts{Failed: 1, ByClass: map[string]int{string(row.Class): 1}}
		row.Bytes = dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: id, Class: row.Class, Message: "no",
			Place: dialect.Place{Item: uint64(n), File: "f", Line: uint64(n + 1)}})
	}
	body, out := result.Append(nil, []result.Row{row})
	key := record.ShardObjectKey(raceRun, n, 1, "x")
	hosttest.Put(r.t, r.Ports, key, string(body))
	d.OutputLen = out
	d.Result = &shard.Ref{Key: key, Length: int64(len(body)), Digest: identity.Content(body).String()}
	hosttest.Save(r.t, r.Ports, identity.ShardKey(raceRun, n), d)
}

// files returns the files of the run, with its looks. Of the summary it has what the variants came to.
func (r *race) files() map[string]string {
	r.t.Helper()
	out := map[string]string{}
	for _, dir := range []string{record.OutputKey(raceRun, ""), record.WorkPrefix + string(raceRun) + "/looks/"} {
		infos, err := r.Blobs.List(r.t.Context(), dir, "", blob.MaxList)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, i := range infos {
			text := hosttest.Object(r.t, r.Ports, i.Key)
			if strings.HasSuffix(i.Key, record.SummaryFile) {
				var sum record.Summary
				if err := json.Unmarshal([]byte(text), &sum); err != nil {
					r.t.Fatal(err)
				}
				text = string(record.Encode(sum.Trials)) + sum.Phase
			}
			out[i.Key] = text
		}
	}
	return out
}

// pruned returns the trials that were not done, by variant, and checks that they are those that the
// log says.
func (r *race) pruned() map[string]int {
	r.t.Helper()
	from := map[string]int{}
	for line := range strings.Lines(hosttest.Object(r.t, r.Ports, record.OutputKey(raceRun, trials.PruningFile))) {
		var l record.Look
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			r.t.Fatal(err)
		}
		for _, v := range l.Variants {
			if v.Pruned {
				from[v.Name] = l.From
			}
		}
	}
	out := map[string]int{}
	for line := range strings.Lines(hosttest.Object(r.t, r.Ports, record.OutputKey(raceRun, trials.TrialsFile))) {
		var f trials.Fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			r.t.Fatal(err)
		}
		at, pruned := from[f.Variant]
		pruned = pruned && int(f.Index) >= at
		if pruned != (f.Verdict == trials.Pruned) || pruned == (r.asked[int(f.Index)] > 0) {
			r.t.Fatalf("trial %d of %s, which is pruned from %d on, is %s, and was done %d times", f.Index, f.Variant, at,
				f.Verdict, r.asked[int(f.Index)])
		}
		if pruned {
			out[f.Variant]++
		}
	}
	return out
}

// TestPruningIsTheSameOnAnyNumberOfWorkersWithAnyCrash runs each rule with 1, 3 and 8 workers that
// answer in any order, by functions that crash before or after one of their first writes, again and
// again: pruning log, looks and files are those of a run without a crash, byte for byte.
func TestPruningIsTheSameOnAnyNumberOfWorkersWithAnyCrash(t *testing.T) {
	t.Parallel()
	below := 0.5
	race, halving, fixed := config.DefaultPruning(), config.DefaultPruning(), config.DefaultPruning()
	race.Rule, halving.Rule, fixed.Rule, fixed.Below = config.PruneRace, config.PruneHalving, config.PruneFixed, &below
	for _, c := range []struct {
		rule config.Pruning
		want []string // the variants that are pruned
	}{
		{race, []string{"poor", "poorer"}},
		{halving, []string{"good", "poor", "poorer"}},
		{fixed, []string{"poor", "poorer"}},
	} {
		t.Run(c.rule.Rule, func(t *testing.T) {
			t.Parallel()
			calm := newRace(t, c.rule, 5, false)
			if s := calm.run(); s.Phase != run.CompletedWithErrors { // one in 20 is lost to the server
				t.Fatalf("the run is %s: %s", s.Phase, s.Message)
			}
			want, pruned := calm.files(), calm.pruned()
			if got := slices.Sorted(maps.Keys(pruned)); !slices.Equal(got, c.want) {
				t.Fatalf("%v are pruned, want %v\n%s", pruned, c.want, want[record.OutputKey(raceRun, trials.PruningFile)])
			}
			t.Logf("pruned trials: %v of 288", pruned)
			for _, workers := range []int{1, 3, 8} {
				t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
					t.Parallel()
					r := newRace(t, c.rule, workers, true)
					r.run()
					r.pruned()
					got := r.files()
					if len(got) != len(want) || len(want) < 8 {
						t.Errorf("the files are %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
					}
					for key, text := range want {
						if got[key] != text {
							t.Errorf("%s is\n%s\nwant\n%s", key, got[key], text)
						}
					}
					if r.crashes < 10 {
						t.Errorf("only %d processes crashed", r.crashes)
					}
				})
			}
		})
	}
}
