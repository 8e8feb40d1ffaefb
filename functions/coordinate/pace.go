package coordinate

import (
	"context"
	"slices"
	"sync"
	"time"

	"rollout/shared/clock"
	"rollout/shared/core/identity"
)

// paceWindow is the time over which Options.MostSaves counts.
const paceWindow = 10 * time.Second

// pace holds back the steps of runs whose documents were saved often, for stores that
// take about one write a second to a document. A run may save several times at once,
// as it does when it ends; it then waits until the oldest of those saves is paceWindow
// old. It is safe for concurrent use.
//
// A process knows its own saves. Of a run that it loads for the first time it assumes
// that another process has just used up what is allowed.
type pace struct {
	clock clock.Clock
	most  int // 0 means any number

	mu    sync.Mutex
	saves map[identity.RunID][]time.Time // the last ones of each run, at most `most`, oldest first
}

func newPace(c clock.Clock, most int) *pace {
	return &pace{clock: c, most: most, saves: map[identity.RunID][]time.Time{}}
}

// wait returns as soon as the run may be saved once more, or ctx ends. waited is false
// if it may be saved at once.
func (p *pace) wait(ctx context.Context, id identity.RunID) (waited bool, err error) {
	rest := p.rest(id)
	if rest <= 0 {
		return false, nil
	}
	due := time.NewTimer(rest)
	defer due.Stop()
	select {
	case <-due.C:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}

// rest is how long the run has to wait.
func (p *pace) rest(id identity.RunID) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	saves := p.saves[id]
	if p.most == 0 || len(saves) < p.most {
		return 0
	}
	return paceWindow - p.clock.Now().Sub(saves[0])
}

// loaded notes when the run was saved last, if this process has not saved it itself.
func (p *pace) loaded(id identity.RunID, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most > 0 && p.saves[id] == nil && p.clock.Now().Sub(at) < paceWindow {
		p.saves[id] = slices.Repeat([]time.Time{at}, p.most)
	}
}

// saved notes a save of the run, and forgets runs that were not saved for paceWindow.
func (p *pace) saved(id identity.RunID) {
	if p.most == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	for other, saves := range p.saves {
		if now.Sub(saves[len(saves)-1]) > paceWindow {
			delete(p.saves, other)
		}
	}
	saves := append(p.saves[id], now)
	p.saves[id] = saves[max(0, len(saves)-p.most):]
}
