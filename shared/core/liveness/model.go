package liveness

import (
	"slices"
	"time"
)

const (
	// leastAnswers is how many answers give a pace.
	leastAnswers = 8
	maxAnswers   = 64 // that the pace is taken of
	// pacePercentile of the answers took at most the pace a token, and a whole request
	// may take paceMargin times as long.
	pacePercentile = 90
	paceMargin     = 3
	// longAnswer is from how many tokens on an answer says more of the pace than of the
	// wait for the first token.
	longAnswer = 16
	// maxLongest bounds the time that a whole request without counters may take.
	maxLongest = time.Hour
	// minCut is the least age of a cut. Gateways give up after 30 s and more.
	minCut = 10 * time.Second
	// Two cuts are at one age if they differ by less than its cutShare-th part.
	cutShare = 20
	// Events within an episode have one cause.
	episode = 5 * time.Second
	// maxEvents is how many cuts at one age, or false alarms, make all requests streams.
	maxEvents = 2
)

// model is what is known of one model of a server.
type model struct {
	paces   [maxAnswers]pace
	answers int  // with known tokens; the last maxAnswers are in paces
	streams bool // for good
	// slow is the percentile pacePercentile of the first slowOf answers' paces.
	slow   float64
	slowOf int

	cutAge      time.Duration // of the last cut
	cuts        int           // at that age, in different episodes
	cutAt       time.Time     // the last one
	falseAlarms int           // in different episodes
	alarmAt     time.Time     // the last one
}

// pace is how fast one answer came.
type pace struct {
	perToken float64 // seconds
	tokens   int64
	inFlight int
}

func (m *model) paced() bool { return m.answers >= leastAnswers }

func (m *model) answered(whole bool, took time.Duration, tokens int64, known bool, inFlight int) {
	switch {
	case known && tokens > 0:
		m.paces[m.answers%maxAnswers] = pace{took.Seconds() / float64(tokens), tokens, max(1, inFlight)}
		m.answers++
	case !known && whole:
		m.streams = true
	}
	if whole && took > m.cutAge {
		m.cuts = 0
	}
}

func (m *model) cut(age time.Duration, now time.Time) {
	if d := (age - m.cutAge).Abs(); d > m.cutAge/cutShare {
		m.cutAge, m.cuts, m.cutAt = age, 1, now
		return
	}
	if now.Sub(m.cutAt) > episode {
		m.cuts++
	}
	m.cutAt = now
	m.streams = m.streams || m.cuts >= maxEvents
}

func (m *model) falseAlarm(now time.Time) {
	if m.falseAlarms == 0 || now.Sub(m.alarmAt) > episode {
		m.falseAlarms++
	}
	m.alarmAt = now
	m.streams = m.streams || m.falseAlarms >= maxEvents
}

// longest returns how long the longest answer may take, with so many requests in flight;
// 0 without a pace. A server that answers one request after the other takes longer by as
// much as more are in flight than were when the answers came that gave the pace.
func (m *model) longest(maxTokens int64, inFlight int) time.Duration {
	if !m.paced() || maxTokens <= 0 {
		return 0
	}
	if m.slowOf != m.answers {
		m.slow, m.slowOf = m.perToken(pacePercentile), m.answers
	}
	most := 1
	for _, p := range m.known() {
		most = max(most, p.inFlight)
	}
	seconds := paceMargin * m.slow * float64(maxTokens) * max(1, float64(inFlight)/float64(most))
	if seconds >= maxLongest.Seconds() {
		return maxLongest
	}
	return time.Duration(seconds * float64(time.Second))
}

// generated estimates the tokens of an answer after that time.
func (m *model) generated(age time.Duration) float64 {
	if m.answers == 0 {
		return 0
	}
	perToken := m.perToken(50)
	if perToken <= 0 {
		return 0
	}
	return age.Seconds() / perToken
}

// known returns the paces of the last answers.
func (m *model) known() []pace { return m.paces[:min(m.answers, maxAnswers)] }

// perToken returns a percentile of the seconds a token, of long answers if there are
// enough.
func (m *model) perToken(percentile int) float64 {
	var long, every []float64
	for _, p := range m.known() {
		every = append(every, p.perToken)
		if p.tokens >= longAnswer {
			long = append(long, p.perToken)
		}
	}
	if 2*len(long) >= leastAnswers {
		every = long
	}
	slices.Sort(every)
	return every[(len(every)-1)*percentile/100]
}
