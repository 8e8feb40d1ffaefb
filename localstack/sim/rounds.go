package sim

import (
	"context"
	"encoding/json"

	"rollout/localstack/rounds"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
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

// kinds are the kinds of run that the world's processes know.
func (w *world) kinds() kind.Table {
	return w.constraints.addTo(kind.Table{}.With(rounds.Kind(w.rounds)))
}

// appended returns what the kind must have appended as that input, behind index items
// and the answers of the round before; no lines if the plan must not have grown.
func (s *scenario) appended(input int, answers [][]byte, index uint64, st run.State) (f file) {
	m := record.Manifest{Inputs: make([]record.Input, s.inputs)}
	round := rounds.Round(m, input)
	if s.rounds == 0 || round > s.rounds || st.Reason != run.ReasonDone && index >= st.Items {
		return f
	}
	f.key = m.InputName(input)
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
		if l.id = own.ID; l.id == rounds.SharedID && round > 2 {
			l.class = fault.DuplicateID
		}
		f.lines = append(f.lines, l)
	}
	return f
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
			if _, _, err := host.Load(ctx, s.docs, identity.ShardKey(s.id, n), &d); err != nil || d.Result == nil {
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
