package rollout

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"rollout/shared/config"
	"rollout/shared/core/selection"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/jsonl"
)

// Outcome is the line of a member with what came of it.
type Outcome struct {
	Line  []byte
	Class fault.Class // why it has no answer; "" if it has one
	Row   []byte      // the output row or the error row; nil if it is lost
	// Again says that its shard was claimed more than once; known while a run grows.
	Again bool
	// Superseded says that its batch was asked anew; known when a run has ended.
	Superseded bool
}

// answered is a member of a ticket as it was read.
type answered struct {
	lineTail
	id string
	// messages are those of the request.
	messages json.RawMessage
	class    fault.Class
	message  string // of a failed one
	text     string // of an answered one, as the model gave it
	finish   string
	verdict  string
	parsed   bool
	score    *float64
	scores   json.RawMessage // of the graders; nil without graders
	usage    json.RawMessage
	// response is what else the server sent, such as token ids and logprobs; nil if nothing.
	response json.RawMessage
}

// Group is a ticket with its members and what was selected.
type Group struct {
	ticket    Ticket
	label     string // normalised
	members   []answered
	selection selection.Selection
	stats     selection.Stats
	parsed    []selection.Member
}

// Reader reads the groups of a run. It is safe for concurrent use.
type Reader struct {
	config config.Run
	parser Parser
	policy selection.Policy
	graded bool
	brief  bool // it reads no more of a row than what selects
}

// NewReader returns a reader for the runs of a config.
func NewReader(c config.Run) (*Reader, error) {
	p, err := NewParser(c.AnswerOf())
	if err != nil {
		return nil, err
	}
	policy, ok := selection.Of(c.SelectionOf().Policy)
	if !ok {
		return nil, fault.New(fault.Invalid, "selection.policy %q is not known", c.SelectionOf().Policy)
	}
	return &Reader{config: c, parser: p, policy: policy, graded: len(c.Grades) > 0}, nil
}

// maxScore bounds scores, so that no sum of them overflows. One beyond it counts as
// missing.
const maxScore = 1e100

// Read reads a ticket from the outcomes of its members, which are all of its members in
// their order, and selects.
func (r *Reader) Read(members []Outcome) (g Group, err error) {
	g.members, g.parsed = make([]answered, 0, len(members)), make([]selection.Member, 0, len(members))
	for n, o := range members {
		a, err := r.member(o)
		if err != nil {
			return g, fault.Wrap(err, "member %d of a ticket", n)
		}
		g.members = append(g.members, a)
	}
	if g.ticket, err = restOf(g.members[0].Ticket); err != nil {
		return g, err
	}
	if g.ticket.Mission == "" && len(r.config.Missions) == 1 {
		g.ticket.Mission = r.config.Missions[0].Name
	}
	g.label = r.parser.Normalize(g.ticket.Label)
	for n := range g.members {
		a := &g.members[n]
		if a.class == "" && !r.graded && g.label != "" { // the label is the grader
			right := 0.0
			if a.parsed && a.verdict == g.label {
				right = 1
			}
			a.score = &right
		}
		m := selection.Member{Decode: a.Decode, Sample: a.Sample, Answer: a.verdict}
		switch {
		case a.class != "":
			m.Cause = string(a.class)
		case !a.parsed:
			m.Cause = selection.Unparsable
		}
		if a.score != nil && math.Abs(*a.score) > maxScore {
			a.score = nil
		}
		if a.score != nil {
			m.Score, m.Scored = *a.score, true
		}
		g.parsed = append(g.parsed, m)
	}
	group := selection.Group{Ticket: g.ticket.Key().String(), Label: g.label, Members: g.parsed}
	g.selection = r.policy.Select(group, r.config.SelectionOf().ReviewBelow)
	g.stats = group.Stats()
	return g, nil
}

// restOf reads what a member's line carries of its ticket.
func restOf(rest []byte) (t Ticket, err error) {
	o := jsonl.ReadObject(rest)
	for m, ok := o.Next(); ok && err == nil; m, ok = o.Next() {
		switch name := string(m.Name); name {
		case "group_id":
			t.Group, err = scalar(name, m.Value)
		case "mission":
			t.Mission, err = scalar(name, m.Value)
		case "label":
			t.Label, err = scalar(name, m.Value)
		}
	}
	t.Rest = rest
	if err == nil {
		err = o.Err()
	}
	return t, fault.WithKind(fault.Corrupt, err, "read the ticket of a member")
}

// member reads one outcome. Its texts are in the memory of the outcome.
func (r *Reader) member(o Outcome) (a answered, err error) {
	if err := a.readLine(o.Line); err != nil {
		return a, fault.WithKind(fault.Corrupt, err, "read its line")
	}
	if a.class = o.Class; o.Class != "" {
		if f, ok := dialect.ReadFailure(dialect.Plain, o.Row); ok {
			a.message = f.Message
		}
		return a, nil
	}
	if err := a.readRow(o.Row, r.brief && !r.graded); err != nil {
		return a, fault.WithKind(fault.Corrupt, err, "read its row")
	}
	a.verdict, a.parsed = r.parser.Verdict(a.text)
	if !r.graded {
		a.scores = nil
		return a, nil
	}
	s, err := grade.ReadRow(o.Row)
	a.score = s.Score
	return a, err
}

// readLine reads the line of a member. Lines are read several times in a run: they are
// read in one pass.
func (a *answered) readLine(line []byte) (err error) {
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok && err == nil; m, ok = o.Next() {
		switch string(m.Name) {
		case "id":
			a.id, err = readText(m.Value)
		case "messages":
			a.messages = json.RawMessage(m.Value)
		case "ticket":
			a.Ticket = json.RawMessage(m.Value)
		case "ticket_number":
			var number uint64
			number, err = strconv.ParseUint(string(m.Value), 10, 32)
			a.Number = uint32(number)
		case "epoch":
			a.Epoch, err = strconv.Atoi(string(m.Value))
		case "batch":
			a.Batch, err = strconv.Atoi(string(m.Value))
		case "step":
			a.Step, err = strconv.Atoi(string(m.Value))
		case "decode":
			a.Decode, err = strconv.Atoi(string(m.Value))
		case "sample":
			a.Sample, err = strconv.Atoi(string(m.Value))
		case "seed":
			a.Seed, err = strconv.ParseInt(string(m.Value), 10, 64)
		}
	}
	return cmp.Or(err, o.Err())
}

// readRow reads an output row of one answer, in one pass; of the text only if the rest is
// not wanted.
func (a *answered) readRow(row []byte, textOnly bool) (err error) {
	o, found := jsonl.ReadObject(row), false
	for m, ok := o.Next(); ok && err == nil && !(found && textOnly); m, ok = o.Next() {
		switch string(m.Name) {
		case "completion":
			found = string(m.Value) != "null"
			a.text, err = readText(m.Value)
		case "finish_reason":
			a.finish, err = readText(m.Value)
		case "usage":
			a.usage = json.RawMessage(m.Value)
		case "response":
			a.response = json.RawMessage(m.Value)
		case "scores":
			a.scores = json.RawMessage(m.Value)
		}
	}
	if err = cmp.Or(err, o.Err()); err == nil && !found {
		err = fault.New(fault.Corrupt, "it has no answer")
	}
	return err
}

// readText returns the text of a JSON string; "" for null. Halves of surrogate pairs become
// U+FFFD.
func readText(value []byte) (text string, err error) {
	if last := len(value) - 1; last > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
		return string(value[1:last]), nil // most texts have no escapes
	}
	if b, ok := jsonl.Unquote(make([]byte, 0, len(value)), value); ok && utf8.Valid(b) {
		return string(b), nil
	}
	err = json.Unmarshal(value, &text)
	return text, err
}

// Add counts the group.
func (t *Totals) Add(g Group) {
	t.Tickets++
	for n, m := range g.parsed {
		if m.Cause != "" {
			t.fail(m.Cause)
		} else {
			t.Answered++
		}
		if s := g.members[n].score; s != nil {
			t.Scored++
			t.Score += *s
		}
	}
	s := g.selection
	if s.Review != selection.NoReview {
		t.Review++
	}
	if g.measured() {
		t.Labelled++
	}
	if s.Member < 0 {
		return
	}
	t.Selected++
	t.Agreement += s.Agreement
	if s.LabelMatch != nil && *s.LabelMatch {
		t.Right++
	}
}

// measured reports whether the ticket counts for the accuracy: it has a label, and an
// answer, which may say no verdict.
func (g Group) measured() bool {
	return g.selection.LabelMatch != nil || g.label != "" && g.failures()[selection.Unparsable] > 0
}

// failures returns the causes of the members without a verdict, with their number.
func (g Group) failures() map[string]int {
	out := map[string]int{}
	for _, m := range g.parsed {
		if m.Cause != "" {
			out[m.Cause]++
		}
	}
	return out
}
