package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// How says by what items are matched.
type How string

// The ways to match items.
const (
	ByIndex How = "index" // the items of the same index are the same
	ByID    How = "id"    // the lines with the same id are the same
)

// Pair is an item of both runs, or of one of them.
type Pair struct {
	ID   string `json:"id"` // of the first run that has the item
	Same bool   `json:"same"`
	A    *Row   `json:"a"` // null if the first run does not have it
	B    *Row   `json:"b"`
}

// Options are what Compare takes besides the runs.
type Options struct {
	By     How    // "" chooses
	Folder string // of temporary files; "" is the system's
}

// Compare calls each for all items of two runs, in the order of the first run, followed by
// those of the second run alone. It returns what they were matched by. Runs whose items
// cannot be matched are Invalid.
func Compare(ctx context.Context, blobs blob.Store, a, b Run, o Options, each func(Pair) error) (how How, err error) {
	for _, r := range []Run{a, b} {
		if err := check(r); err != nil {
			return "", err
		}
	}
	ra, err := openRows(ctx, blobs, a)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, ra.Close()) }()
	rb, err := openRows(ctx, blobs, b)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rb.Close()) }()
	m := matcher{a: side{rows: ra}, b: side{rows: rb}, each: each}
	if err := m.advance(true, true); err != nil {
		return "", err
	}
	if o.By == "" {
		o.By = m.choose()
	}
	switch o.By {
	case ByIndex:
		return ByIndex, m.byIndex()
	case ByID:
		return ByID, m.byID(o.Folder)
	}
	return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("items can't be matched by %q", o.By),
		Remedy: "use index or id"}
}

// check returns Invalid for a run that has no comparable rows.
func check(r Run) error {
	switch r.Manifest.Kind {
	case config.KindTrain:
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s is a training: it has no answers", r.Manifest.Run),
			Remedy: "compare runs that answer prompts"}
	case config.KindRollout:
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s is a rollout: its answers are votes on tickets",
			r.Manifest.Run), Remedy: "compare reports: `rollout report " + string(r.Manifest.Run) + "`"}
	}
	return nil
}

// samePlan reports whether an index names the same line in both runs: they read the same
// versions of the same objects. A child and its parent do.
func samePlan(a, b Run) bool { return slices.Equal(a.Manifest.Inputs, b.Manifest.Inputs) }

// matcher matches the rows of two runs.
type matcher struct {
	a, b side
	each func(Pair) error
}

// side is one run, and its row that is next; nil after the last.
type side struct {
	*rows
	head *Row
}

func (s *side) advance() error {
	row, err := s.read()
	s.head = &row
	if err == io.EOF {
		s.head, err = nil, nil
	}
	return err
}

func (m *matcher) advance(a, b bool) error {
	if a {
		if err := m.a.advance(); err != nil {
			return err
		}
	}
	if b {
		return m.b.advance()
	}
	return nil
}

// choose returns how to match: by the index in runs with the same plan, and in those
// whose lines have no ids.
func (m *matcher) choose() How {
	if samePlan(m.a.run, m.b.run) || m.a.head == nil || m.b.head == nil || !m.a.head.hasOwnID() || !m.b.head.hasOwnID() {
		return ByIndex
	}
	return ByID
}

// byIndex matches the items of the same index.
func (m *matcher) byIndex() error {
	if n, k := m.a.run.Summary.Items, m.b.run.Summary.Items; n != k && !samePlan(m.a.run, m.b.run) {
		return &fault.Error{Kind: fault.Invalid, Remedy: "give the lines ids, and run them again",
			Err: fmt.Errorf("the runs have %d and %d items, and their lines no ids: which are the same can't be told", n, k)}
	}
	for m.a.head != nil || m.b.head != nil {
		a, b := m.a.head, m.b.head
		if a != nil && b != nil && a.hasOwnID() && b.hasOwnID() && a.ID != b.ID {
			return &fault.Error{Kind: fault.Invalid, Remedy: "match them with --by id",
				Err: fmt.Errorf("item %d has the id %.64q in one run and %.64q in the other: their files differ",
					a.Item, a.ID, b.ID)}
		}
		if err := m.each(pairOf(a, b)); err != nil {
			return err
		}
		if err := m.advance(a != nil, b != nil); err != nil {
			return err
		}
	}
	return nil
}

// byID matches the lines with the same id. As long as these come in the same order, they
// are matched as they come. Lines without an id, and those that repeat one, have no match.
func (m *matcher) byID(folder string) (err error) {
	for {
		a, b := m.a.head, m.b.head
		switch {
		case a == nil && b == nil:
			return nil
		case a != nil && b != nil && matchable(*a) && matchable(*b) && a.ID == b.ID:
			if err := m.each(pairOf(a, b)); err != nil {
				return err
			}
			if err := m.advance(true, true); err != nil {
				return err
			}
		default:
			dir, err := os.MkdirTemp(folder, "rollout-compare-")
			if err != nil {
				return fault.WithKind(fault.Exhausted, err, "make a folder for temporary files")
			}
			return errors.Join(m.join(dir), os.RemoveAll(dir))
		}
	}
}

// matchable reports whether the row's id names its line alone.
func matchable(r Row) bool { return r.hasOwnID() && r.Class != fault.DuplicateID }

// pairOf returns the pair of two rows, one of which may be nil.
func pairOf(a, b *Row) Pair {
	p := Pair{A: a, B: b}
	if a != nil {
		p.ID = a.ID
	} else {
		p.ID = b.ID
	}
	p.Same = a != nil && b != nil && a.Class == b.Class && slices.Equal(a.Answers, b.Answers)
	return p
}
