package sim

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"rollout/shared/engine/identity"
)

// dice are seeded throws by name: the n-th throw under a name is the same in
// every replay, in whatever order goroutines come to throw under other names.
type dice struct {
	seed uint64
	mu   sync.Mutex
	n    map[string]uint64
}

func newDice(seed uint64) *dice { return &dice{seed: seed, n: map[string]uint64{}} }

func (d *dice) throw(name string) uint64 {
	d.mu.Lock()
	n := d.n[name]
	d.n[name]++
	d.mu.Unlock()
	c := identity.Content(fmt.Appendf(nil, "%d/%s/%d", d.seed, name, n))
	return binary.LittleEndian.Uint64(c[:])
}

// chance is true in p of all throws.
func (d *dice) chance(name string, p float64) bool {
	return float64(d.throw(name)>>11)/(1<<53) < p
}

// below throws a number in [0, n).
func (d *dice) below(name string, n int) int { return int(d.throw(name) % uint64(n)) }

// between throws a duration in [lo, hi), in nanoseconds, so that no two timers
// of a simulation end at the same instant.
func (d *dice) between(name string, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.throw(name)%uint64(hi-lo))
}
