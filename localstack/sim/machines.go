package sim

import (
	"encoding/json"
	"math"
	"sync"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

// Machines of the simulation cost this much an hour, a thousandth of a dollar a second.
const machineHour = 3.6

// tokenPrices returns what tokens of the simulation cost: thousandths of a dollar each.
func tokenPrices() cost.TokenPrices { return cost.TokenPrices{Prompt: 1000, Completion: 2000} }

// longestBoot is how long before its worker a machine is switched on, at most.
const longestBoot = 40 * time.Second

// machines are the lives of the workers' machines: each worker has one of its own. It is
// safe for concurrent use.
type machines struct {
	mu    sync.Mutex
	lives map[string]*life // by worker
}

// life is the life of a machine, by the worker's clock. Its worker's heartbeats say how much
// of it no shard has.
type life struct {
	launched, ended time.Time
	heartbeat       health.Heartbeat // the last one
}

// launch gives a worker a machine that was switched on a drawn time before.
func (m *machines) launch(p *process, cfg *worker.Config) {
	kind := []string{"a/spot", "a/on-demand", "b/spot"}[p.world.rand.intN("machine/"+p.name, 3)]
	l := &life{launched: p.Now().Add(-p.world.rand.duration("boot/"+p.name, 0, longestBoot))}
	cfg.Machine = record.Machine{Kind: cost.KindOf(kind), Launched: l.launched}
	cfg.Price, cfg.TokenPrices = machineHour, tokenPrices()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lives == nil {
		m.lives = map[string]*life{}
	}
	m.lives[p.name] = l
}

// count returns how many machines there were.
func (m *machines) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lives)
}

// end ends the machine with its worker.
func (m *machines) end(p *process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lives[p.name].ended = p.Now()
}

// beat takes in a worker's heartbeat.
func (m *machines) beat(worker string, value []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, ok := m.lives[worker]
	var b health.Heartbeat
	if ok && json.Unmarshal(value, &b) == nil && b.Worker == worker {
		l.heartbeat = b
	}
}

// checkMachines checks that shards of all runs count the time of each machine at most once;
// and, where no holder is robbed of its shards, that with what is unclaimed no more is missing
// than what passed since the last heartbeats, and a hundredth. A shard may have taken, and
// committed, what the last heartbeat before a crash called unclaimed.
func (w *world) checkMachines() {
	w.audit.mu.Lock()
	defer w.audit.mu.Unlock()
	m := &w.machines
	m.mu.Lock()
	defer m.mu.Unlock()
	var counted cost.Use
	for _, d := range w.audit.shards {
		counted = counted.Plus(d.Counts.Machines.Sum())
	}
	taken := micros(counted)
	var whole, known time.Duration
	for _, l := range m.lives {
		counted = counted.Plus(l.heartbeat.Unclaimed)
		whole += l.ended.Sub(l.launched)
		if !l.heartbeat.At.IsZero() {
			known += l.heartbeat.At.Sub(l.launched)
		}
	}
	const rounding = time.Millisecond
	got := micros(counted)
	w.tracef("machines: %s of their %s are counted, %s by shards, %s up to their last heartbeats", got, whole, taken,
		known)
	if taken > whole+rounding {
		w.audit.breakf("%s of machines are counted by shards, they lived %s", taken, whole)
	}
	if !w.thefts && float64(got) < 0.99*float64(known) { // a holder who is robbed counts nothing
		w.audit.breakf("%s of machines are counted, they lived %s up to their last heartbeats", got, known)
	}
	if usd, want := counted.USD(), machineHour*got.Hours(); math.Abs(usd-want) > 1e-6 {
		w.audit.breakf("the machines' time costs $%g, want $%g", usd, want)
	}
}

// checkCost checks that the dollars of the ended run are those of the machines' time and of
// the tokens of its shards, by kind in the summary, and in sum in the run's state.
func (s *scenario) checkCost(st run.State, sum record.Summary) {
	var want cost.Uses
	var tokens int64
	for n := range st.Shards {
		c := s.audit.shards[identity.ShardKey(s.id, n)].Counts
		want.Add(c.Machines)
		tokens += c.TokenNanoUSD
	}
	if st.Counts.TokenNanoUSD != tokens || math.Abs(sum.Cost.Tokens-float64(tokens)/1e9) > 1e-9 {
		s.audit.breakf("the tokens of the shards cost %d billionths of a dollar, the run has %d and $%g", tokens,
			st.Counts.TokenNanoUSD, sum.Cost.Tokens)
	}
	if got := st.Counts.Machines.Sum(); got != want.Sum() {
		s.audit.breakf("the run has %+v of machines, its shards %+v", got, want.Sum())
	}
	lines := sum.Cost.Machines + sum.Cost.Boot + sum.Cost.Idle
	usd := want.Sum().USD()
	if all := usd + float64(tokens)/1e9; math.Abs(sum.CostUSD-all) > 1e-9 || math.Abs(lines-usd) > 1e-9 {
		s.audit.breakf("the run cost $%g, want $%g; its machines $%g, those of its shards $%g", sum.CostUSD, all, lines, usd)
	}
	for _, m := range sum.Cost.ByMachine {
		of := want[cost.Kind{Type: m.Type, Class: m.Class}.Key()]
		if m.USD == nil || math.Abs(*m.USD-of.USD()) > 1e-9 {
			s.audit.breakf("the machines of %s %s cost %v, want $%g", m.Class, m.Type, m.USD, of.USD())
		}
	}
}

func micros(u cost.Use) time.Duration { return time.Duration(u.Micros()) * time.Microsecond }
