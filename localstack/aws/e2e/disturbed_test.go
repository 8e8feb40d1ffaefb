package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// Machines are lost with and without notice, workers are killed and frozen,
// functions crash, runs are paused, events come three times and in any order,
// replies of DynamoDB are lost and requests are throttled. The files have the bytes
// of an undisturbed run on one machine (I1 to I4, I10), a lost worker costs at most
// what it held (I5), no chain of invocations loops (I8), a paused run sends no
// request (I9), and the late writes of a frozen worker change nothing (I11).
func TestDisturbedRunsHaveTheSameBytes(t *testing.T) {
	t.Parallel()
	const items = 320
	s := serve(t, "--latency", "15ms", "--spread", "0.8")
	content := mixedPrompts(items)
	want := local(t, s, disturbed, content)
	a := open(t, s, "max_machines = 3\nidle = '10m'", func(o *fakeaws.Options) {
		o.Seed, o.Events = *seed, fakeaws.Delivery{Copies: 3, Jitter: 300 * time.Millisecond}
		o.Faults = fakeaws.Faults{LostReplies: 15, Throttled: 10}
	})
	if err := a.Groups.SetDesired(a.group, 3); err != nil {
		t.Fatal(err)
	}
	for n := range *rounds {
		at := *seed + uint64(n)
		if !t.Run(fmt.Sprintf("seed %d", at), func(t *testing.T) {
			m := &disturber{awsInstallation: a, t: t, rng: rand.New(rand.NewPCG(at, 3)), completed: int(want.summary.Completed)}
			m.round(int(at), content, want)
		}) {
			t.Fatalf("replay it with -args -seed %d -rounds 1", at)
		}
	}
	a.wantNoLoops()
	var faults fakeaws.Count
	for _, c := range a.Meter.Counts() {
		faults.RepliesLost, faults.Throttled = faults.RepliesLost+c.RepliesLost, faults.Throttled+c.Throttled
	}
	if faults.RepliesLost == 0 || faults.Throttled == 0 {
		t.Errorf("%d replies were lost and %d requests throttled, want some of both", faults.RepliesLost, faults.Throttled)
	}
	for _, name := range []string{queue.DeadLetterQueue(host.CoordinateQueue),
		queue.DeadLetterQueue(host.WorkQueue(pool))} {
		if n := a.depth(name); n > 0 {
			t.Errorf("%d messages in %s", n, name)
		}
	}
}

// disturbed is the key of the input of all rounds.
const disturbed = "prompts/nightly & more+100%.jsonl"

// disturber disturbs one run.
type disturber struct {
	*awsInstallation
	t         *testing.T
	rng       *rand.Rand
	completed int // answers of an undisturbed run
	losses    int // workers that could not release their shards
	drains    int // workers that could
	drained   []*fakeaws.Instance
}

// round runs the file once. The first disturbance is of each kind in turn.
func (m *disturber) round(n int, content string, want outcome) {
	asked, steps, dead := m.llm.requests(), m.Calls()["coordinate"].Count, m.deadWorkers()
	id := m.put(disturbed, content)
	kinds := m.kinds()
	m.disturb(id, kinds[n%len(kinds)])
	for range m.rng.IntN(3) {
		m.disturb(id, kinds[m.rng.IntN(len(kinds))])
	}
	wantSame(m.t, m.awaitEnd(id), want)
	shards := int(want.summary.Items)/8 + 1
	// On a busy machine workers also die of heartbeats that come too late.
	m.losses = max(m.losses, m.deadWorkers()-dead)
	// A worker holds one shard and two prefetched ones, of 8 items each.
	if got, most := m.llm.requests()-asked, m.completed+m.losses*24+m.drains*8; got > most {
		m.t.Errorf("%d requests were sent for %d answers after %d losses and %d drains, want at most %d (I5)", got,
			m.completed, m.losses, m.drains, most)
	}
	if got, most := m.Calls()["coordinate"].Count-steps, 6*shards+40; got > most {
		m.t.Errorf("%d steps of coordinate for %d shards, want at most %d (I8)", got, shards, most)
	}
	for _, in := range m.drained {
		select {
		case <-in.Ended():
		case <-time.After(patience):
			m.t.Errorf("%s has not drained: %s", in.ID, end(in.Output()))
		}
	}
}

// deadWorkers counts the workers whose heartbeats stopped before they had drained.
func (m *disturber) deadWorkers() (n int) {
	now, timings := time.Now(), host.Timings(m.deployment.Health)
	err := host.Each(m.t.Context(), m.Stack.Ports.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
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

// disturb waits until the engine has received some more requests, a drawn share of
// the run's number, and acts. If the run ends first, it does nothing.
func (m *disturber) disturb(id identity.RunID, act func(identity.RunID)) {
	from, moment := m.llm.requests(), 1+m.rng.IntN(m.completed/4)
	eventually(m.t, "the moment of the disturbance comes",
		func() bool { return m.llm.requests() >= from+moment || m.hasEnded(id) })
	if !m.hasEnded(id) {
		act(id)
	}
}

// kinds are all kinds of disturbances.
func (m *disturber) kinds() []func(identity.RunID) {
	lose := func(lead time.Duration) func(identity.RunID) {
		return func(identity.RunID) {
			if in := m.victim(); in != nil {
				m.t.Logf("%s is interrupted in %s", in.ID, lead)
				m.Groups.Interrupt(in, lead)
				m.lost(in, lead)
			}
		}
	}
	return []func(identity.RunID){lose(0), lose(3 * time.Second), lose(30 * time.Second), lose(2 * time.Minute), m.kill,
		m.everything, m.freeze, m.crash, m.pause}
}

// lost counts the cost of a loss. A worker with enough lead releases its shards.
func (m *disturber) lost(in *fakeaws.Instance, lead time.Duration) {
	if lead < 5*time.Second {
		m.losses++
		return
	}
	m.drains++
	m.drained = append(m.drained, in)
}

// victim is one of the group's instances.
func (m *disturber) victim() *fakeaws.Instance {
	all := m.Groups.Instances(m.group)
	if len(all) == 0 {
		return nil
	}
	return all[m.rng.IntN(len(all))]
}

// kill kills the process of an instance.
func (m *disturber) kill(identity.RunID) {
	if in := m.victim(); in != nil {
		m.t.Logf("the worker on %s is killed", in.ID)
		m.losses++
		in.KillProcess()
	}
}

// everything sends five notices at once, which cause one drain.
func (m *disturber) everything(identity.RunID) {
	in := m.victim()
	if in == nil {
		return
	}
	m.t.Logf("%s gets five notices", in.ID)
	m.lost(in, time.Minute)
	m.Groups.EmitRebalance(in)
	m.Groups.Interrupt(in, time.Minute)
	m.Groups.EmitInterruptionWarning(in)
	in.SignalTerminate()
	m.Groups.EmitInterruptionWarning(in)
}

// freeze stops a worker for longer than the failure timeout.
func (m *disturber) freeze(identity.RunID) {
	in := m.victim()
	if in == nil {
		return
	}
	m.t.Logf("the worker on %s is frozen", in.ID)
	m.losses++
	in.FreezeProcess()
	time.AfterFunc(7*time.Second, in.ResumeProcess)
}

// crash kills a process of a function.
func (m *disturber) crash(identity.RunID) {
	name := []string{"coordinate", "plan", "submit", "finalize", "reclaim"}[m.rng.IntN(5)]
	m.t.Logf("a process of %s is killed: %v", name, m.Crash(name))
}

// pause pauses the run for a while, in which it must send no request.
func (m *disturber) pause(id identity.RunID) {
	output, err := m.control("pause", id)
	if err != nil {
		if !m.hasEnded(id) {
			m.t.Errorf("pause: %v: %s", err, output)
		}
		return
	}
	m.t.Logf("the run is paused")
	m.drains += 3
	var at run.Phase
	eventually(m.t, "the run is paused", func() bool {
		at = m.phase(id)
		return at == run.Paused || at == run.Interrupted || at.Ended()
	})
	asked, minutes := m.llm.requests(), m.Calls()["reclaim"].Count
	eventually(m.t, "reclaim runs twice", func() bool { return m.Calls()["reclaim"].Count > minutes+2 })
	if got := m.llm.requests(); got != asked {
		m.t.Errorf("%d requests while the run is %s", got-asked, at)
	}
	if output, err := m.control("resume", id); err != nil && !m.hasEnded(id) {
		m.t.Errorf("resume: %v: %s", err, output)
	}
}
