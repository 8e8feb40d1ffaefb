package scenarios

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollout/localstack/fakellm"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/record"
	"slices"
)

// Disturb runs a file in so many rounds, each in an installation of its own and with its own
// seed, from the first one on. Machines are lost with and without notice, workers are killed
// and frozen, functions are killed, runs are paused, messages come more than once and in any
// order, replies are lost and requests are refused. The files have the bytes of an
// undisturbed run on one machine (I1 to I4, I10), a lost worker costs at most what it held
// (I5), a paused run sends no request (I9), and the late writes of a frozen worker change
// nothing (I11). What else a cloud promises of the calls and writes, it checks.
func Disturb(t *testing.T, c Cloud, first uint64, rounds int) {
	for n := range rounds {
		seed := first + uint64(n)
		if !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { disturb(t, c, seed) }) {
			t.Fatalf("replay it with -args -seed %d -rounds 1", seed)
		}
	}
}

// disturbedKey is the key of the input of all rounds.
const disturbedKey = "prompts/nightly & more+100% 日本.jsonl"

// releaseTime is the lead with which a worker releases its shards, also on a busy machine.
const releaseTime = 5 * time.Second

// disturber disturbs one run.
type disturber struct {
	*Fixture
	t         *testing.T
	rng       *rand.Rand
	completed int // answers of an undisturbed run
	losses    int // workers that could not release their shards
	drains    int // workers that could
	drained   []Machine
}

// disturb runs the file once. The first disturbance is of each kind in turn.
func disturb(t *testing.T, c Cloud, seed uint64) {
	d := deploy(t, c, fakellm.Config{Latency: 15 * time.Millisecond, Spread: 0.8}, Settings{Machines: 3, Faults: seed})
	content := MixedPrompts(320)
	want := d.Local(disturbedKey, content)
	m := &disturber{Fixture: d, t: t, rng: rand.New(rand.NewPCG(seed, 3)), completed: int(want.Summary.Completed)}
	asked, id, kinds := d.server.Requests(), d.Put(disturbedKey, content), m.kinds()
	m.disturb(id, kinds[int(seed)%len(kinds)])
	for range m.rng.IntN(3) {
		m.disturb(id, kinds[m.rng.IntN(len(kinds))])
	}
	got := d.AwaitEnd(id)
	WantSame(t, got, want)
	// On a busy machine workers also die of heartbeats that come too late.
	m.losses = max(m.losses, m.deadWorkers())
	// A worker holds one shard and two prefetched ones.
	most := m.completed + m.losses*3*itemsOfAShard + m.drains*itemsOfAShard
	if got := d.server.Requests() - asked; got > most {
		t.Errorf("%d requests were sent for %d answers after %d losses and %d drains, want at most %d (I5)", got,
			m.completed, m.losses, m.drains, most)
	}
	for _, machine := range m.drained {
		Eventually(t, machine.ID()+" has drained", machine.Ended)
	}
	d.Check(got)
}

// deadWorkers counts the workers whose heartbeats stopped before they had drained.
func (m *disturber) deadWorkers() (n int) {
	s := m.Stores()
	now, timings := time.Now(), host.Timings(s.Deployment.Health)
	err := host.Each(m.t.Context(), s.Ports.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if b.State != health.Gone && timings.Dead(b, now) {
			n++
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return n
}

// disturb waits until the engine has received some more requests, a drawn share of the
// run's number, and acts. If the run ends first, it does nothing.
func (m *disturber) disturb(id identity.RunID, act func(identity.RunID)) {
	m.awaitRequests(id, m.server.Requests(), 1+m.rng.IntN(m.completed/4))
	if !m.HasEnded(id) {
		act(id)
	}
}

// kinds are all kinds of disturbances.
func (m *disturber) kinds() (all []func(identity.RunID)) {
	for _, lead := range m.cloud.Leads {
		all = append(all, m.onVictim(func(victim Machine) {
			m.t.Logf("%s is preempted in %s", victim.ID(), lead)
			m.preempt(victim, lead)
		}))
	}
	return append(all, m.onVictim(m.kill), m.onVictim(m.insist), m.onVictim(m.freeze), m.crash, func(id identity.RunID) {
		m.t.Logf("the run is paused: %v", m.pause(id))
		m.drains += 3
	})
}

// onVictim does something to one of the machines.
func (m *disturber) onVictim(act func(Machine)) func(identity.RunID) {
	return func(identity.RunID) {
		if all := m.Machines(); len(all) > 0 {
			act(all[m.rng.IntN(len(all))])
		}
	}
}

// preempt takes a machine back, and counts the cost. A worker with enough lead releases its
// shards.
func (m *disturber) preempt(victim Machine, lead time.Duration) {
	victim.Preempt(lead)
	if lead < releaseTime {
		m.losses++
		return
	}
	m.drains++
	m.drained = append(m.drained, victim)
}

// kill kills a worker.
func (m *disturber) kill(victim Machine) {
	m.t.Logf("the worker on %s is killed", victim.ID())
	m.losses++
	victim.Kill()
}

// insist sends many notices at once, which cause one drain.
func (m *disturber) insist(victim Machine) {
	m.t.Logf("%s gets many notices", victim.ID())
	m.preempt(victim, slices.Max(m.cloud.Leads))
	victim.Insist()
}

// freeze stops a worker for longer than the failure timeout.
func (m *disturber) freeze(victim Machine) {
	m.t.Logf("the worker on %s is frozen", victim.ID())
	m.losses++
	victim.Freeze()
	thaw := time.AfterFunc(time.Duration(m.Stores().Deployment.Health.FailureTimeout)+2*time.Second, victim.Resume)
	m.t.Cleanup(func() {
		if thaw.Stop() {
			victim.Resume()
		}
	})
}

// crash kills a process of a function.
func (m *disturber) crash(identity.RunID) {
	name := []string{"coordinate", "plan", "submit", "finalize", "reclaim"}[m.rng.IntN(5)]
	m.t.Logf("a process of %s is killed", name)
	m.Crash(name)
}
