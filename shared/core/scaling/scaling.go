// Package scaling decides how many machines a pool should have for the work that
// its runs have left.
//
// Functions call it whenever they sent work or checked on it. They use the result
// only to start machines: a machine without work ends itself. The package is pure
// and keeps no state.
package scaling

// Demand is the work that a pool has.
type Demand struct {
	OpenShards      int // shards of running runs that are not done
	UnclaimedShards int // those of them without a living holder
	LiveMachines    int // machines whose workers accept work
	// LeftMicroUSD is what is left of the budget of the run that has the shards, for this pool,
	// in millionths of a dollar and at least one; 0 without a budget in dollars. See Rules.Within.
	LeftMicroUSD int64
}

// And returns the demand of both: their shards together, on the same machines. Budgets must
// have been applied.
func (n Demand) And(other Demand) Demand {
	return Demand{
		OpenShards:      n.OpenShards + other.OpenShards,
		UnclaimedShards: n.UnclaimedShards + other.UnclaimedShards,
		LiveMachines:    max(n.LiveMachines, other.LiveMachines),
	}
}

// Rules are the deployment's settings.
type Rules struct {
	ShardsPerMachine int // open shards that justify one machine
	MaxMachines      int
}

// DesiredMachines returns how many machines the pool should have at least: one for
// every ShardsPerMachine open shards, but only as many as can get an unclaimed
// shard each. It returns 0 if all shards are claimed: a further machine would
// idle, and the present ones may stay.
func (r Rules) DesiredMachines(n Demand) int {
	if n.UnclaimedShards <= 0 {
		return 0
	}
	per := max(1, r.ShardsPerMachine)
	justified := (max(n.OpenShards, n.UnclaimedShards) + per - 1) / per
	return min(justified, n.LiveMachines+n.UnclaimedShards, r.MaxMachines)
}
