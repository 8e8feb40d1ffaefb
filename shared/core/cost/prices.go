package cost

import "time"

// Prices are list prices of one provider in US dollars, without taxes, discounts and free
// tiers.
type Prices struct {
	Date   string // when they were read. Example: "2025-11"
	Source string // where, and of which region
	// Machines are the prices of an hour, by type, of machines that nobody takes away.
	Machines map[string]float64
	// Classes say which part of that price a machine of another class costs. What is left out
	// costs the whole price.
	Classes map[string]float64
	// Parts are the same for machines that differ from others of their class, by Kind.Key.
	Parts map[string]float64
	// Positions are what the control plane is billed by.
	Positions []Position
}

// Position is a kind of requests, or of time, that the control plane is billed by: its price,
// and how many units a run takes of it as counted by a measurement.
type Position struct {
	Name     string // unique in its Prices
	Function bool   // the time and calls of functions; otherwise requests to stores
	Price    float64
	// Run are the units that every run takes, Shard those of each shard, and MachineHour those
	// of each hour of a machine, with one worker.
	Run, Shard, MachineHour float64
}

// Hour returns what a machine of the kind costs in an hour; 0 if that is not known.
func (p Prices) Hour(k Kind) float64 {
	part, ok := p.Parts[k.Key()]
	if !ok {
		part, ok = p.Classes[k.Class]
	}
	if !ok {
		part = 1
	}
	return p.Machines[k.Type] * part
}

// Unit returns the price of a unit of a position; 0 if there is no such position.
func (p Prices) Unit(name string) float64 {
	for _, x := range p.Positions {
		if x.Name == name {
			return x.Price
		}
	}
	return 0
}

// ControlPlane returns what the functions and the requests to stores cost of a run with that
// many shards, whose machines worked so many microseconds.
func (p Prices) ControlPlane(shards int, micros int64) (functions, storage float64) {
	hours := (time.Duration(micros) * time.Microsecond).Hours()
	for _, x := range p.Positions {
		usd := x.Price * (x.Run + x.Shard*float64(shards) + x.MachineHour*hours)
		if x.Function {
			functions += usd
		} else {
			storage += usd
		}
	}
	return functions, storage
}
