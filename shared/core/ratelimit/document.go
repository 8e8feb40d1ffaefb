package ratelimit

import (
	"slices"
	"strings"
	"time"
)

// Schema is the version of the document.
const Schema = 1

// Times of the rules.
const (
	// Minute is how long a permit can't be used again: a minute, and a margin for the
	// time that requests take from a worker to the server.
	Minute = 61 * time.Second
	// MinGap is the least time between two writes of a document.
	MinGap = time.Second
	// A slice is renewed after renewPerHolder for each holder, and at least after
	// minRenewal. It lasts for lengthFactor/2 times as long, so that a store that is
	// away for one renewal costs nothing.
	renewPerHolder = 2 * time.Second
	minRenewal     = 4 * time.Second
	lengthFactor   = 5
)

// MaxHolders is how many workers share a limit at most. It bounds the document.
const MaxHolders = 200

// Doc is the document limit/<pool>. Its size is bounded by MaxHolders.
type Doc struct {
	Schema int       `json:"schema"`
	At     time.Time `json:"at"` // of the last write
	// Grants are the shares, and the workers that wait for one.
	Grants []Grant `json:"grants,omitempty"`
	// Cooling are permits that were given up within a minute of their use, by worker.
	Cooling []Cooling `json:"cooling,omitempty"`
	// Learnt is what the server said about its limits.
	Learnt Learnt `json:"learnt,omitzero"`
}

// Grant is one worker's share of the limit.
type Grant struct {
	Worker string    `json:"worker"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	// Share is what the worker may use in any minute until then; zero while it waits.
	Share Amount `json:"share"`
	// Want is what the worker could use in a minute. Least is the least share that is
	// of use to it: what its largest request needs.
	Want  Amount `json:"want"`
	Least Amount `json:"least"`
	// Since is when the worker got a share, or began to wait for one. It orders the
	// workers while not every one can have its least share.
	Since time.Time `json:"since"`
}

// Cooling is an amount that becomes free at a time.
type Cooling struct {
	Worker string    `json:"worker"` // that used it
	At     time.Time `json:"at"`
	Amount
}

// Rules are the settings of a limit.
type Rules struct {
	// Limit is that of the config. Of a Doc's methods it is the one that holds.
	Limit Amount
	// Skew is the largest difference of two workers' clocks.
	Skew time.Duration
}

// Ask is what a worker asks for.
type Ask struct {
	Worker      string
	Want, Least Amount
	// Used is what the worker began within the last Minute, by age.
	Used Usage
}

// usageParts are the parts of a Usage.
const usageParts = 6

// Usage is what was begun within the last Minute: its part k was begun at least k,
// and less than k+1 sixths of a Minute ago.
type Usage [usageParts]Amount

// renewal returns after what time a holder renews its slice, by the number of
// holders.
func renewal(holders int) time.Duration {
	return max(minRenewal, time.Duration(holders)*renewPerHolder)
}

// Length returns how long a slice is, by the number of holders.
func Length(holders int) time.Duration { return renewal(holders) * lengthFactor / 2 }

// RenewAt returns when the slice is to be renewed.
func (g Grant) RenewAt() time.Time { return g.From.Add(g.Until.Sub(g.From) * 2 / lengthFactor) }

// Wait returns for how long the document must not be written, so that two writes are
// at least MinGap apart.
func (d Doc) Wait(now time.Time) time.Duration { return d.waitFor(MinGap, now) }

// waitFor returns how long it is until the last write is a gap ago.
func (d Doc) waitFor(gap time.Duration, now time.Time) time.Duration {
	wait := gap - now.Sub(d.At)
	if wait > gap { // the last writer's clock is ahead
		return gap
	}
	return max(0, wait)
}

// Grant returns the worker's grant.
func (d Doc) Grant(worker string) (Grant, bool) {
	i := slices.IndexFunc(d.Grants, func(g Grant) bool { return g.Worker == worker })
	if i < 0 {
		return Grant{}, false
	}
	return d.Grants[i], true
}

// Take returns the document with a new slice of the worker, and that slice. Its
// share is zero if the worker must wait for others to give up theirs. It is false if
// the document has no room for one more worker. Slices that have expired are removed.
func (r Rules) Take(d Doc, ask Ask, now time.Time) (Doc, Grant, bool) {
	d = r.expire(d, now)
	old, held := d.Grant(ask.Worker)
	g := Grant{Worker: ask.Worker, From: now.UTC(), Want: ask.Want.Of(r.Limit).Min(r.Limit),
		Least: ask.Least.Of(r.Limit).Min(r.Limit), Since: now.UTC()}
	g.Want = g.Want.Max(g.Least)
	if held {
		g.Since = old.Since
	}
	d = d.without(ask.Worker)
	if len(d.Grants) >= MaxHolders {
		return d, Grant{}, false
	}
	g.Share = old.Share // which decides whose turn it is
	holders := append(slices.Clone(d.Grants), g)
	g.Until = now.Add(Length(len(holders))).UTC()
	free := r.free(d)
	g.Share = r.share(r.targets(holders, now), len(holders)-1, old.Share, free)
	if !g.Least.Within(g.Share) {
		g.Share = Amount{} // of no use: others can use it
	}
	if old.Share.IsZero() != g.Share.IsZero() {
		g.Since = now.UTC()
	}
	d = r.cool(d, ask.Worker, ask.Used, g.Share, now)
	d.Grants = insert(d.Grants, g)
	d.Schema, d.At = Schema, now.UTC()
	return d, g, true
}

// Leave returns the document without the worker's slice. What it began within the
// last Minute is not free before that minute is over.
func (r Rules) Leave(d Doc, worker string, used Usage, now time.Time) Doc {
	d = r.cool(r.expire(d, now).without(worker), worker, used, Amount{}, now)
	d.Schema, d.At = Schema, now.UTC()
	return d
}

// share returns the share of the i-th holder: its target, as far as that is free.
// What no other worker wants stays with the one that has it.
func (r Rules) share(targets []Amount, i int, old, free Amount) Amount {
	spare := r.Limit
	for _, t := range targets {
		spare = spare.Minus(t)
	}
	keep := old.Min(targets[i].Plus(spare))
	return targets[i].Max(keep).Min(free).Max(Amount{})
}

// free returns what no grant and no cooling amount takes.
func (r Rules) free(d Doc) Amount {
	free := r.Limit
	for _, g := range d.Grants {
		free = free.Minus(g.Share)
	}
	for _, c := range d.Cooling {
		free = free.Minus(c.Amount)
	}
	return free
}

// expire removes the slices and cooling amounts whose time is over. The worker of an
// expired slice probably crashed, and what it used is not known. But it used its share
// at an even pace, as the next worker will: both together exceed the share by no more
// than what the first may have begun ahead of that pace, which cools down. A time that no
// rule can have set comes from a clock that was wrong, and is brought forward.
func (r Rules) expire(d Doc, now time.Time) Doc {
	var grants []Grant
	expired := Doc{Cooling: d.Cooling}
	for _, g := range d.Grants {
		g.Until = earliest(g.Until, now.Add(Length(MaxHolders)+r.Skew))
		g.Since = earliest(g.Since, now.Add(r.Skew))
		if now.Sub(g.Until) <= r.Skew {
			grants = append(grants, g)
		} else {
			expired = r.cool(expired, g.Worker, Usage{g.burst()}, Amount{}, g.Until)
		}
	}
	var cooling []Cooling
	for _, c := range expired.Cooling {
		c.At = earliest(c.At, now.Add(Minute+r.Skew))
		if now.Sub(c.At) <= r.Skew {
			cooling = append(cooling, c)
		}
	}
	d.Grants, d.Cooling = grants, cooling
	return d
}

// cool adds what a worker used of the permits that it gives up, for a document
// without the worker. Kept is the share that it keeps: as long as it used more than
// that within a minute, it begins nothing more, and what it used beyond is not free.
func (r Rules) cool(d Doc, worker string, used Usage, kept Amount, now time.Time) Doc {
	left := Amount{}
	for _, u := range used {
		left = left.Plus(u.Of(r.Limit))
	}
	d.Cooling = slices.Clone(d.Cooling)
	over := left.Minus(kept).Max(Amount{})
	for k := usageParts - 1; k >= 0 && !over.IsZero(); k-- { // the oldest becomes free first
		left = left.Minus(used[k].Of(r.Limit))
		still := left.Minus(kept).Max(Amount{})
		if freed := over.Minus(still); !freed.IsZero() {
			d.Cooling = append(d.Cooling, Cooling{worker, now.Add(Minute - time.Duration(k)*Minute/usageParts).UTC(), freed})
		}
		over = still
	}
	return d
}

// burst returns what the worker may have begun ahead of an even pace.
func (g Grant) burst() Amount {
	ahead := func(share int64) int64 { return share * int64(tolerance) / int64(Minute) }
	return Amount{ahead(g.Share.Requests), ahead(g.Share.Tokens)}.Plus(g.Least).Min(g.Share)
}

// without returns the document without the worker.
func (d Doc) without(worker string) Doc {
	d.Grants = slices.DeleteFunc(slices.Clone(d.Grants), func(g Grant) bool { return g.Worker == worker })
	d.Cooling = slices.DeleteFunc(slices.Clone(d.Cooling), func(c Cooling) bool { return c.Worker == worker })
	return d
}

// insert adds a grant in the order of workers.
func insert(grants []Grant, g Grant) []Grant {
	i, _ := slices.BinarySearchFunc(grants, g, func(a, b Grant) int { return strings.Compare(a.Worker, b.Worker) })
	return slices.Insert(slices.Clone(grants), i, g)
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
