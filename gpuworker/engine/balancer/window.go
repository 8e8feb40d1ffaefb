package balancer

import "time"

// window gathers what a server did at one limit. Only requests that began
// within it count, so that a limit is not judged by what the last one did.
type window struct {
	since   time.Time
	last    time.Time // when in-flight time was last added up
	area    float64   // requests × seconds in flight
	answers int
	done    int // answers, also of requests that began before
	refused int
	pieces  float64
	busy    float64 // seconds that the answers took together
}

func newWindow(now time.Time) window { return window{since: now, last: now} }

// A window ends when it has seen enough, or for long enough.
const (
	leastAnswers = 32
	leastTime    = 500 * time.Millisecond
	longestTime  = time.Minute
	fewAnswers   = 8
)

// moved adds up the time since the number of requests in flight last moved.
func (w *window) moved(now time.Time, inFlight int) {
	if w.since.IsZero() {
		*w = newWindow(now)
	}
	w.area += float64(inFlight) * now.Sub(w.last).Seconds()
	w.last = now
}

func (w *window) answered(began, now time.Time, pieces int64) {
	w.done++
	if began.Before(w.since) {
		return
	}
	w.answers++
	w.pieces += float64(max(pieces, 1))
	w.busy += now.Sub(began).Seconds()
}

// Some servers refuse a request now and then, whatever they have to do. Only
// one that refuses more than this, of so many, has too much.
const (
	refusedMax  = 0.15
	leastJudged = 20
)

// refusal takes in a refusal; true if there are too many.
func (w *window) refusal(limit int) bool {
	w.refused++
	n := w.refused + w.done
	return n >= max(leastJudged, limit) && float64(w.refused) > refusedMax*float64(n)
}

// measure returns what the window showed, once it has seen a turnover of the
// limit.
func (w *window) measure(now time.Time, limit int) (measure, bool) {
	d := now.Sub(w.since)
	enough := d >= leastTime && w.answers >= max(leastAnswers, limit)
	if !enough && (d < longestTime || w.answers < fewAnswers) || w.busy <= 0 {
		return measure{}, false
	}
	n := w.area / d.Seconds()
	return measure{inFlight: n, goodput: n * w.pieces / w.busy}, true
}
