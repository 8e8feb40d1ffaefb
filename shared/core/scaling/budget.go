package scaling

import "time"

// paidTime is the time of a machine that a budget must have left before the machine is asked
// for: it boots, loads a model and, in the end, waits for work that does not come, and shall
// answer something between.
const paidTime = 15 * time.Minute

// Within returns the demand of a run that has so much left of its budget in dollars, in
// millionths of one: shards that justify no more machines than it pays for, at so many dollars
// an hour. One machine may always come, because such a run goes on until the budget is used up.
// Without a budget, or a price, the demand stays.
//
//	left / (price an hour × a quarter of an hour), at least 1 ──▶ machines ──▶ shards
func (r Rules) Within(n Demand, hour float64) Demand {
	if n.LeftMicroUSD <= 0 || hour <= 0 {
		return n
	}
	pays := float64(n.LeftMicroUSD) / (hour * 1e6 * paidTime.Hours())
	machines := max(1, int(min(pays, float64(r.MaxMachines))))
	most := machines * max(1, r.ShardsPerMachine)
	n.OpenShards, n.UnclaimedShards = min(n.OpenShards, most), min(n.UnclaimedShards, most)
	return n
}
