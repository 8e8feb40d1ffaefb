// Package share divides the requests of a pool over its open runs, by weight.
//
//	share/<pool> ──▶ weights at now ──▶ fractions ──▶ coordinate: the window of each run
//	                                └──▶ worker: Turns, whose request begins next
//
// Coordinate lists the runs of a pool in a Doc. How heavy a run is depends on its priority
// and, near its deadline, on the time: everyone computes that from the entry, so that the
// document changes only when a run opens or ends. The package is pure.
package share

import (
	"slices"
	"time"

	"rollout/shared/core/identity"
)

// Schema is the version of the document.
const Schema = 1

// Run is an open run as it takes part in the division of a pool.
type Run struct {
	Run identity.RunID `json:"run"`
	// Weight is that of the run's priority, more than 0.
	Weight   float64   `json:"weight"`
	Created  time.Time `json:"created,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"` // zero: none
	// Sent says that all shards which are planned for the pool were sent.
	Sent bool `json:"sent,omitempty"`
	// SentAlone says that some of them were sent while no other run shared the pool: they
	// may be in the work queue, behind those of others.
	SentAlone bool `json:"alone,omitempty"`
}

// A deadline raises the weight of its run in the last 1/hurried of the time from the
// submission to the deadline, up to maxHurry times.
const (
	hurried  = 4
	maxHurry = 8
)

// WeightAt returns the weight of the run at now. It is Weight until a quarter of the time
// from Created to Deadline is left. From then on it grows as the time left shrinks, up to
// maxHurry times Weight.
//
// The rate that a run needs is the work that is left, divided by the time that is left. A
// run that is in time needs the same rate until its end. One that is late has as much work
// left while its time shrinks: it needs a share that grows with 1/time. The bound keeps a
// share for the other runs, whatever the deadline is: none starves.
func (r Run) WeightAt(now time.Time) float64 { return r.Weight * r.Hurry(now) }

// Hurry returns by what the deadline multiplies the weight at now: 1 to maxHurry.
func (r Run) Hurry(now time.Time) float64 {
	if r.Deadline.IsZero() {
		return 1
	}
	left, all := r.Deadline.Sub(now), r.Deadline.Sub(r.Created)
	if left <= 0 {
		return maxHurry
	}
	return min(max(1, all.Seconds()/hurried/left.Seconds()), maxHurry)
}

// MaxRuns is how many runs a Doc lists at most. Further ones are served with their own
// weight, and are not counted in the fractions of others.
const MaxRuns = 1000

// Doc is the document share/<pool>: the runs that are running and need the pool, in the order
// of their ids. Only coordinate writes it.
type Doc struct {
	Schema int   `json:"schema"`
	Runs   []Run `json:"runs"`
}

// Find returns the entry of the run.
func (d Doc) Find(id identity.RunID) (Run, bool) {
	i, ok := d.index(id)
	if !ok {
		return Run{}, false
	}
	return d.Runs[i], true
}

func (d Doc) index(id identity.RunID) (int, bool) {
	return slices.BinarySearchFunc(d.Runs, id, func(r Run, id identity.RunID) int {
		switch {
		case r.Run < id:
			return -1
		case r.Run > id:
			return 1
		}
		return 0
	})
}

// With returns the document with the entry of r, and whether that changes it. It changes
// no memory of d.
func (d Doc) With(r Run) (next Doc, changed bool) {
	i, ok := d.index(r.Run)
	switch {
	case ok && d.Runs[i].equal(r), !ok && len(d.Runs) >= MaxRuns:
		return d, false
	case ok:
		d.Runs = slices.Clone(d.Runs)
		d.Runs[i] = r
	default:
		d.Runs = slices.Insert(slices.Clone(d.Runs), i, r)
	}
	d.Schema = Schema
	return d, true
}

func (r Run) equal(o Run) bool {
	return r.Run == o.Run && r.Weight == o.Weight && r.Sent == o.Sent && r.SentAlone == o.SentAlone &&
		r.Created.Equal(o.Created) && r.Deadline.Equal(o.Deadline)
}

// Without returns the document without the run, and whether that changes it. It changes no
// memory of d.
func (d Doc) Without(id identity.RunID) (next Doc, changed bool) {
	i, ok := d.index(id)
	if !ok {
		return d, false
	}
	d.Runs = slices.Delete(slices.Clone(d.Runs), i, i+1)
	d.Schema = Schema
	return d, true
}

// Total returns the sum of the weights at now.
func (d Doc) Total(now time.Time) (sum float64) {
	for _, r := range d.Runs {
		sum += r.WeightAt(now)
	}
	return sum
}

// Fraction returns which part of the pool's requests r may have at now, whether it is
// listed or not: more than 0, and 1 if no other run is listed.
func (d Doc) Fraction(r Run, now time.Time) float64 {
	own := r.WeightAt(now)
	sum := own
	for _, o := range d.Runs {
		if o.Run != r.Run {
			sum += o.WeightAt(now)
		}
	}
	return own / sum
}

// Others reports whether a run other than id is listed.
func (d Doc) Others(id identity.RunID) bool {
	return slices.ContainsFunc(d.Runs, func(r Run) bool { return r.Run != id })
}
