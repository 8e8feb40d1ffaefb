package cost

import (
	"maps"
	"math"
	"strings"
	"time"
)

// Kind is a type of machines, and how they are bought. Both are names of the provider
// without a slash.
type Kind struct {
	Type  string // Example: "g6.xlarge"
	Class string // Example: "spot"
}

// The classes of machines. A provider may have further ones.
const (
	Spot     = "spot"
	OnDemand = "on-demand"
)

// Key returns the kind as a key of Uses; "" for a machine without a known type. Example:
// "g6.xlarge/spot".
func (k Kind) Key() string {
	if k.Type == "" {
		return ""
	}
	return k.Type + "/" + k.Class
}

// KindOf returns the kind with that key.
func KindOf(key string) Kind {
	t, class, _ := strings.Cut(key, "/")
	return Kind{t, class}
}

// Use is the time of machines of one kind. Busy is the time of requests, Boot and Idle are
// the time before.
type Use struct {
	Busy int64 `json:"busy_us,omitempty"` // microseconds, as all times
	Boot int64 `json:"boot_us,omitempty"`
	Idle int64 `json:"idle_us,omitempty"`
	// NanoUSD is what that time cost when it was used, in billionths of a dollar; 0 if the
	// price is not known.
	NanoUSD int64 `json:"nano_usd,omitempty"`
}

// Micros returns the whole time, in microseconds.
func (u Use) Micros() int64 { return u.Busy + u.Boot + u.Idle }

// Plus returns the sum of two uses.
func (u Use) Plus(o Use) Use {
	return Use{u.Busy + o.Busy, u.Boot + o.Boot, u.Idle + o.Idle, Sum(u.NanoUSD, o.NanoUSD)}
}

// At returns the use of a machine that costs so many dollars an hour.
func (u Use) At(dollarsAnHour float64) Use {
	u.NanoUSD = int64(math.Round(float64(u.Micros()) * dollarsAnHour / (time.Hour.Seconds() / 1000)))
	return u
}

// USD returns what the use cost, in dollars.
func (u Use) USD() float64 { return float64(u.NanoUSD) / 1e9 }

// Of returns the part of the cost that falls on so many of the microseconds, in dollars.
func (u Use) Of(micros int64) float64 {
	if all := u.Micros(); all > 0 {
		return u.USD() * float64(micros) / float64(all)
	}
	return 0
}

// atLeast returns the use with each part as large as in either.
func (u Use) atLeast(o Use) Use {
	return Use{max(u.Busy, o.Busy), max(u.Boot, o.Boot), max(u.Idle, o.Idle), max(u.NanoUSD, o.NanoUSD)}
}

// Uses are the uses of machines by Kind.Key.
type Uses map[string]Use

// OtherKinds is the key of the uses of further kinds, beyond maxKinds; AllKinds that of a
// sum over kinds.
const (
	OtherKinds = "other"
	AllKinds   = "all"
)

// maxKinds bounds the kinds that Uses tell apart, so that documents stay small.
const maxKinds = 16

// Add adds the uses of another shard.
func (u *Uses) Add(o Uses) {
	for kind, use := range o {
		u.add(kind, use)
	}
}

func (u *Uses) add(kind string, use Use) {
	if *u == nil {
		*u = Uses{}
	}
	kind = u.keyOf(kind)
	(*u)[kind] = (*u)[kind].Plus(use)
}

// keyOf returns the key under which the uses of a kind are.
func (u Uses) keyOf(kind string) string {
	if _, known := u[kind]; !known && len(u) >= maxKinds {
		return OtherKinds
	}
	return kind
}

// With returns a copy with a use more.
func (u Uses) With(kind string, use Use) Uses {
	if use == (Use{}) {
		return u
	}
	out := maps.Clone(u)
	out.add(kind, use)
	return out
}

// AtLeast returns a copy with a use of the kind that is at least the given one in all its
// parts. A use only grows, so that taking over an older report changes nothing.
func (u Uses) AtLeast(kind string, use Use) Uses {
	kind = u.keyOf(kind)
	more := u[kind].atLeast(use)
	if more == u[kind] {
		return u
	}
	out := maps.Clone(u)
	if out == nil {
		out = Uses{}
	}
	out[kind] = more
	return out
}

// Sum returns the sum over all kinds.
func (u Uses) Sum() (sum Use) {
	for _, use := range u {
		sum = sum.Plus(use)
	}
	return sum
}

// Joined returns the uses as those of AllKinds, for documents that must stay small; nil for
// none.
func (u Uses) Joined() Uses {
	if sum := u.Sum(); sum != (Use{}) {
		return Uses{AllKinds: sum}
	}
	return nil
}
