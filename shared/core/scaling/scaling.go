// Package fleet says how many machines a pool should have for the work that
// its runs have left.
//
// It is asked anew whenever work was sent or looked after, and its answers are
// only ever used to let more machines come up: those without work leave by
// themselves. The package is pure, and remembers nothing.
package scaling

// Demand is the work that a pool has.
type Demand struct {
	OpenShards      int // shards of running runs that are not done
	UnclaimedShards int // of those, shards that no living worker holds
	LiveMachines    int // machines whose workers take work
}

// And is the need of both.
func (n Demand) And(other Demand) Demand {
	return Demand{OpenShards: n.OpenShards + other.OpenShards, UnclaimedShards: n.UnclaimedShards + other.UnclaimedShards, LiveMachines: max(n.LiveMachines, other.LiveMachines)}
}

// Rules are the deployment's.
type Rules struct {
	ShardsPerMachine int // open shards that are worth a machine
	MaxMachines      int
}

// DesiredMachines is how many machines the pool should have at least: one for so many
// open shards, but no more than get a shard each of those that wait. 0 is no
// wish: then nothing waits, and a machine that came up would idle.
func (r Rules) DesiredMachines(n Demand) int {
	if n.UnclaimedShards <= 0 {
		return 0
	}
	per := max(1, r.ShardsPerMachine)
	worth := (max(n.OpenShards, n.UnclaimedShards) + per - 1) / per
	return min(worth, n.LiveMachines+n.UnclaimedShards, r.MaxMachines)
}
