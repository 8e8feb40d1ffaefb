package cloud

import (
	"errors"
	"strings"
)

// Looks collects what a probe finds that looks at several things: one that can't be seen
// hides no fault of another. The zero value has looked at nothing.
type Looks struct {
	found  []string
	unseen error // of the first thing that can't be seen
}

// Add notes what was found at one thing. It returns err unless that is Unseen.
func (l *Looks) Add(found string, err error) error {
	var u *Unseen
	switch {
	case errors.As(err, &u):
		if l.unseen == nil {
			l.unseen = err
		}
		return nil
	case err != nil:
		return err
	}
	l.found = append(l.found, found)
	return nil
}

// Result returns what was found, separated by sep, or why the first thing that can't be seen
// can't.
func (l *Looks) Result(sep string) (string, error) {
	if l.unseen != nil {
		return "", l.unseen
	}
	return strings.Join(l.found, sep), nil
}
