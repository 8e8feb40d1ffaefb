// Package prices has dated list prices of the providers, as plain data: of machines, and of
// the requests of the control plane, whose numbers `make cost` has counted. Prices that the
// config of a deployment states take their place.
package prices

import (
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/fault"
)

// Of returns the prices of a provider; none of an installation on one machine, or of a
// provider that has none.
func Of(provider string) cost.Prices {
	switch provider {
	case config.ProviderAWS:
		return aws()
	case config.ProviderGCP:
		return gcp()
	}
	return cost.Prices{}
}

// own is the kind of a machine that the provider does not describe, but whose price the
// config states.
var own = cost.Kind{Type: "machine", Class: "own"}

// Machine returns the kind of a machine of the pool and what it costs in an hour: the price in
// the config, or else the list price, 0 if there is none. The kind is zero if the machine's
// time is not counted.
func Machine(d config.Deployment, pool string, k cost.Kind) (cost.Kind, float64) {
	p := d.Pool(pool)
	if k.Class == cost.OnDemand && p.Provisioning == config.ProvisioningFlexStart {
		k.Class = p.Provisioning // the machine itself does not know
	}
	if k.Type == "" && p.Price > 0 {
		k = own
	}
	if p.Price > 0 {
		return k, p.Price
	}
	return k, Of(d.Cloud.Provider).Hour(k)
}

// Least returns what a machine of the pool costs in an hour at least: the price in the config,
// or else the lowest list price of the types that the pool may have, as it buys them. It is 0 if
// none is known.
func Least(d config.Deployment, pool string) (hour float64) {
	p, list := d.Pool(pool), Of(d.Cloud.Provider)
	if p.Price > 0 {
		return p.Price
	}
	class := cost.Spot
	switch p.Provisioning {
	case config.ProvisioningStandard:
		class = cost.OnDemand
	case config.ProvisioningFlexStart:
		class = p.Provisioning
	}
	types := d.InstanceTypesOf(pool)
	if p.Machines == config.MachinesCloudRun {
		types, class = []string{leastTask}, cost.OnDemand
	}
	for _, machine := range types {
		if of := list.Hour(cost.Kind{Type: machine, Class: class}); of > 0 && (hour == 0 || of < hour) {
			hour = of
		}
	}
	return hour
}

// CheckBudget refuses a budget in dollars where it would count nothing: neither the machines of
// one of the pools nor the tokens of its engine have a price. It is Invalid.
func CheckBudget(d config.Deployment, l config.Limits, pools []string) error {
	if l.Dollars <= 0 {
		return nil
	}
	for _, pool := range pools {
		missing := withoutPrice(d, pool)
		if missing == "" {
			continue
		}
		return &fault.Error{Kind: fault.Invalid, Op: "set limits.dollars",
			Err: fault.New(fault.Invalid, "pool %s has no price that it could count: %s", pool, missing),
			Remedy: "set price of [[pool]], the dollars of an hour of a machine, or prompt_price and completion_price of " +
				"[engine], the dollars of a million tokens; or bound the run by limits.tokens"}
	}
	return nil
}

// withoutPrice says what of a pool has no price; "" if enough is known to count what its
// requests cost.
func withoutPrice(d config.Deployment, name string) string {
	pool := d.Pool(name)
	switch {
	case pool.Price > 0, d.ForPool(name).Engine.HasPrices(), pool.Machines == config.MachinesCloudRun:
		return ""
	case d.Cloud.Provider == "":
		return "its machines are your own, and its engine names no price of tokens"
	}
	list := Of(d.Cloud.Provider)
	for _, machine := range d.InstanceTypesOf(name) {
		if list.Machines[machine] <= 0 {
			return "no list price of " + machine + " is known"
		}
	}
	return ""
}
