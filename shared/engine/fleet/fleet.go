// Package fleet says how many machines a pool should have for the work that
// its runs have left.
//
// It is asked anew whenever work was sent or looked after, and its answers are
// only ever used to let more machines come up: those without work leave by
// themselves. The package is pure, and remembers nothing.
package fleet

// Need is the work that a pool has.
type Need struct {
	Open    int // shards of running runs that are not done
	Waiting int // of those, shards that no living worker holds
	Living  int // machines whose workers take work
}

// And is the need of both.
func (n Need) And(other Need) Need {
	return Need{Open: n.Open + other.Open, Waiting: n.Waiting + other.Waiting, Living: max(n.Living, other.Living)}
}

// Rules are the deployment's.
type Rules struct {
	ShardsPerMachine int // open shards that are worth a machine
	MaxMachines      int
}

// Machines is how many machines the pool should have at least: one for so many
// open shards, but no more than get a shard each of those that wait. 0 is no
// wish: then nothing waits, and a machine that came up would idle.
func (r Rules) Machines(n Need) int {
	if n.Waiting <= 0 {
		return 0
	}
	per := max(1, r.ShardsPerMachine)
	worth := (max(n.Open, n.Waiting) + per - 1) / per
	return min(worth, n.Living+n.Waiting, r.MaxMachines)
}
