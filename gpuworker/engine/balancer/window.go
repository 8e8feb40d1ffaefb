package balancer

import "time"

// window measures what a server does at one limit. Only requests that began
// within the window count, so that a limit is not judged by the one before.
type window struct {
	since    time.Time
	last     time.Time // when inFlight was last added
	inFlight float64   // requests × seconds
	answers  int       // of requests that began within the window
	allEnded int       // answers, including those of requests that began before
	refused  int
	pieces   float64
	answerS  float64 // seconds that the answers took in all
}

func newWindow(now time.Time) window { return window{since: now, last: now} }

// A window ends after at least minAnswers and minTime, or after maxTime with at
// least fewAnswers.
const (
	minAnswers = 32
	minTime    = 500 * time.Millisecond
	maxTime    = time.Minute
	fewAnswers = 8
)

// addTime adds the time since the last call, with so many requests in flight.
func (w *window) addTime(now time.Time, inFlight int) {
	if w.since.IsZero() {
		*w = newWindow(now)
	}
	w.inFlight += float64(inFlight) * now.Sub(w.last).Seconds()
	w.last = now
}

// addAnswer adds an answer of so many pieces.
func (w *window) addAnswer(began, now time.Time, pieces int64) {
	w.allEnded++
	if began.Before(w.since) {
		return
	}
	w.answers++
	w.pieces += float64(max(pieces, 1))
	w.answerS += now.Sub(began).Seconds()
}

// Some servers refuse a request now and then at any load. Only a larger share of
// refusals than maxRefused, of at least minJudged requests, means overload.
const (
	maxRefused = 0.15
	minJudged  = 20
)

// addRefusal adds a refusal and reports whether the window has too many.
func (w *window) addRefusal(limit int) bool {
	w.refused++
	n := w.refused + w.allEnded
	return n >= max(minJudged, limit) && float64(w.refused) > maxRefused*float64(n)
}

// measure returns what the window showed. It returns false until the window has as
// many answers as the limit, or has lasted for maxTime.
func (w *window) measure(now time.Time, limit int) (measure, bool) {
	d := now.Sub(w.since)
	enough := d >= minTime && w.answers >= max(minAnswers, limit)
	if !enough && (d < maxTime || w.answers < fewAnswers) || w.answerS <= 0 {
		return measure{}, false
	}
	n := w.inFlight / d.Seconds()
	return measure{inFlight: n, goodput: n * w.pieces / w.answerS}, true
}
