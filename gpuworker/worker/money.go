package worker

import (
	"sync/atomic"

	"rollout/shared/core/cost"
)

// money counts what a shard has cost in all its attempts: the tokens of all its requests, at
// the prices of the engine, and the time of machines. It is safe for concurrent use.
type money struct {
	prices   cost.TokenPrices
	machine  *machineUse
	before   int64        // busy time of machines, in billionths of a dollar, of earlier attempts
	tokens   atomic.Int64 // what tokens cost, in billionths of a dollar
	requests atomic.Int64 // that have ended here
}

// begin sets what earlier attempts have taken.
func (m *money) begin(prices cost.TokenPrices, machine *machineUse, tokenNanoUSD int64) {
	m.prices, m.machine = prices, machine
	m.before = busyNanoUSD(machine.before)
	m.tokens.Store(tokenNanoUSD)
}

// ended counts the tokens of a request that has ended.
func (m *money) ended(prompt, completion int64) {
	m.requests.Add(1)
	if m.prices.Known() {
		m.tokens.Add(m.prices.NanoUSD(prompt, completion))
	}
}

// spent returns what the shard has cost until now, in billionths of a dollar.
func (m *money) spent() int64 { return m.tokens.Load() + m.machine.uses().Sum().NanoUSD }

// perRequest returns what a request has cost on average of the machine's busy time, in
// billionths of a dollar; 0 before the first one has ended.
func (m *money) perRequest() int64 {
	n := m.requests.Load()
	if n == 0 {
		return 0
	}
	return max(0, busyNanoUSD(m.machine.uses())-m.before) / n
}

// busyNanoUSD returns what the busy time of machines cost, in billionths of a dollar.
func busyNanoUSD(uses cost.Uses) int64 {
	var usd float64
	for _, u := range uses {
		usd += u.Of(u.Busy)
	}
	return int64(usd * 1e9)
}
