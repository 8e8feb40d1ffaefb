// Package cost says what runs cost in US dollars: the time of machines, divided among the
// runs that used them, the requests of the control plane by count, and the tokens of
// hosted models.
//
// The time of a machine has three parts:
//
//	launched ──boot──▶ ready ──idle──▶ first request ──busy──▶ last request ──idle──▶ … ──▶ ended
//
// While requests are in flight, a machine is busy: each of k requests in flight gets 1/k of
// the time, so that a shard gets its part of all slot-seconds. The boot, and idle time
// before a request, belong to the run whose request ends it, as far as they are later than
// the run's submission: the machine came and waited for that run. What no run gets, such as
// the idle time before the machine leaves, is unclaimed. All parts add up to the machine's
// life to the nanosecond; see Meter.
//
// The package reads no clock and no document.
package cost
