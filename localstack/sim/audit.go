package sim

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// audit checks the invariants on every accepted write. It is safe for concurrent
// use.
type audit struct {
	w  *world
	mu sync.Mutex

	puts    map[string]int
	shards  map[string]shard.Doc
	history []shard.Doc                  // of all claims and all that became Done, in order
	paused  map[identity.RunID]time.Time // when the run was paused or stopped
	widest  map[identity.RunID]int       // the most shards in flight at once
	doneAt  map[string]time.Time         // when a shard became Done
	broken  []string

	leases   map[string]*lease            // by worker
	sealed   map[string]sealing           // by shard
	complete map[identity.RunID]time.Time // when all shards of the run were first known to be done
}

func newAudit(w *world) *audit {
	return &audit{w: w, puts: map[string]int{}, shards: map[string]shard.Doc{}, paused: map[identity.RunID]time.Time{},
		widest: map[identity.RunID]int{}, leases: map[string]*lease{}, sealed: map[string]sealing{},
		complete: map[identity.RunID]time.Time{}, doneAt: map[string]time.Time{}}
}

// breakf reports a broken invariant in the trace and fails the test.
func (a *audit) breakf(format string, args ...any) {
	a.w.tracef("BROKEN "+format, args...)
	a.broken = append(a.broken, format)
	a.w.t.Errorf("seed %d: "+format, append([]any{a.w.seed}, args...)...)
}

// put checks that an object outside the prompts is written once and create-only
// (I2).
func (a *audit) put(key string, createOnly bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.puts[key]++
	if strings.HasPrefix(key, record.PromptsPrefix) {
		return
	}
	if a.puts[key] > 1 || !createOnly {
		a.breakf("I2: %s is put %d times, create-only %v", key, a.puts[key], createOnly)
	}
}

// document checks a shard document against the previous one, and the size of a
// coordinator document.
func (a *audit) document(p *process, key string, value []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.dead.Load() {
		a.breakf("%s wrote %s after its crash", p.name, key)
	}
	a.w.http.document(key, a.shards[key], value)
	switch prefix, _, _ := strings.Cut(key, "/"); prefix {
	case "shard":
		a.shard(p, key, value)
	case "coordinator":
		a.coordinator(p, key, value)
	case "control":
		a.w.spending.control(key, value)
	case "beat":
		a.heartbeat(p, key, value)
		a.w.machines.beat(strings.TrimPrefix(key, "beat/"), value)
	}
}

func (a *audit) shard(p *process, key string, value []byte) {
	var d shard.Doc
	if err := json.Unmarshal(value, &d); err != nil {
		a.breakf("document %s: %v", key, err)
		return
	}
	if len(value) > 4<<10 {
		a.breakf("document %s has %d bytes", key, len(value))
	}
	was, known := a.shards[key]
	a.shards[key] = d
	if !known {
		was = shard.New(d.Run, d.Shard)
	}
	a.fencing(p, was, d)
	a.kept(p, was, d)
	if d.Sealed != "" {
		a.sealed[key] = sealing{p.name, time.Now()}
	}
	if d.State == shard.Done {
		a.doneAt[key] = time.Now()
	}
	if d.State == shard.Done || d.State == shard.Running && d.Attempt != was.Attempt {
		a.history = append(a.history, d)
	}
	switch {
	case was.State == shard.Done:
		a.breakf("I2: %s rewrote the Done shard %d", p.name, d.Shard)
	case d.State == shard.Running && d.Attempt == was.Attempt+1: // a claim
		if since, ok := a.paused[d.Run]; ok && p.Now().Sub(since) > 5*time.Second {
			a.breakf("I9: %s claimed shard %d %s after the pause", p.name, d.Shard, p.Now().Sub(since))
		}
		if was.State == shard.Running && was.Worker == p.name && known {
			a.w.tracef("%s claims shard %d from itself", p.name, d.Shard)
		}
	case d.Attempt != was.Attempt:
		a.breakf("I3: %s took shard %d from attempt %d to %d", p.name, d.Shard, was.Attempt, d.Attempt)
	case was.State != shard.Running && d.State != shard.Done:
		a.breakf("I3: %s made the %s shard %d %s", p.name, was.State, d.Shard, d.State)
	case d.State == shard.Done && d.Sealed == "" && was.Worker != p.name:
		a.breakf("I3: %s committed shard %d of %s", p.name, d.Shard, was.Worker)
	}
}

func (a *audit) coordinator(p *process, key string, value []byte) {
	if len(value) > 16<<10 {
		a.breakf("document %s has %d bytes", key, len(value))
	}
	var s run.State
	if err := json.Unmarshal(value, &s); err != nil {
		a.breakf("document %s: %v", key, err)
		return
	}
	a.widest[s.Run] = max(a.widest[s.Run], s.InFlight.Len())
	a.coordinatorTokens(s)
	if _, known := a.complete[s.Run]; !known && s.Phase == run.Finalizing {
		a.complete[s.Run] = time.Now()
	}
	a.w.tracef("%s saved run: %s step %d, %d planned, %d sent, frontier %d, ok %d, failed %d %s", p.name, s.Phase,
		s.Steps, s.Shards, s.NextShard, s.Done.Frontier(), s.Counts.OK, s.Counts.Failed, s.Message)
}

// setPaused records that the run must start no work from now on, or that it may
// again.
func (a *audit) setPaused(id identity.RunID, paused bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !paused {
		delete(a.paused, id)
	} else if _, ok := a.paused[id]; !ok {
		a.paused[id] = time.Now()
	}
}
