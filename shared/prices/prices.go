// Package prices has dated list prices of the providers, as plain data: of machines, and of
// the requests of the control plane, whose numbers `make cost` has counted. Prices that the
// config of a deployment states take their place.
package prices

import (
	"rollout/shared/config"
	"rollout/shared/core/cost"
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
