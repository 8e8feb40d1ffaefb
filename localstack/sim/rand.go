package sim

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"rollout/shared/core/identity"
)

// rand are seeded throws by name: the n-th throw under a name is the same in
// every replay, in whatever order goroutines come to throw under other names.
type rand struct {
	seed uint64
	mu   sync.Mutex
	n    map[string]uint64
}

func newRand(seed uint64) *rand { return &rand{seed: seed, n: map[string]uint64{}} }

func (d *rand) uint64(name string) uint64 {
	d.mu.Lock()
	n := d.n[name]
	d.n[name]++
	d.mu.Unlock()
	c := identity.Content(fmt.Appendf(nil, "%d/%s/%d", d.seed, name, n))
	return binary.LittleEndian.Uint64(c[:])
}

// chance is true in p of all throws.
func (d *rand) chance(name string, p float64) bool {
	return float64(d.uint64(name)>>11)/(1<<53) < p
}

// intN throws a number in [0, n).
func (d *rand) intN(name string, n int) int { return int(d.uint64(name) % uint64(n)) }

// duration throws a duration in [lo, hi), in nanoseconds, so that no two timers
// of a simulation end at the same instant.
func (d *rand) duration(name string, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.uint64(name)%uint64(hi-lo))
}
