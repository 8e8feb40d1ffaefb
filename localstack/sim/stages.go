package sim

import (
	"context"
	"fmt"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// stages are those of a rollout that reflects, in their order, as the bucket has them. Their
// checks say again what package rollout promises, in other words: what follows what, which
// guidance a line shows, and of which step each step was made.
type stages struct {
	*scenario
	all    []rollout.Stage // that asked something, and the one of Ending
	taught [][]string      // of each stage of answers: the missions of the tickets that teach something
}

// checkStages checks the stages of a rollout that reflects, and ended in that state.
func (s *scenario) checkStages(ctx context.Context, st run.State) {
	if !s.tickets.reflects {
		return
	}
	c := &stages{scenario: s}
	for number := s.inputs; number < len(s.files); number++ {
		stage, err := rollout.ReadStage(ctx, s.bucket, s.id, number)
		if err != nil {
			s.t.Fatalf("seed %d: %v", s.seed, err)
		}
		c.all = append(c.all, stage)
	}
	if s.isDone && s.tickets.reference.invalid == nil {
		end, err := rollout.ReadStage(ctx, s.bucket, s.id, len(s.files))
		if err != nil || end.Kind != rollout.Ending {
			s.audit.breakf("the last stage of a complete rollout is %s, %v", end.Kind, err)
		}
		c.all = append(c.all, end)
	}
	c.readLessons(ctx)
	c.checkOrder(ctx)
	c.checkSteps(ctx)
	c.checkLines(ctx)
	c.checkFrontRows(ctx)
	c.checkClaims(ctx)
	c.checkAsked(c.plannedShards(ctx, st))
}

// readLessons reads which tickets of each stage of answers teach something.
func (c *stages) readLessons(ctx context.Context) {
	rows := split(c.object(ctx, record.OutputKey(c.id, rollout.SelectionsFile)))
	for k, s := range c.all {
		var missions []string
		counts := s.Kind == rollout.Answering && !c.isAskedAnew(k)
		for n := 0; counts && n < s.Items/s.Members && len(rows) > 0; n++ {
			var r struct{ Mission, Teaches string }
			c.decode(rows[0], &r)
			if rows = rows[1:]; r.Teaches != "" {
				missions = append(missions, r.Mission)
			}
		}
		c.taught = append(c.taught, missions)
	}
}

// isAskedAnew reports whether the tickets of a stage are asked about again by the next one.
func (c *stages) isAskedAnew(n int) bool { return n+1 < len(c.all) && c.all[n+1].Restarts > 0 }

// isInterrupted reports whether a shard of the stage was claimed more than once.
func (c *stages) isInterrupted(ctx context.Context, s rollout.Stage) bool {
	var e record.IndexEntry
	c.decode(c.object(ctx, record.IndexKey(c.id, s.Input-c.inputs)), &e)
	for n := e.FirstShard; n < e.FirstShard+e.Shards; n++ {
		if c.audit.shards[identity.ShardKey(c.id, n)].Attempt > 1 {
			return true
		}
	}
	return false
}

// follows has the kinds that may follow each kind within a reflection. Behind its end, and
// behind answers, follow those of ends.
var (
	follows = map[rollout.StageKind][]rollout.StageKind{
		rollout.Reanswering:   {rollout.Summarising},
		rollout.Summarising:   {rollout.Critiquing},
		rollout.Critiquing:    {rollout.Consolidating},
		rollout.Consolidating: {rollout.Gating, rollout.Measuring},
		rollout.Gating:        {rollout.Confirming},
		rollout.Confirming:    {rollout.Measuring},
	}
	ends = []rollout.StageKind{rollout.Answering, rollout.Reanswering, rollout.Summarising, rollout.Ending}
)

// course is how far a rollout has come: what decides which stage is due.
type course struct {
	*stages
	pending  map[string]int // by mission: tickets that teach something and that no reflection has looked at
	taught   int            // tickets of the batch that teach something
	replaced int            // tickets of the batch that were taken in the place of others
	failed   int            // reflections in a row
	learnt   bool           // a guidance or a front has changed in the epoch
}

// checkOrder checks which stage follows which.
func (c *stages) checkOrder(ctx context.Context) {
	at := course{stages: c, pending: map[string]int{}}
	for n := 1; n < len(c.all); n++ {
		a, b := c.all[n-1], c.all[n]
		goesOn := slices.Contains(ends, b.Kind) && a.Kind != rollout.Reanswering || // no reflection is under way
			a.Kind == rollout.Reanswering && b.Over != nil
		legal := goesOn || slices.Contains(follows[a.Kind], b.Kind)
		if a.Kind == rollout.Measuring && a.Reflection == nil && b.Kind == rollout.Measuring {
			legal = b.Mission != a.Mission
		}
		isOver := goesOn && a.Reflection != nil
		if isOver && b.Over != nil {
			legal = legal && b.Over.Number == a.Reflection.Number && b.Over.Step == a.Reflection.Step
		}
		if !legal || isOver != (b.Over != nil) {
			c.audit.breakf("stage %d, %s, follows %s, and the reflection that is over is %+v", b.Input, b.Kind, a.Kind, b.Over)
		}
		if a.Kind == rollout.Answering {
			if c.cfg.Runner.OnInterrupt == config.InterruptRestart && a.Restarts < mostRestarts && c.isInterrupted(ctx, a) {
				c.wantStage(b, fmt.Sprintf("batch %d %d-%d, restart %d", a.Batch, a.From, a.To, a.Restarts+1))
				continue
			}
			at.answered(a, c.taught[n-1])
		}
		if isOver && b.Over != nil {
			at.reflected(b.Over.Result)
		}
		at.learnt = at.learnt || c.checkFront(ctx, a, b)
		if goesOn {
			c.wantStage(b, at.due(a))
		}
	}
}

// answered takes in a stage of answers, with the missions of the tickets that teach something.
func (c *course) answered(s rollout.Stage, taught []string) {
	if !s.Replaces { // else it is a part of the same batch
		c.taught, c.replaced = 0, 0
	}
	c.taught += len(taught)
	for _, mission := range taught {
		c.pending[mission]++
	}
}

// reflected takes in how a reflection has ended.
func (c *course) reflected(r rollout.Result) {
	c.learnt = c.learnt || r == rollout.ResultAccepted
	if c.failed++; r != rollout.ResultFailed && r != rollout.ResultRefused {
		c.failed = 0
	}
}

// mostRestarts is how often the tickets of a stage are asked anew.
const mostRestarts = 3

// due returns the stage that is due behind a: replacements, the next reflection, the next
// batch or the end.
func (c *course) due(a rollout.Stage) string {
	runner := c.cfg.Runner
	more := min(runner.RolloutBatchSize-c.taught, runner.MaxReplacements-c.replaced, a.Tickets-a.To)
	if a.Kind == rollout.Answering && more > 0 {
		c.replaced += more
		return fmt.Sprintf("batch %d %d-%d replaces", a.Batch, a.To, a.To+more)
	}
	if c.failed >= c.cfg.Reflection.StopAfter {
		return "end"
	}
	for _, mission := range c.tickets.missions {
		if waits := c.pending[mission]; waits >= c.cfg.Reflection.BatchSize || waits > 0 && a.To >= a.Tickets {
			n := min(waits, c.cfg.Reflection.BatchSize)
			c.pending[mission] -= n
			return fmt.Sprintf("reflection %d of %s on %d", a.Reflections, mission, n)
		}
	}
	from := a.To
	if a.To >= a.Tickets {
		if a.Tickets == 0 || a.Epoch+1 >= c.cfg.Rollout.Epochs || !c.learnt {
			return "end"
		}
		from, c.learnt = 0, false
	}
	return fmt.Sprintf("batch %d %d-%d", a.Batch+1, from, min(a.Tickets, from+runner.RolloutBatchSize))
}

// wantStage checks that the stage is the one that is due.
func (c *stages) wantStage(s rollout.Stage, due string) {
	got := string(s.Kind)
	switch s.Kind {
	case rollout.Answering:
		got = fmt.Sprintf("batch %d %d-%d", s.Batch, s.From, s.To)
		if s.Restarts > 0 {
			got += fmt.Sprintf(", restart %d", s.Restarts)
		} else if s.Replaces {
			got += " replaces"
		}
		if s.Items != (s.To-s.From)*c.tickets.members() {
			got += fmt.Sprintf(" of %d items", s.Items)
		}
	case rollout.Reanswering, rollout.Summarising:
		got = fmt.Sprintf("reflection %d of %s on %d", s.Reflection.Number, s.Reflection.Mission, len(s.Reflection.Cases))
	}
	if got != due {
		c.audit.breakf("stage %d is %s, and due is %s", s.Input, got, due)
	}
}
