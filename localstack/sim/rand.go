package sim

import (
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	"rollout/shared/core/identity"
)

// seededRand draws random numbers by label: the n-th draw of a label is the same
// in every replay, whatever the order of draws of other labels. Goroutines may
// therefore draw concurrently. A renamed label changes the history of every
// seed.
type seededRand struct {
	seed uint64
	mu   sync.Mutex
	n    map[string]uint64
	hits map[string]int // of chanceAtMost
}

func newRand(seed uint64) *seededRand {
	return &seededRand{seed: seed, n: map[string]uint64{}, hits: map[string]int{}}
}

func (r *seededRand) uint64(label string) uint64 {
	r.mu.Lock()
	n := r.n[label]
	r.n[label]++
	r.mu.Unlock()
	text := strconv.AppendUint(make([]byte, 0, 128), r.seed, 10)
	text = append(append(append(text, '/'), label...), '/')
	c := identity.Content(strconv.AppendUint(text, n, 10))
	return binary.LittleEndian.Uint64(c[:])
}

// chance is true with probability p.
func (r *seededRand) chance(label string, p float64) bool {
	return float64(r.uint64(label)>>11)/(1<<53) < p
}

// chanceAtMost is chance, and false after it was true so many times for the label.
func (r *seededRand) chanceAtMost(label string, p float64, most int) bool {
	if !r.chance(label, p) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hits[label]++
	return r.hits[label] <= most
}

// intN draws a number in [0, n).
func (r *seededRand) intN(label string, n int) int { return int(r.uint64(label) % uint64(n)) }

// duration draws a duration in [lo, hi), in nanoseconds, so that no two timers of
// a simulation end at the same instant.
func (r *seededRand) duration(label string, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.uint64(label)%uint64(hi-lo))
}
