package share

import "rollout/shared/core/identity"

// Turns decides whose request begins next, so that runs which always have requests get
// shares by their weights. The zero value is ready. It is not safe for concurrent use.
//
// It is start-time fair queueing. Each request has a start and a finish in virtual time:
//
//	start  = the finish of the run's request before, but not earlier than virtual time - Credit/weight
//	finish = start + 1/weight
//
// The request with the least start begins next, and virtual time goes on to its start. Of
// two runs that always wait, the difference of requests/weight is therefore never more than
// 1/weight of the one + 1/weight of the other. A run that was away for a moment catches up
// with Credit requests at most; one that comes anew begins at the present virtual time.
// A run waits for at most weight(other)/weight(own) + Credit + 2 requests of each other
// run: none starves.
type Turns struct {
	now      float64 // virtual time
	finished map[identity.RunID]float64
}

// Credit is how many requests a run may make up for that it could not begin in its turn,
// because its next one was not ready.
const Credit = 32

// maxFinished is how many runs are remembered until those are forgotten that have nothing
// to make up for or to wait for.
const maxFinished = 1024

// Start returns the start of the next request of a run of that weight, in virtual time.
// The run with the least one is next.
func (t *Turns) Start(run identity.RunID, weight float64) float64 {
	at, ok := t.finished[run]
	if !ok {
		return t.now
	}
	return max(at, t.now-Credit/weight)
}

// Begin counts a request of the run.
func (t *Turns) Begin(run identity.RunID, weight float64) {
	start := t.Start(run, weight)
	t.now = max(t.now, start)
	if t.finished == nil {
		t.finished = map[identity.RunID]float64{}
	}
	if _, ok := t.finished[run]; !ok && len(t.finished) >= maxFinished {
		t.forget()
	}
	t.finished[run] = start + 1/weight
}

// Cancel takes back a request of the run that was counted and does not begin.
func (t *Turns) Cancel(run identity.RunID, weight float64) {
	if at, ok := t.finished[run]; ok {
		t.finished[run] = at - 1/weight
	}
}

// forget drops the runs whose last request is over in virtual time. If each has one to
// come, it drops all: they begin again at the present virtual time.
func (t *Turns) forget() {
	for run, at := range t.finished {
		if at <= t.now {
			delete(t.finished, run)
		}
	}
	if len(t.finished) >= maxFinished {
		clear(t.finished)
	}
}
