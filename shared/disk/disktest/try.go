package disktest

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/disk"
)

// failures is how often Try interrupts an operation.
var failures = flag.Int("failures", 100, "how often disktest.Try interrupts each operation")

// Operation is what a test interrupts.
type Operation struct {
	Name string
	// Owned are the names of files whose writer syncs them; see New.
	Owned []string
	// OnDisk has the operation use a folder of the disk instead of one in memory: only
	// the former has inode numbers that are used again.
	OnDisk bool
	// New returns one case of the operation, with r's choices.
	New func(r *rand.Rand) Case
}

// Case is one case of an operation in the folder dir of a disk.
type Case struct {
	// Prepare makes what exists before the operation. What it returns from is promised
	// to be durable. Nil prepares nothing.
	Prepare func(d disk.Disk, dir string) error
	// Do performs the operation. It may be called again after it was interrupted, or
	// after it succeeded, and then also succeeds.
	Do func(d disk.Disk, dir string) error
	// Check returns which promise the folder breaks. done reports whether Do returned
	// without an error. Check may repair what it finds, as a new process does.
	Check func(d disk.Disk, dir string, done bool) error
}

// TryEach is Try of each operation, in a subtest of its own.
func TryEach(t *testing.T, operations []Operation) {
	for _, o := range operations {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			Try(t, o)
		})
	}
}

// Try interrupts the operation as often as the flag -failures says, or on a disk a tenth
// of it: a process is killed at some of its calls, the next one continues, and the power
// fails at some call of it. It fails the test if a promise is broken.
func Try(t *testing.T, o Operation) {
	t.Helper()
	e := newExplorer(t, o)
	n := *failures
	if o.OnDisk {
		n = (n + 9) / 10 // a disk is slow
	}
	for seed := range uint64(n) {
		if err := e.try(seed, ""); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if len(e.sites) == 0 {
		t.Error("the operation syncs nothing")
	}
}

const (
	learning = 40   // failures after which all syncs of an operation are known
	patience = 3000 // failures without a sync that break no promise, in each operation
)

// FindEverySync leaves out each sync of the operations in turn, and fails the test if
// that breaks no promise: the sync is useless, or Check overlooks what it is for.
func FindEverySync(t *testing.T, all []Operation) {
	t.Helper()
	explorers := map[string][]*explorer{} // by the sync that the operation performs
	for _, o := range all {
		e := newExplorer(t, o)
		for seed := range uint64(learning) {
			if err := e.try(seed, ""); err != nil {
				t.Fatalf("%s: seed %d: %v", o.Name, seed, err)
			}
		}
		for site := range e.sites {
			explorers[site] = append(explorers[site], e)
		}
	}
	for site, has := range explorers {
		t.Run(site, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(patience) {
				for _, e := range has {
					if err := e.fork().try(seed, site); errors.Is(err, errBroken) {
						return
					} else if err != nil {
						t.Fatalf("%s: seed %d: %v", e.Name, seed, err)
					}
				}
			}
			t.Error("no promise is broken without this sync")
		})
	}
}

// errBroken is the error of a folder that breaks a promise after a failure.
var errBroken = errors.New("a promise is broken")

// explorer interrupts an operation. One goroutine at a time may use it.
type explorer struct {
	Operation
	dir   string
	calls int             // the most calls of the operation so far
	sites map[string]bool // call sites of syncs
}

// newExplorer returns an explorer that knows about how many calls the operation makes.
func newExplorer(t *testing.T, o Operation) *explorer {
	t.Helper()
	e := &explorer{Operation: o, sites: map[string]bool{}}
	dir, err := os.MkdirTemp("/dev/shm", "disktest-")
	if err != nil || o.OnDisk {
		e.dir = t.TempDir()
	} else {
		e.dir = dir
		t.Cleanup(func() { must(os.RemoveAll(dir)) })
	}
	for seed := range uint64(5) {
		dir, err := os.MkdirTemp(e.dir, "")
		must(err)
		m, c := New(dir, o.Owned...), o.New(rand.New(rand.NewPCG(seed, 1)))
		if c.Prepare != nil {
			err = c.Prepare(m.Start(), dir)
		}
		p := m.Start()
		if err := errors.Join(err, c.Do(p, dir)); err != nil {
			t.Fatalf("%s: seed %d: %v", o.Name, seed, err)
		}
		e.calls = max(e.calls, p.calls)
	}
	return e
}

// fork returns an explorer for another goroutine.
func (e *explorer) fork() *explorer {
	return &explorer{Operation: e.Operation, dir: e.dir, calls: e.calls, sites: map[string]bool{}}
}

// try interrupts the operation once, without the syncs at the call site ignored. It
// returns the promise that was broken.
func (e *explorer) try(seed uint64, ignored string) (err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	c := e.New(r)
	dir, err := os.MkdirTemp(e.dir, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	before, after, later := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "c")
	if err := os.Mkdir(before, 0o755); err != nil {
		return err
	}
	m := New(before, e.Owned...)
	m.sites, m.ignored = e.sites, ignored
	if c.Prepare != nil {
		if err := c.Prepare(m.Start(), before); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if r.IntN(4) > 0 {
		m.Settle()
	}
	done := false
	if r.IntN(2) == 0 {
		killed := m.startFor(r.IntN(e.calls+2), nil)
		done = c.Do(killed, before) == nil
	}
	var next *Machine
	last := m.startFor(r.IntN(e.calls+2), func() { next = m.reboot(r, after) })
	err = c.Do(last, before)
	e.calls = max(e.calls, last.calls)
	if next == nil {
		if err != nil {
			return fmt.Errorf("without a failure: %w", err)
		}
		done = true
		next = m.Reboot(r, after)
	}
	what := fmt.Sprintf("after %d of at most %d calls", last.calls, e.calls)
	if err := c.Check(next.Start(), after, done); err != nil {
		return fmt.Errorf("%w %s: %w", errBroken, what, err)
	}
	if err := c.Do(next.Start(), after); err != nil {
		return fmt.Errorf("%w %s: again: %w", errBroken, what, err)
	}
	if err := c.Check(next.Reboot(r, later).Start(), later, true); err != nil {
		return fmt.Errorf("%w %s: after a second failure: %w", errBroken, what, err)
	}
	return nil
}

// NewName returns a path in dir that begins with the prefix and does not exist.
func NewName(dir, prefix string) string {
	for n := 0; ; n++ {
		path := filepath.Join(dir, fmt.Sprintf("%s%d", prefix, n))
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return path
		}
	}
}
