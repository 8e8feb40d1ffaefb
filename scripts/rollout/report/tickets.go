package report

import (
	"cmp"
	"hash/maphash"
	"slices"

	"rollout/shared/rollout"
	"rollout/shared/text"
)

// ticketHash names a ticket among those of the run: a hash of its group and label.
type ticketHash uint64

// ticketState is what is kept of each ticket: it has a fixed size.
type ticketState struct {
	first   uint32 // its place among the tickets, by first appearance
	visits  uint16 // epochs that answered it
	changes uint16 // of the selected verdict, from one epoch to the next
	broken  uint16 // of these, from right to wrong
	right   int8   // of the last verdict: 1 if it is right, 0 if it is wrong, -1 if that is unknown
	ease    float32
	step    int32  // of the last visit
	verdict uint64 // a hash of the last one; 0 without one
}

// mean returns how easy the ticket is: from 0 to 1, over its visits.
func (t ticketState) mean() float32 { return t.ease / float32(t.visits) }

// flow says what became of verdicts when tickets were answered again.
type flow struct {
	Mission  string
	From, To int // steps of the guidance
	Same     int
	Fixed    int // wrong before, right after
	Broken   int // right before, wrong after
	Changed  int // another verdict, and both are wrong or there is no label
}

// Tickets returns how many tickets the flow is about.
func (f flow) Tickets() int { return f.Same + f.Fixed + f.Broken + f.Changed }

// maxFlows bounds the pairs of steps that flows are kept of.
const maxFlows = 1000

type flowKey struct {
	mission  string
	from, to int32
}

// book has the states of all tickets.
type book struct {
	seed   maphash.Seed
	states map[ticketHash]ticketState
	flows  map[flowKey]*flow
}

func newBook() book {
	return book{seed: maphash.MakeSeed(), states: map[ticketHash]ticketState{}, flows: map[flowKey]*flow{}}
}

func (b *book) hash(row rollout.Selected) ticketHash {
	label := ""
	if row.Label != nil {
		label = *row.Label
	}
	return ticketHash(maphash.Comparable(b.seed, [2]string{row.Group, label}))
}

// ease returns how easy a ticket was: the mean score of its answers, else whether the verdict is right, else how far
// the answers agree; 0 without a verdict.
func ease(row rollout.Selected) float64 {
	switch {
	case row.Mean != nil:
		return *row.Mean
	case row.LabelMatch != nil && *row.LabelMatch:
		return 1
	case row.LabelMatch != nil:
		return 0
	}
	return row.Agreement
}

// visit takes in a row of selections.jsonl.
func (b *book) visit(row rollout.Selected) {
	h := b.hash(row)
	t, known := b.states[h]
	now := t
	now.verdict, now.right = 0, -1
	if row.Verdict != nil {
		now.verdict = maphash.String(b.seed, *row.Verdict) | 1
	}
	if row.LabelMatch != nil {
		now.right = 0
		if *row.LabelMatch {
			now.right = 1
		}
	}
	now.step = int32(row.Step)
	now.ease += float32(ease(row))
	now.visits = addCount(now.visits)
	switch {
	case !known:
		now.first = uint32(len(b.states))
	case t.verdict == now.verdict:
		b.flow(row.Mission, t, now).Same++
	case t.right == 0 && now.right == 1:
		now.changes = addCount(now.changes)
		b.flow(row.Mission, t, now).Fixed++
	case t.right == 1 && now.right == 0:
		now.changes, now.broken = addCount(now.changes), addCount(now.broken)
		b.flow(row.Mission, t, now).Broken++
	default:
		now.changes = addCount(now.changes)
		b.flow(row.Mission, t, now).Changed++
	}
	b.states[h] = now
}

// addCount returns n + 1, or the highest count.
func addCount(n uint16) uint16 { return max(n, n+1) }

// flow returns the flow between the steps of two visits; one that is not kept if there are too many.
func (b *book) flow(mission string, before, after ticketState) *flow {
	k := flowKey{mission, before.step, after.step}
	f := b.flows[k]
	if f == nil {
		f = &flow{Mission: mission, From: int(before.step), To: int(after.step)}
		if len(b.flows) < maxFlows {
			b.flows[k] = f
		}
	}
	return f
}

// sortedFlows returns the flows by mission and steps.
func (b *book) sortedFlows() (out []flow) {
	for _, f := range b.flows {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(x, y flow) int {
		return cmp.Or(cmp.Compare(x.Mission, y.Mission), cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To))
	})
	return out
}

// picks are tickets in the order of a list of the page, and how many there are besides them.
type picks struct {
	order []ticketHash
	more  int
}

// pick returns the first tickets, in that order, of those that belong to a list.
func (b *book) pick(belongs func(ticketState) bool, compare func(x, y ticketState) int) (p picks) {
	for h, t := range b.states {
		if belongs(t) {
			p.order = append(p.order, h)
		}
	}
	slices.SortFunc(p.order, func(x, y ticketHash) int {
		return cmp.Or(compare(b.states[x], b.states[y]), cmp.Compare(b.states[x].first, b.states[y].first))
	})
	p.more = max(0, len(p.order)-maxListed)
	p.order = slices.Clone(p.order[:len(p.order)-p.more])
	return p
}

// hardest returns the tickets that are answered worst.
func (b *book) hardest() picks {
	return b.pick(func(t ticketState) bool { return t.mean() < 1 },
		func(x, y ticketState) int { return cmp.Compare(x.mean(), y.mean()) })
}

// flipped returns the tickets whose verdict changed: first those that a right one was lost of most often.
func (b *book) flipped() picks {
	return b.pick(func(t ticketState) bool { return t.changes > 0 }, func(x, y ticketState) int {
		return cmp.Or(cmp.Compare(y.broken, x.broken), cmp.Compare(y.changes, x.changes))
	})
}

// ticket is a ticket as the page shows it.
type ticket struct {
	Name    string // "t17"; "" if it has no verdict
	id      string // of the selected answer of its last visit
	Group   string
	Mission string
	Label   string
	Prompt  string // what was asked, cut
	Answer  string // the selected answer of its last visit, cut
	Visits  []visit
	Left    int // visits that are left out
	Why     string
}

// visit is an epoch's answer to a ticket.
type visit struct {
	Epoch, Step int
	Verdict     string
	Agreement   float64
	Mean        *float64
	Right       *bool
}

// Class returns the class of the style sheet that says whether the verdict is right; "" if that is unknown.
func (v visit) Class() string {
	switch {
	case v.Right == nil:
		return ""
	case *v.Right:
		return "good"
	}
	return "bad"
}

// maxVisits bounds the visits of a ticket that are shown: the last ones.
const maxVisits = 8

// Bounds of texts, in bytes.
const (
	nameBytes  = 80
	valueBytes = 48
	textBytes  = 240
)

func short(s string) string { return text.Truncate(s, valueBytes, "…") }

// add appends the visit of a row.
func (t *ticket) add(row rollout.Selected) {
	t.Group, t.Mission = text.Truncate(row.Group, nameBytes, "…"), text.Truncate(row.Mission, nameBytes, "…")
	if t.id = row.ID; row.ID != "" {
		t.Name = text.Truncate(ticketOf(row.ID), valueBytes, "…")
	}
	if row.Label != nil {
		t.Label = short(*row.Label)
	}
	v := visit{Epoch: row.Epoch + 1, Step: row.Step, Agreement: row.Agreement, Mean: row.Mean, Right: row.LabelMatch}
	if row.Verdict != nil {
		v.Verdict = short(*row.Verdict)
	}
	if len(t.Visits) == maxVisits {
		t.Visits, t.Left = t.Visits[1:], t.Left+1
	}
	t.Visits = append(t.Visits, v)
}
