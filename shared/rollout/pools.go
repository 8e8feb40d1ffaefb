package rollout

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"rollout/shared/config"
	"rollout/shared/fault"
)

// Pools are the tickets of a mission that no epoch answers: positions in the book's pool.
type Pools struct {
	Gate    Span `json:"gate"`
	Confirm Span `json:"confirm"`
	Holdout Span `json:"holdout"`
	// Known is how many tickets of the mission have a known outcome.
	Known int `json:"known"`
}

// setAside divides the tickets into those that epochs answer and those that are set aside,
// and notes the latter in the book. Tickets of one group stay together, so that what is
// learnt from one is not measured on another: a group is set aside only if the outcomes of
// all its tickets are known. A mission without a known outcome has nothing to compare. One
// whose known outcomes do not fill both comparisons is Invalid: it could never accept
// anything, and to go on without them would accept everything.
func (i *importer) setAside(b *Book) (answered, aside []place, err error) {
	c := i.run.Config
	if c.Reflection == nil {
		return i.places, nil, nil
	}
	b.Pools = map[string]Pools{}
	taken := make([]bool, len(i.places))
	put := func(tickets []int) Span {
		from := len(aside)
		for _, t := range tickets {
			aside, taken[t] = append(aside, i.places[t]), true
		}
		return Span{from, len(aside)}
	}
	for n, mission := range c.Missions {
		rest, known := i.whole(n)
		p, g := Pools{Known: known}, c.GateOf()
		if c.Gated() && known > 0 {
			half, need := int(g.Share*float64(known)/2), ruleOf(c, c.Reflection.Candidates, 0).MinTickets()
			gate, left := i.cutGroups(rest, half)
			confirm, left := i.cutGroups(left, half)
			if min(len(gate), len(confirm)) < need {
				return nil, nil, tooFewKnown(mission.Name, known, need, g)
			}
			p.Gate, p.Confirm, rest = put(gate), put(confirm), left
		}
		holdout, _ := i.cutGroups(rest, int(g.HoldoutShare*float64(known)))
		p.Holdout = put(holdout)
		b.Pools[mission.Name] = p
	}
	for t, p := range i.places {
		if !taken[t] {
			answered = append(answered, p)
		}
	}
	return answered, aside, nil
}

// tooFewKnown is the fault of a mission whose known outcomes do not fill two comparisons of
// need tickets each.
func tooFewKnown(mission string, known, need int, g config.Gate) error {
	enough := int(math.Ceil(2 * float64(need) / g.Share))
	why := fmt.Sprintf("the gate and its confirmation need %d tickets each, so about %d with gate.share = %v", need,
		enough, g.Share)
	if known >= enough {
		why = fmt.Sprintf("their groups, which stay whole, are too large for a gate and a confirmation of %d tickets each",
			need)
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("mission %s has %d tickets with a known outcome: %s", mission,
		known, why), Remedy: "add tickets with labels, lower gate.min_tickets, or set gate.off = true to take every plan"}
}

// whole returns the tickets of a mission's groups of which all outcomes are known, in an
// order that the seed decides, group by group; and how many outcomes are known.
func (i *importer) whole(mission int) (tickets []int, known int) {
	open := map[[16]byte]bool{}
	for _, of := range i.facts {
		if int(of.mission) == mission && !of.known {
			open[of.group] = true
		}
	}
	for t, of := range i.facts {
		if int(of.mission) != mission || !of.known {
			continue
		}
		known++
		if !open[of.group] {
			tickets = append(tickets, t)
		}
	}
	slices.SortFunc(tickets, func(x, y int) int {
		return cmp.Or(bytes.Compare(i.facts[x].group[:], i.facts[y].group[:]), cmp.Compare(x, y))
	})
	return tickets, known
}

// cutGroups divides tickets in the order of whole into the first ones, at least count if
// there are so many, and the rest, between two groups. It takes none if
// the groups are so large that it would be more than half as many again.
func (i *importer) cutGroups(tickets []int, count int) (first, rest []int) {
	count = min(count, len(tickets))
	most := count + count/2
	for 0 < count && count < len(tickets) && i.facts[tickets[count-1]].group == i.facts[tickets[count]].group {
		count++
	}
	if count > most { // a group is too large to be set aside
		return nil, tickets
	}
	return tickets[:count], tickets[count:]
}
