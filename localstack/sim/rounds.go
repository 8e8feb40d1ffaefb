package sim

import (
	"context"
	"encoding/json"

	"rollout/localstack/rounds"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// mostRounds bounds the rounds of a run whose plan grows.
const mostRounds = 4

// drawRounds draws how many rounds the run has; 0 makes it a batch, as two thirds of
// all runs are.
func (w *world) drawRounds() int {
	if w.rand.intN("grows", 3) > 0 {
		return 0
	}
	return 1 + w.rand.intN("rounds", mostRounds)
}

// judges is the pool that answers judged rounds.
const judges = "judges"

// drawJudged draws which round is judged, in half of the runs that have several. A
// world with a limit has one pool.
func (w *world) drawJudged() int {
	if w.rounds < 2 || w.http != nil || w.limit.Amount != (ratelimit.Amount{}) || w.rand.intN("judges a round", 2) == 0 {
		return 0
	}
	return 2 + w.rand.intN("judged", w.rounds-1)
}

// kinds are the kinds of run that the world's processes know.
func (w *world) kinds() kind.Table {
	k := rounds.Kind(w.rounds)
	if w.judged > 0 {
		k = rounds.WithJudge(w.rounds, w.judged)
	}
	k.Constraints = func(config.Run) schedule.Constraints { return w.constraints.Constraints }
	return w.constraints.addTo(kind.Table{}.With(k))
}

// appended returns what the kind must have appended as that input, behind index items
// and the answers of the round before; no lines if the plan must not have grown.
func (s *scenario) appended(input int, answers [][]byte, index uint64, st run.State) (f file) {
	m := record.Manifest{Inputs: make([]record.Input, s.inputs)}
	if s.judging {
		return s.asked(m, input, index, st)
	}
	if s.tickets != nil {
		return s.nextStage(m, input, index, st)
	}
	round := rounds.Round(m, input)
	if s.rounds == 0 || round > s.rounds || st.Reason != run.ReasonDone && index >= st.Items {
		return f
	}
	f.key = m.InputName(input)
	firstShared := 2 // the first round of the role answer that has the shared id
	if s.judged == 2 {
		firstShared = 3
	}
	for n, row := range answers {
		b, err := rounds.Line(round, n, row)
		if err != nil {
			s.t.Fatal(err)
		}
		l := line{number: n + 1, bytes: b}
		var own struct{ ID string }
		if err := json.Unmarshal(b, &own); err != nil {
			s.t.Fatal(err)
		}
		if l.id = own.ID; round == s.judged {
			l.role, l.id = 1, "" // its ids are compared with none
		} else if l.id == rounds.SharedID && round > firstShared {
			l.class = fault.DuplicateID
		}
		f.lines = append(f.lines, l)
	}
	return f
}

// checkRoles checks the summary's counts of a run that has that many items of the role
// answer and of the role judge.
func (s *scenario) checkRoles(sum record.Summary, st run.State, answers, judged uint64) {
	if s.tickets != nil && s.tickets.reflects {
		s.checkReflectingRoles(sum)
		return
	}
	if judged == 0 {
		if len(sum.Roles) > 0 {
			s.audit.breakf("the summary of a run of one role has %+v", sum.Roles)
		}
		return
	}
	name, failed := rounds.Judge, uint64(0)
	if s.judging {
		name, failed = "judge-"+judgeName, s.refusedVerdicts()
	}
	if len(sum.Roles) != 2 || sum.Roles[0].Name != record.RoleAnswer || sum.Roles[1].Name != name ||
		sum.Roles[1].Pool != judges || sum.Roles[1].Model != rounds.JudgeModel {
		s.audit.breakf("the summary has the roles %+v", sum.Roles)
		return
	}
	for i, want := range []uint64{answers, judged} {
		if r := sum.Roles[i]; r.Items != want || r.Completed+r.Failed != want {
			s.audit.breakf("the summary has %+v, want %d items", r, want)
		}
	}
	if r := sum.Roles[1]; st.Reason == run.ReasonDone && r.Failed > failed+uint64(r.FailedByClass[string(fault.Pruned)]) {
		s.audit.breakf("the summary of a complete run has %+v", r)
	}
}

// checkMadeFrom checks that the last appended object names the results that it was
// made from.
func (s *scenario) checkMadeFrom(ctx context.Context) {
	var p record.Plan
	if _, _, err := host.Load(ctx, s.docs, record.PlanKey(s.id), &p); err != nil {
		s.t.Fatal(err)
	}
	if p.Appended == nil {
		return
	}
	input := func(e record.IndexEntry) int { return max(e.Input, s.inputs-1) } // all inputs are one round
	h := identity.NewHasher()
	for k := range p.Appended.First {
		var e record.IndexEntry
		if err := json.Unmarshal(s.object(ctx, record.IndexKey(s.id, k)), &e); err != nil {
			s.t.Fatal(err)
		}
		if input(e) != p.Appended.Input-1 {
			continue
		}
		for n := e.FirstShard; n < e.FirstShard+e.Shards; n++ {
			var d shard.Doc
			_, found, err := host.Load(ctx, s.docs, identity.ShardKey(s.id, n), &d)
			if !found && s.prunedShards.Has(n) {
				continue
			}
			if err != nil || d.Result == nil {
				s.t.Fatalf("seed %d: shard %d of a finished round: %+v, %v", s.seed, n, d, err)
			}
			h.Write([]byte(d.Result.Digest))
		}
	}
	if got := h.Sum().String(); got != p.Appended.MadeFrom {
		s.audit.breakf("input %d was made from %s, and the results before it are %s", p.Appended.Input,
			p.Appended.MadeFrom, got)
	}
}
