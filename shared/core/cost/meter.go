package cost

import "time"

// Meter divides the time of one machine among the shards whose requests it serves. It is
// not safe for concurrent use. Times passed to its methods that run backwards count as no
// time.
//
// It keeps the time that one request would have got which has been in flight from the
// beginning: a shard's part is the difference between the ends and the beginnings of its
// requests, whatever their number.
type Meter struct {
	dollarsAnHour float64
	workers       int64 // that share the machine

	at       time.Time // of the last call
	inFlight int64
	each     int64 // nanoseconds of one request that is always in flight
	rest     int64 // nanoseconds that could not be divided yet; fewer than requests are in flight

	launched  time.Time // of the boot that no shard has settled; zero afterwards
	ready     time.Time // zero during the boot
	idleSince time.Time // while nothing is in flight and the machine is ready
	unclaimed parts     // of shards' runs that were submitted later
}

// parts are times in nanoseconds.
type parts struct{ boot, idle int64 }

// Share is the part of one shard of a machine's time. The zero value is that of a shard
// without a request. Only methods of its Meter change it.
type Share struct {
	began parts // before its requests
	ended int64 // of its requests: their ends, less their beginnings
	open  int64 // of its requests in flight
}

// NewMeter returns the meter of a machine that was launched at that time, or a moment ago if
// launched is zero or later, and costs so many dollars an hour. If several workers share the
// machine, each has a meter, which counts its part of the time.
func NewMeter(launched, now time.Time, dollarsAnHour float64, workers int) *Meter {
	if launched.IsZero() || launched.After(now) {
		launched = now
	}
	return &Meter{dollarsAnHour: dollarsAnHour, workers: int64(max(1, workers)), at: now, launched: launched}
}

// Ready ends the boot: the machine can serve requests. Later calls change nothing.
func (m *Meter) Ready(now time.Time) {
	if !m.ready.IsZero() {
		return
	}
	m.advance(now)
	m.ready, m.idleSince = m.at, m.at
}

// Begin counts a request of the shard. since is when its run was submitted: no earlier time
// is charged to it.
func (m *Meter) Begin(now time.Time, s *Share, since time.Time) {
	m.Ready(now)
	m.advance(now)
	if m.inFlight == 0 {
		m.settle(s, since)
	}
	m.inFlight++
	s.open++
	s.ended -= m.each
}

// End counts the end of a request of the shard.
func (m *Meter) End(now time.Time, s *Share) {
	m.advance(now)
	m.inFlight--
	s.open--
	s.ended += m.each
	if m.inFlight == 0 {
		m.idleSince = m.at
	}
}

// Use returns what the shard has used of the machine until now.
func (m *Meter) Use(now time.Time, s *Share) Use {
	m.advance(now)
	return m.use(s.ended+s.open*m.each, s.began)
}

// Unclaimed returns the boot and the idle time until now that no shard has.
func (m *Meter) Unclaimed(now time.Time) Use {
	m.advance(now)
	p := m.unclaimed
	if !m.launched.IsZero() {
		p.boot += m.bootEnd().Sub(m.launched).Nanoseconds()
	}
	if !m.ready.IsZero() && m.inFlight == 0 {
		p.idle += m.at.Sub(m.idleSince).Nanoseconds()
	}
	return m.use(0, p)
}

// advance divides the time since the last call among the requests in flight.
func (m *Meter) advance(now time.Time) {
	passed := now.Sub(m.at).Nanoseconds()
	if passed <= 0 {
		return
	}
	m.at = now
	if m.inFlight > 0 {
		passed += m.rest
		m.each += passed / m.inFlight
		m.rest = passed % m.inFlight
	}
}

// settle gives the boot and the idle time that end now to the shard, as far as they are
// later than since.
func (m *Meter) settle(s *Share, since time.Time) {
	if !m.launched.IsZero() {
		before, after := split(m.launched, m.ready, since)
		m.unclaimed.boot += before
		s.began.boot += after
		m.launched = time.Time{}
	}
	before, after := split(m.idleSince, m.at, since)
	m.unclaimed.idle += before
	s.began.idle += after
}

// bootEnd returns when the boot ended, or the present time during it.
func (m *Meter) bootEnd() time.Time {
	if m.ready.IsZero() {
		return m.at
	}
	return m.ready
}

// split returns how much of the time between two times is before a third one, and after
// it, in nanoseconds.
func split(from, to, at time.Time) (before, after int64) {
	all := to.Sub(from).Nanoseconds()
	before = min(max(0, at.Sub(from).Nanoseconds()), all)
	return before, all - before
}

// use returns times in nanoseconds as this worker's part of the machine.
func (m *Meter) use(busy int64, p parts) Use {
	micros := func(ns int64) int64 {
		unit := 1000 * m.workers
		return (ns + unit/2) / unit
	}
	return Use{Busy: micros(busy), Boot: micros(p.boot), Idle: micros(p.idle)}.At(m.dollarsAnHour)
}
