package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"

	"rollout/shared/fault"
)

// damage remembers that a state file turned out to be broken. From then on
// nothing is read from it or written to it: what a broken file says is not to
// be trusted, and each write may make it worse.
type damage struct {
	once  sync.Once
	found chan struct{} // closed once err stands
	err   error
}

func newDamage() *damage { return &damage{found: make(chan struct{})} }

// note takes in what a call came to and returns it.
func (d *damage) note(err error) error {
	var vendor *sqlite.Error
	if err != nil && fault.Is(err, fault.Corrupt) && errors.As(err, &vendor) {
		d.once.Do(func() {
			d.err = err
			close(d.found)
		})
	}
	return err
}

// refusal is the error that every call gets once damage was found.
func (d *damage) refusal() error {
	select {
	case <-d.found:
		return d.err
	default:
		return nil
	}
}

// Damaged is closed when the state file turned out to be broken: no call
// succeeds any more, and Damage says why.
func (s *State) Damaged() <-chan struct{} { return s.damage.found }

// CancelOnDamage returns a context that ends with the state: its cause is then the
// Damage. cancel is to be called when it is not needed any more.
func (s *State) CancelOnDamage(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-s.damage.found:
			end(s.damage.err)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(nil) }
}

// Damage is what is wrong with the state file, a Corrupt error; nil if nothing
// is known to be.
func (s *State) Damage() error { return s.damage.refusal() }

// maxComplaints bounds how many of a check's findings an error tells.
const maxComplaints = 3

// check looks through the structure of the database for at most that long:
// what it has not read by then counts as good, and is found when it is used.
// It is Corrupt if something is wrong.
func check(ctx context.Context, s *session, longest time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	var findings []string
	err := s.query(ctx, `PRAGMA quick_check(3)`, func(row []driver.Value) error {
		if text, _ := row[0].(string); text != "ok" && len(findings) < maxComplaints {
			findings = append(findings, text)
		}
		return nil
	})
	switch {
	case len(findings) > 0:
		return &fault.Error{Kind: fault.Corrupt, Op: "check " + s.path, Err: errors.New(strings.Join(findings, "; ")), Remedy: remedies[fault.Corrupt]}
	case ctx.Err() != nil:
		return nil
	}
	return err
}
