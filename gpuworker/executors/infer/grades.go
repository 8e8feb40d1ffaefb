package infer

import (
	"context"
	"strconv"
	"sync"

	"rollout/gpuworker/grading"
	"rollout/shared/dialect"
	"rollout/shared/grade"
)

// grades are the gradings of one shard that are under way. An answer that waits
// for scores holds no slot. Its item gets its row when they are there, or when
// the shard's context ends: then with a cause in place of the missing ones.
type grades struct {
	graders *grading.Graders // nil in a run without graders
	// ctx is the shard's own. It goes on when a fault of the engine ends the
	// requests, because the answers that are there can still be graded.
	ctx  context.Context
	open sync.WaitGroup
}

// awaitRoom waits while the scoring services are behind. It returns false if
// nothing more may begin.
func (g *grades) awaitRoom(ctx context.Context, stopping <-chan struct{}) bool {
	return g.graders == nil || g.graders.AwaitRoom(ctx, stopping)
}

// wait waits until all gradings have ended.
func (g *grades) wait() { g.open.Wait() }

// grade has the answers of the item scored, and makes its row then.
func (a *answers) grade(r dialect.Result) {
	_, prompt := a.item.Prompt()
	cases := make([]grade.Case, len(a.got))
	for k, answer := range a.got {
		cases[k] = grade.Case{ID: a.id.String(), Prompt: prompt, Answer: answer.Text}
		if len(a.got) > 1 {
			cases[k].ID += "-" + strconv.Itoa(k)
		}
	}
	g := &a.grades
	g.open.Add(1)
	ended := a.shard.TrackGrading()
	g.graders.Grade(g.ctx, a.shard.Lines[a.index].Bytes, cases, func(members []byte) {
		defer g.open.Done()
		defer ended()
		r.Scores = members
		a.put(nil, r)
	})
}
