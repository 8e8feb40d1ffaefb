package guidance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rollout/shared/text"
)

// Kind is what an operation does.
type Kind string

// The kinds, in the order in which they are applied.
const (
	Rewrite Kind = "rewrite" // gives one entry a new text
	Merge   Kind = "merge"   // makes one entry of two or more, at the place of the first
	Drop    Kind = "drop"    // removes entries
	Add     Kind = "add"     // makes a new entry, after all others
)

var kinds = [...]Kind{Rewrite, Merge, Drop, Add}

// Operation is one change of the guidance.
type Operation struct {
	Kind     Kind     `json:"op"`
	Entries  []int    `json:"entries,omitempty"` // numbers of entries, from 1, ascending; none for Add
	Text     string   `json:"text,omitempty"`    // the new text; "" for Drop
	Reason   string   `json:"reason"`            // why, for people
	Evidence []string `json:"evidence"`          // keys of tickets, ascending
}

// Plan is a list of operations that are applied together, in canonical order: by kind,
// then entries, then text. The zero Plan changes nothing.
type Plan struct {
	Operations []Operation `json:"operations"`
}

// maxReason is how many bytes of a reason are kept.
const maxReason = 1000

// ParsePlan reads the plan that a model answered:
//
//	{"operations": [{"op": "rewrite", "entries": [2], "text": "…", "reason": "…", "evidence": ["ticket key"]}]}
//
// The plan is normalised and in canonical order, whatever order the answer has. Errors
// are *Refused. That an entry or a ticket does not exist is found by Apply.
func ParsePlan(answer []byte, lim Limits) (Plan, error) {
	ops, err := ParseProposals(answer, lim)
	if err != nil {
		return Plan{}, err
	}
	if err := conflicts(ops); err != nil {
		return Plan{}, err
	}
	return Plan{ops}, nil
}

// ParseProposals reads the operations that a model proposes: the form of a plan, but
// several may change one entry, as a plan is yet to be made of them.
func ParseProposals(answer []byte, lim Limits) ([]Operation, error) {
	var plan Plan
	if err := decodeStrict(answer, &plan); err != nil {
		return nil, err
	}
	if plan.Operations == nil {
		return nil, refuse(WrongForm, `the answer has no "operations": answer {"operations": []} to change nothing`)
	}
	return canonical(plan.Operations, lim)
}

// canonical returns the operations normalised and in canonical order, or the *Refused
// of the first one, in that order, which is not well formed.
func canonical(ops []Operation, lim Limits) ([]Operation, error) {
	if len(ops) > lim.Operations {
		return nil, refuse(TooManyOperations, "there are %d operations, and at most %d are allowed", len(ops), lim.Operations)
	}
	out := make([]Operation, len(ops))
	for i, op := range ops {
		op.Entries = slices.Sorted(slices.Values(op.Entries))
		op.Evidence = slices.Compact(slices.Sorted(slices.Values(op.Evidence)))
		out[i] = op
	}
	// They are sorted before they are checked too, so that not even the reason of a
	// refusal depends on the order of arrival.
	slices.SortFunc(out, Operation.compare)
	for i, op := range out {
		var err error
		if out[i], err = op.normalize(lim); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, Operation.compare)
	return out, nil
}

// compare is the canonical order. Operations that are equal by it are the same.
func (o Operation) compare(p Operation) int {
	return cmp.Or(
		cmp.Compare(slices.Index(kinds[:], o.Kind), slices.Index(kinds[:], p.Kind)), cmp.Compare(o.Kind, p.Kind),
		slices.Compare(o.Entries, p.Entries), cmp.Compare(o.Text, p.Text), cmp.Compare(o.Reason, p.Reason),
		slices.Compare(o.Evidence, p.Evidence))
}

// normalize checks everything about an operation that needs no guidance, and returns
// it with normalised texts. Its lists are sorted.
func (o Operation) normalize(lim Limits) (Operation, error) {
	if err := o.checkForm(); err != nil {
		return o, err
	}
	var bad *Refused
	if o.Kind != Drop {
		if o.Text, bad = normalize(o.Text); bad != nil {
			return o, refuse(bad.Refusal, "%v: %s", o, bad.Message)
		}
		if len(o.Text) > lim.EntryBytes {
			return o, refuse(EntryTooLong, "%v: the text has %d bytes, and at most %d are allowed",
				o, len(o.Text), lim.EntryBytes)
		}
	}
	switch o.Reason, bad = normalize(o.Reason); {
	case bad != nil && bad.Refusal == EmptyText:
		return o, refuse(NoReason, "%v: it has no reason", o)
	case bad != nil:
		return o, refuse(bad.Refusal, "%v: reason: %s", o, bad.Message)
	case len(o.Evidence) == 0:
		return o, refuse(NoEvidence, "%v: it names no ticket as evidence", o)
	}
	o.Reason = text.Truncate(o.Reason, maxReason, "…")
	return o, nil
}

// checkForm checks that the operation has the entries and the text that its kind needs.
func (o Operation) checkForm() error {
	n := len(o.Entries)
	switch {
	case !slices.Contains(kinds[:], o.Kind):
		return refuse(WrongForm, `op is %.40q: it must be "add", "rewrite", "merge" or "drop"`, string(o.Kind))
	case o.Kind == Add && n > 0:
		return refuse(WrongForm, "%v: it names entries: a new entry gets its number later", o)
	case o.Kind == Rewrite && n != 1:
		return refuse(WrongForm, "%v: it must name one entry", o)
	case o.Kind == Merge && n < 2:
		return refuse(WrongForm, "%v: it must name at least two entries", o)
	case o.Kind == Drop && n == 0:
		return refuse(WrongForm, "%v: it must name an entry", o)
	case o.Kind == Drop && strings.TrimSpace(o.Text) != "":
		return refuse(WrongForm, "%v: it has a text, which only new entries need", o)
	case n > 0 && o.Entries[0] < 1:
		return refuse(NoSuchEntry, "%v: entries are numbered from 1", o)
	}
	for i := 1; i < n; i++ {
		if o.Entries[i] == o.Entries[i-1] {
			return refuse(Conflict, "%v: it names entry %d twice", o, o.Entries[i])
		}
	}
	return nil
}

// String names the operation in messages. Example: "merge of entries 1, 4".
func (o Operation) String() string {
	switch n := len(o.Entries); {
	case n == 0:
		return fmt.Sprintf("%s of %.60q", o.Kind, o.Text)
	case n == 1:
		return fmt.Sprintf("%s of entry %d", o.Kind, o.Entries[0])
	}
	const most = 10
	list := strings.Trim(fmt.Sprint(o.Entries[:min(len(o.Entries), most)]), "[]")
	if len(o.Entries) > most {
		list += " …"
	}
	return fmt.Sprintf("%s of entries %s", o.Kind, strings.ReplaceAll(list, " ", ", "))
}

// conflicts returns the *Refused for two operations that change one entry, or nil.
func conflicts(ops []Operation) error {
	by := make(map[int]Operation)
	for _, op := range ops {
		for _, n := range op.Entries {
			if other, ok := by[n]; ok {
				return refuse(Conflict, "%v and %v both change entry %d", other, op, n)
			}
			by[n] = op
		}
	}
	return nil
}
