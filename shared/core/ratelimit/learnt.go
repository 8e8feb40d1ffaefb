package ratelimit

import (
	"slices"
	"time"
)

// Learnt is what the workers of a pool found out about the limits of its server. They
// only ever lower what the config says.
//
//	                     refused, and that tells of a minute
//	nothing is known ──────────────────────────────────────────▶ Found: what was answered within the minute before
//	                                                               │  ▲       │
//	                     refused again: what is answered now, ◀────┘  └───────┘ calm: more, by larger steps each time
//	                     but no less than before the last raise
//
// The limits that the server states stand beside that, as it stated them last. Of all,
// the lowest holds. It is forgotten when nothing was said for an hour.
type Learnt struct {
	// Stated are the limits that the server states, as of StatedAt.
	Stated   Amount    `json:"stated,omitzero"`
	StatedAt time.Time `json:"stated_at,omitzero"`
	// Found are the limits that its refusals show, since FoundAt, the last change.
	Found   Amount    `json:"found,omitzero"`
	FoundAt time.Time `json:"found_at,omitzero"`
	// Raises counts the changes to more in a row, and Before is Found before the last
	// one. Calm is how long a change must hold until the next raise.
	Raises int           `json:"raises,omitempty"`
	Before Amount        `json:"before,omitzero"`
	Calm   time.Duration `json:"calm,omitempty"`
	// Lowered counts the changes to less in a row. After mostLowered, the refusals come by
	// chance, and count no more until ChanceUntil.
	Lowered     int       `json:"lowered,omitempty"`
	ChanceUntil time.Time `json:"chance_until,omitzero"`
	// WaitUntil is until when the server wants no requests.
	WaitUntil time.Time `json:"wait_until,omitzero"`
	// Episode is the last time that the server refused; nil if it did not.
	Episode *Episode `json:"episode,omitempty"`
}

// Episode is a time in which the server refuses. Requests that began before its end
// belong to it, whatever they meet.
type Episode struct {
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Tokens bool      `json:"tokens,omitempty"` // the limit is one on tokens
	// Least and Most bound the estimate that comes of it; 0 does not.
	Least int64 `json:"least,omitempty"`
	Most  int64 `json:"most,omitempty"`
	// Answered is what the requests of each refused worker used within the minute before,
	// while that is gathered; at most MaxHolders.
	Answered []Answered `json:"answered,omitempty"`
}

// Answered is what the requests of a worker used.
type Answered struct {
	Worker string `json:"worker"`
	Amount
}

const (
	// forgetAfter is how long something that was learnt holds if nothing is said again.
	forgetAfter = time.Hour
	// An estimate that holds for firstCalm is raised by firstRaise percent, and by twice
	// as much each further time, but no more than lastRaise percent. If the server refuses
	// that, the next raise comes after twice the time, but no later than lastCalm.
	firstCalm  = 15 * time.Minute
	lastCalm   = 2 * time.Hour
	firstRaise = 25
	lastRaise  = 100
	// leastLeft is what is left at least of an estimate at which the server refuses, in
	// percent. If it refuses as much after mostLowered changes in a row, it is not for the
	// limit of a minute.
	leastLeft   = 50
	mostLowered = 5
	// minEpisode is how long an episode lasts at least: a new estimate shows within a
	// minute.
	minEpisode = time.Minute
	// gather is for how long after an episode refusals of its requests are counted.
	gather = 10 * time.Second
)

// news is what a worker learnt that the document does not say yet. The zero value is
// nothing. News are comparable.
type news struct {
	stated    Amount
	statedAt  time.Time
	waitUntil time.Time
	refusal   refusal
	raise     bool // the estimate has held, and more is wanted
}

// refusal is the last one that tells of a minute.
type refusal struct {
	at     time.Time // zero: none
	began  time.Time // the request
	tokens bool
}

// learn returns the document with a worker's news. Answered is what its requests used
// within the last minute.
func (d Doc) learn(n news, worker string, answered Amount, now time.Time) Doc {
	l := d.Learnt
	if n.statedAt.After(l.StatedAt) {
		v, stated := l.Stated.vector(), n.stated.vector()
		for k := range v {
			if stated[k] > 0 {
				v[k] = stated[k]
			}
		}
		l.Stated, l.StatedAt = amount(v), n.statedAt.UTC()
	}
	if n.waitUntil.After(l.WaitUntil) {
		l.WaitUntil = n.waitUntil.UTC()
	}
	d.Learnt = l
	if !n.refusal.at.IsZero() {
		d = d.refused(n.refusal, worker, answered)
	}
	if n.raise && d.Learnt.mayRaise(now) {
		d.Learnt = d.Learnt.raised(now)
	}
	return d
}

// refused adds a refusal to the episode that it belongs to, or begins one, and estimates
// the limit again.
func (d Doc) refused(r refusal, worker string, answered Amount) Doc {
	l := d.Learnt
	var e Episode
	switch {
	case l.counts(worker, r.began), r.at.Before(l.ChanceUntil):
		return d
	case l.Episode == nil, r.began.After(l.Episode.Until):
		if e = l.newEpisode(r); l.Lowered > mostLowered {
			d.Learnt = Learnt{Stated: l.Stated, StatedAt: l.StatedAt, WaitUntil: l.WaitUntil,
				ChanceUntil: r.at.Add(forgetAfter).UTC()}
			return d
		}
	default:
		e = *l.Episode
	}
	e.Until = latest(e.Until, l.WaitUntil)
	e.Answered = append(slices.Clone(e.Answered), Answered{worker, answered})
	k := e.resource()
	sum := int64(0)
	for _, a := range e.Answered {
		sum += a.vector()[k]
	}
	for _, g := range d.Grants { // who was not refused yet may have used its share
		if !slices.ContainsFunc(e.Answered, func(a Answered) bool { return a.Worker == g.Worker }) {
			sum += g.Share.vector()[k]
		}
	}
	if sum = max(1, sum, e.Least); e.Most > 0 {
		sum = min(sum, e.Most)
	}
	v := l.Found.vector()
	v[k] = sum
	l.Found, l.FoundAt, l.Raises, l.Before, l.Episode = amount(v), r.at.UTC(), 0, Amount{}, &e
	d.Learnt = l
	return d
}

// counts reports whether the episode has what the worker knows of a refusal of a request
// that began then.
func (l Learnt) counts(worker string, began time.Time) bool {
	e := l.Episode
	return e != nil && !began.After(e.Until) && (e.Answered == nil || len(e.Answered) >= MaxHolders ||
		slices.ContainsFunc(e.Answered, func(a Answered) bool { return a.Worker == worker }))
}

// resource is the index of what the episode is about.
func (e Episode) resource() int {
	if e.Tokens {
		return 1
	}
	return 0
}

// newEpisode returns the episode that begins with a refusal.
func (l *Learnt) newEpisode(r refusal) Episode {
	e := Episode{From: r.at.UTC(), Until: r.at.Add(minEpisode).UTC(), Tokens: r.tokens}
	k := e.resource()
	found, before := l.Found.vector()[k], l.Before.vector()[k]
	l.Calm = max(l.Calm, firstCalm)
	switch {
	case found == 0: // the first estimate
	case l.Raises > 0 && before > 0:
		e.Least, e.Most, l.Calm = before, found, min(2*l.Calm, lastCalm)
	default:
		e.Least, e.Most = max(1, found*leastLeft/100), found
		if r.at.Sub(l.FoundAt) >= l.Calm {
			l.Lowered = 0
		}
		l.Lowered++
	}
	return e
}

// mayRaise reports whether the estimate has held for long enough.
func (l Learnt) mayRaise(now time.Time) bool {
	return !l.Found.IsZero() && now.Sub(l.FoundAt) >= l.Calm
}

// raised raises the estimate.
func (l Learnt) raised(now time.Time) Learnt {
	l.Before = l.Found
	v := l.Found.vector()
	for k, n := range v {
		if n > 0 {
			v[k] = min(n+max(1, n*int64(min(firstRaise<<min(l.Raises, 8), lastRaise))/100), maxStated)
		}
	}
	l.Found, l.FoundAt, l.Episode, l.Lowered = amount(v), now.UTC(), nil, 0
	l.Raises++
	return l
}

// asOf returns what still holds at a time. Times that no rule can have set come from a
// clock that was wrong, and are brought forward.
func (l Learnt) asOf(now time.Time, skew time.Duration) Learnt {
	soon := now.Add(skew).UTC()
	l.StatedAt, l.FoundAt = earliest(l.StatedAt, soon), earliest(l.FoundAt, soon)
	l.WaitUntil = earliest(l.WaitUntil, soon.Add(MaxWait))
	if l.ChanceUntil = earliest(l.ChanceUntil, soon.Add(forgetAfter)); !l.ChanceUntil.After(now) {
		l.ChanceUntil = time.Time{}
	}
	if now.Sub(l.StatedAt) >= forgetAfter {
		l.Stated, l.StatedAt = Amount{}, time.Time{}
	}
	if now.Sub(l.FoundAt) >= forgetAfter+l.Calm {
		l.Found, l.FoundAt, l.Raises, l.Before, l.Calm, l.Lowered = Amount{}, time.Time{}, 0, Amount{}, 0, 0
	}
	if !l.WaitUntil.After(now) {
		l.WaitUntil = time.Time{}
	}
	if e := l.Episode; e != nil && (now.Sub(e.Until) > gather || e.Until.After(soon.Add(MaxWait))) {
		l.Episode = &Episode{From: e.From, Until: earliest(e.Until, soon.Add(MaxWait))}
		if now.Sub(e.Until) >= forgetAfter {
			l.Episode = nil
		}
	}
	return l
}

// saysMoreThan reports whether l is worth a write over an older version of itself: a
// limit, a wait or an episode is new, not only said again.
func (l Learnt) saysMoreThan(old Learnt) bool {
	return l.Stated != old.Stated || l.Found != old.Found || l.WaitUntil.Sub(old.WaitUntil) >= MinGap ||
		episodeOf(l) != episodeOf(old)
}

// episodeOf tells versions of an episode apart.
func episodeOf(l Learnt) (id struct {
	from     time.Time
	answered int
}) {
	if l.Episode != nil {
		id.from, id.answered = l.Episode.From, len(l.Episode.Answered)
	}
	return id
}

// Effective returns the limit that holds while that is known.
func (r Rules) Effective(l Learnt) (e Effective) {
	limit := [resources]int64{}
	from := [resources]Source{}
	for _, s := range []struct {
		of   Amount
		from Source
	}{{r.Limit, FromConfig}, {l.Stated, FromHeaders}, {l.Found, FromRefusals}} {
		for k, n := range s.of.vector() {
			if n > 0 && (limit[k] == 0 || n < limit[k]) {
				limit[k], from[k] = n, s.from
			}
		}
	}
	return Effective{amount(limit), from[0], from[1]}
}

// under returns the rules with the limit that holds while that is known.
func (r Rules) under(l Learnt) Rules {
	r.Limit = r.Effective(l).Amount
	return r
}
