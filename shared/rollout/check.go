package rollout

import (
	"bytes"
	"slices"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// checker refuses tickets that a run cannot ask about, before anything is asked.
type checker struct {
	asker  *asker
	parser Parser
	shows  bool // the system message shows the guidance
}

func newChecker(c config.Run) (*checker, error) {
	p, err := NewParser(c.AnswerOf())
	if err != nil {
		return nil, err
	}
	a := newAsker(c)
	for _, m := range c.Missions {
		if a.guidance[m.Name], err = guidance.New(m.Name, m.Scaffold, m.Entries); err != nil {
			return nil, err
		}
	}
	return &checker{asker: a, parser: p,
		shows: strings.Contains(c.RolloutOf().System, "{"+config.PlaceGuidance+"}")}, nil
}

// CheckConfig returns what is wrong with the guidance and the rules of a run whose keys
// are checked, as one Invalid error.
func CheckConfig(c config.Run) error {
	if _, err := newChecker(c); err != nil || c.Reflection == nil {
		return err
	}
	lim := limitsOf(*c.Reflection)
	for _, m := range c.Missions {
		g, err := guidance.New(m.Name, m.Scaffold, m.Entries)
		if err == nil {
			err = lim.Check(g)
		}
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "the guidance of mission %s", m.Name)
		}
	}
	if !c.Gated() {
		return nil
	}
	return fault.Wrap(ruleOf(c, c.Reflection.Candidates, 0).Check(), "gate")
}

// maxRequest bounds the bytes of a member's line, far below what a line may have: later
// guidance may be longer than the first.
const maxRequest = 4 << 20

// escapedBytes is the most bytes of a byte in a JSON string, and memberBytes bounds what a
// member's line has beside the texts of its ticket.
const (
	escapedBytes = len(`\u0000`)
	memberBytes  = 64 << 10
)

// check returns why a ticket cannot be asked about. Its errors are Invalid, and have the
// class too_long if they are about its size.
func (c *checker) check(t Ticket) error {
	if t.Messages != nil && !c.shows {
		return fault.New(fault.Invalid, "its messages leave no place for the guidance: write {guidance} into rollout.system")
	}
	if t.Label != "" && !c.parser.counts(c.parser.Normalize(t.Label)) {
		return fault.New(fault.Invalid, "its label %.64q is not in answer.verdicts: no answer could match it", t.Label)
	}
	values := c.asker.values(t)
	size := c.asker.system.Size(values) + c.asker.prompt.Size(values) + len(t.Messages) + len(t.Rest)
	if size > maxRequest { // before it is rendered
		return tooLong(size)
	}
	if t.plain() && size <= (maxRequest-memberBytes)/escapedBytes {
		return nil // whatever is rendered of it is neither too long nor refused
	}
	for line := range c.asker.ask("", Stage{}, ticketAt{Ticket: t}) {
		if len(line) > maxRequest {
			return tooLong(len(line))
		}
		_, err := dialect.Parse(dialect.Plain, line)
		return fault.WithKind(fault.Invalid, err, "its request is refused") // the other members have the same one
	}
	return nil
}

// plain reports whether a ticket has no messages of its own, which may be refused, and
// nests by far not as deep as a line may.
func (t Ticket) plain() bool {
	const nested = 50
	return t.Messages == nil && bytes.Count(t.Rest, []byte{'['})+bytes.Count(t.Rest, []byte{'{'}) <= nested
}

func tooLong(size int) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.TooLong,
		Err: fault.New(fault.Invalid, "its request has %d bytes, at most %d are allowed", size, maxRequest)}
}

// counts reports whether a normalised verdict is one of the config's.
func (p Parser) counts(verdict string) bool {
	vs := p.format.Verdicts
	return len(vs) == 0 || slices.ContainsFunc(vs, func(v string) bool { return p.Normalize(v) == verdict })
}
