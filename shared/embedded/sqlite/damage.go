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

// damage records that a state file is corrupt. From then on every call fails: the
// content of a corrupt file cannot be trusted, and a write may make it worse.
type damage struct {
	once  sync.Once
	found chan struct{} // closed after err is set
	err   error
}

func newDamage() *damage { return &damage{found: make(chan struct{})} }

// note records err if it says that the file is corrupt, and returns it.
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

// refusal returns the error of every call after damage was found, else nil.
func (d *damage) refusal() error {
	select {
	case <-d.found:
		return d.err
	default:
		return nil
	}
}

// Damaged returns a channel that is closed when the state file is found to be
// corrupt. All later calls fail, and Damage returns the reason.
func (s *State) Damaged() <-chan struct{} { return s.damage.found }

// CancelOnDamage returns a context that is canceled when the state file is found to
// be corrupt; its cause is then the error of Damage. The caller must call cancel
// when it no longer needs the context.
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

// Damage returns the Corrupt error that describes the damage of the state file, nil
// if none is known.
func (s *State) Damage() error { return s.damage.refusal() }

// maxFindings is the most findings of a check that an error lists.
const maxFindings = 3

// check checks the structure of the database for at most the given time. It fails
// with Corrupt if it finds damage. The part that it could not read in time counts as
// good; damage there is found when it is used.
func check(ctx context.Context, s *session, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var findings []string
	err := s.query(ctx, `PRAGMA quick_check(3)`, func(row []driver.Value) error {
		if text, _ := row[0].(string); text != "ok" && len(findings) < maxFindings {
			findings = append(findings, text)
		}
		return nil
	})
	switch {
	case len(findings) > 0:
		err := errors.New(strings.Join(findings, "; "))
		return &fault.Error{Kind: fault.Corrupt, Op: "check " + s.path, Err: err, Remedy: remedies[fault.Corrupt]}
	case ctx.Err() != nil:
		return nil
	}
	return err
}
