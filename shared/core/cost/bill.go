package cost

import (
	"cmp"
	"maps"
	"slices"
)

// Bill is what a run cost, in US dollars, by line.
type Bill struct {
	Tokens    float64 // of hosted models, at the prices of the config
	Machines  float64 // their busy time
	Boot      float64
	Idle      float64
	Functions float64
	Storage   float64 // requests to stores and queues
	// Kinds are the uses of machines, the dearest first.
	Kinds []KindUse
}

// KindUse is a use of machines of one kind.
type KindUse struct {
	Kind
	Use
}

// NewBill returns the bill of a run of that many shards, whose hosted tokens cost tokens
// dollars.
func NewBill(tokens float64, machines Uses, shards int, p Prices) Bill {
	b := Bill{Tokens: tokens}
	for _, key := range slices.Sorted(maps.Keys(machines)) {
		u := machines[key]
		b.Machines += u.Of(u.Busy)
		b.Boot += u.Of(u.Boot)
		b.Idle += u.Of(u.Idle)
		b.Kinds = append(b.Kinds, KindUse{KindOf(key), u})
	}
	slices.SortStableFunc(b.Kinds, func(x, y KindUse) int { return cmp.Compare(y.NanoUSD, x.NanoUSD) })
	b.Functions, b.Storage = p.ControlPlane(shards, machines.Sum().Micros())
	return b
}

// Total returns the sum of all lines.
func (b Bill) Total() float64 {
	return b.Tokens + b.Machines + b.Boot + b.Idle + b.Functions + b.Storage
}
