package rollout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/core/selection"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Audit is AuditFile, of a run without reflection: how good the guidance of its config is,
// and what was checked so that the run counts as a measurement of it.
type Audit struct {
	Schema   int              `json:"schema"`
	Checks   []Check          `json:"checks"`
	Missions []AuditedMission `json:"missions"`
}

// Check is something that holds for all answers of a sound run.
type Check struct {
	Name   string `json:"name"`
	Holds  bool   `json:"holds"`
	Detail string `json:"detail"` // how many were checked, or the first that it does not hold for
}

// AuditedMission is what was measured in a mission.
type AuditedMission struct {
	Name      string `json:"mission"`
	Guidance  string `json:"guidance"` // the content id of the only step
	Tickets   int    `json:"tickets"`
	Unanimous int    `json:"unanimous"` // tickets whose answers all have one verdict
	Review    int    `json:"review"`    // tickets that a person shall look at
	Labelled  int    `json:"labelled"`  // tickets with a label that were answered
	Right     int    `json:"right"`     // of these, the ones whose selected verdict is the label
	// Accuracy is that share with its interval; null without a labelled ticket.
	Accuracy *Estimate       `json:"accuracy"`
	Decodes  []AuditedDecode `json:"decodes"`
	Verdicts []VerdictCount  `json:"verdicts"` // of the labelled tickets, most frequent first
}

// AuditedDecode is what was measured of the answers of a decode.
type AuditedDecode struct {
	Decode  int            `json:"decode"`
	Answers int            `json:"answers"`
	Failed  map[string]int `json:"failed"` // answers without a verdict, by cause
	Scored  int            `json:"scored"`
	Score   *float64       `json:"score"` // their mean
	sum     float64
}

// VerdictCount is how many tickets with a label got a verdict.
type VerdictCount struct {
	labelledVerdict
	Tickets int `json:"tickets"`
}

type labelledVerdict struct {
	Label   string `json:"label"`
	Verdict string `json:"verdict"` // that was selected; "" if none was
}

// Estimate is a share with its 95 % interval.
type Estimate struct {
	Share float64 `json:"share"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// estimate returns the share of n trials that succeeded with its Wilson score interval
// (Wilson, Probable inference, the law of succession, and statistical inference, 1927).
func estimate(succeeded, n int) *Estimate {
	if n == 0 {
		return nil
	}
	const z = 1.959963984540054 // of 97.5 %
	p, m := float64(succeeded)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return &Estimate{p, max(0, middle-half), min(1, middle+half)}
}

// maxVerdictCounts bounds the different pairs of label and verdict of a mission. Others are
// left out.
const maxVerdictCounts = 1000

// auditor sums up the tickets of a run, and checks them.
type auditor struct {
	run      record.Manifest
	missions map[string]*AuditedMission
	verdicts map[string]map[labelledVerdict]int
	seen     []uint64 // a bit for each ticket, by number
	tickets  int
	answers  int
	wrong    map[string]string // by check: what it does not hold for first
}

// The checks of an audit.
const (
	checkGuidance = "one_guidance"      // all answers were asked under step 0, which is the config's guidance
	checkTickets  = "each_ticket_once"  // no ticket was answered twice and, in a complete run, none is missing
	checkRows     = "all_members"       // each ticket has a row for each decode and sample, in their order
	checkSeeds    = "reproducible_seed" // each seed is the one that ticket, decode and sample give
)

func newAuditor(m record.Manifest) *auditor {
	a := &auditor{run: m, missions: map[string]*AuditedMission{}, verdicts: map[string]map[labelledVerdict]int{},
		wrong: map[string]string{}}
	for _, mission := range m.Config.Missions {
		audited := &AuditedMission{Name: mission.Name}
		for n := range m.Config.DecodesOf() {
			audited.Decodes = append(audited.Decodes, AuditedDecode{Decode: n, Failed: map[string]int{}})
		}
		a.missions[mission.Name], a.verdicts[mission.Name] = audited, map[labelledVerdict]int{}
	}
	return a
}

// fails notes that a check does not hold, for the first time.
func (a *auditor) fails(check, format string, args ...any) {
	if _, known := a.wrong[check]; !known {
		a.wrong[check] = fmt.Sprintf(format, args...)
	}
}

// add takes in a ticket.
func (a *auditor) add(g Group) {
	a.check(g)
	m := a.missions[g.ticket.Mission]
	m.Tickets++
	if s := g.selection; s.Member >= 0 && len(s.Votes) == 1 {
		m.Unanimous++
	}
	if g.selection.Review != selection.NoReview {
		m.Review++
	}
	if g.measured() {
		m.Labelled++
		if match := g.selection.LabelMatch; match != nil && *match {
			m.Right++
		}
		of := labelledVerdict{g.label, g.selection.Answer}
		if counts := a.verdicts[m.Name]; counts[of] > 0 || len(counts) < maxVerdictCounts {
			counts[of]++
		}
	}
	for n, member := range g.members {
		d := &m.Decodes[member.Decode]
		d.Answers++
		if cause := g.parsed[n].Cause; cause != "" {
			d.Failed[cause]++
		}
		if member.score != nil {
			d.Scored++
			d.sum += *member.score
		}
	}
}

// visit notes a ticket. It returns whether it is new.
func (a *auditor) visit(number uint32) bool {
	word, bit := int(number/64), uint64(1)<<(number%64)
	if word >= len(a.seen) {
		a.seen = append(a.seen, make([]uint64, word+1-len(a.seen))...)
	}
	isNew := a.seen[word]&bit == 0
	if isNew {
		a.tickets++
	}
	a.seen[word] |= bit
	return isNew
}

// check checks a ticket.
func (a *auditor) check(g Group) {
	first := g.members[0]
	if !a.visit(first.Number) {
		a.fails(checkTickets, "ticket %d was answered twice", first.Number)
	}
	if len(g.members) != a.run.Config.Members() {
		a.fails(checkRows, "ticket %d has %d of %d rows", first.Number, len(g.members), a.run.Config.Members())
	}
	decode, sample, key := 0, 0, g.ticket.Key()
	for _, m := range g.members {
		a.answers++
		if m.Step != 0 {
			a.fails(checkGuidance, "%s was asked under step %d", m.id, m.Step)
		}
		if m.Number != first.Number || m.Decode != decode || m.Sample != sample {
			a.fails(checkRows, "%s stands in the place of decode %d, sample %d of ticket %d", m.id, decode, sample,
				first.Number)
		}
		if sample++; sample == a.run.Config.DecodesOf()[decode].Count() {
			decode, sample = min(decode+1, len(a.run.Config.DecodesOf())-1), 0
		}
		if want := seedOf(a.run.Config, key, m.Decode, m.Sample); m.Seed != want {
			a.fails(checkSeeds, "%s was asked with the seed %d, not %d", m.id, m.Seed, want)
		}
	}
}

// finish checks what only the end shows, and returns the audit. Tickets is how many a
// complete run has; -1 of another run.
func (a *auditor) finish(tickets int, saved func(mission string) (guidance.Guidance, error)) (Audit, error) {
	out := Audit{Schema: record.Schema}
	if tickets >= 0 && a.tickets != tickets {
		a.fails(checkTickets, "%d of %d tickets have answers", a.tickets, tickets)
	}
	for _, mission := range a.run.Config.Missions {
		m := a.missions[mission.Name]
		id, err := a.guidance(mission, saved)
		if err != nil {
			return out, err
		}
		m.Guidance, m.Accuracy = id, estimate(m.Right, m.Labelled)
		for n := range m.Decodes {
			m.Decodes[n].Score = ratio(m.Decodes[n].sum, float64(m.Decodes[n].Scored))
		}
		m.Verdicts = sortedVerdicts(a.verdicts[m.Name])
		out.Missions = append(out.Missions, *m)
	}
	for _, check := range []string{checkGuidance, checkTickets, checkRows, checkSeeds} {
		c := Check{Name: check, Holds: true, Detail: fmt.Sprintf("%d answers to %d tickets", a.answers, a.tickets)}
		if why, wrong := a.wrong[check]; wrong {
			c.Holds, c.Detail = false, why
		}
		out.Checks = append(out.Checks, c)
	}
	return out, nil
}

// guidance returns the content id of the guidance that a mission's tickets were asked
// under, and checks that it is the config's; "" if the run ended before it was saved.
func (a *auditor) guidance(m config.Mission, saved func(string) (guidance.Guidance, error)) (id string, err error) {
	have, err := saved(m.Name)
	if fault.Is(err, fault.NotFound) && a.tickets == 0 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	want, err := guidance.New(m.Name, m.Scaffold, m.Entries)
	if err != nil {
		return "", err
	}
	if have.ContentID() != want.ContentID() {
		a.fails(checkGuidance, "the guidance of mission %s is not the config's", m.Name)
	}
	return have.ContentID().String(), nil
}

func sortedVerdicts(counts map[labelledVerdict]int) []VerdictCount {
	out := make([]VerdictCount, 0, len(counts))
	for of, n := range maps.All(counts) {
		out = append(out, VerdictCount{of, n})
	}
	slices.SortFunc(out, func(x, y VerdictCount) int {
		return cmp.Or(cmp.Compare(y.Tickets, x.Tickets), cmp.Compare(x.Label, y.Label), cmp.Compare(x.Verdict, y.Verdict))
	})
	return out
}

// publishAudit writes the audit, and notes the checks that do not hold.
func (p *publisher) publishAudit(ctx context.Context) error {
	tickets := -1
	if p.last.Kind == Ending {
		tickets = p.last.Tickets
	}
	a, err := p.audit.finish(tickets, func(mission string) (guidance.Guidance, error) {
		return readGuidance(ctx, p.Blobs, p.Manifest.Run, mission, 0)
	})
	if err != nil {
		return err
	}
	for _, c := range a.Checks {
		if !c.Holds {
			p.out.Unsound = append(p.out.Unsound, c.Name+": "+c.Detail)
		}
	}
	return create(ctx, p.Blobs, record.OutputKey(p.Manifest.Run, AuditFile), append(record.Encode(a), '\n'))
}
