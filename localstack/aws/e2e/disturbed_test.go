package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/queue"
)

// Machines are lost with and without notice, workers are killed and frozen,
// functions die, runs are paused, events come three times and in any order,
// replies of DynamoDB are lost and requests are throttled: the files are the
// same bytes as a laptop's (I1 to I4, I10), a lost worker costs no more than
// what it held (I5), no chain feeds itself (I8), a paused run asks nothing (I9),
// and a frozen worker's late writes change nothing (I11).
func TestDisturbedRunsAreTheLaptops(t *testing.T) {
	t.Parallel()
	const items = 320
	s := serve(t, "--latency", "15ms", "--spread", "0.8")
	content := mixedPrompts(items)
	want := laptop(t, s, disturbed, content)
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
			t.Fatalf("repeat it with -args -seed %d -rounds 1", at)
		}
	}
	a.wantNothingCut()
	var faults fakeaws.Count
	for _, c := range a.Meter.Counts() {
		faults.RepliesLost, faults.Throttled = faults.RepliesLost+c.RepliesLost, faults.Throttled+c.Throttled
	}
	if faults.RepliesLost == 0 || faults.Throttled == 0 {
		t.Errorf("%d replies were lost, and %d requests throttled: that tries nothing", faults.RepliesLost, faults.Throttled)
	}
	for _, name := range []string{queue.DeadLetterQueue(host.CoordinateQueue), queue.DeadLetterQueue(host.WorkQueue(pool))} {
		if n := a.depth(name); n > 0 {
			t.Errorf("%d messages in %s", n, name)
		}
	}
}

// disturbed is the file that is put again and again.
const disturbed = "prompts/nightly & more+100%.jsonl"

// disturber is one run and who disturbs it.
type disturber struct {
	*awsInstallation
	t         *testing.T
	rng       *rand.Rand
	completed int // answers of an undisturbed run
	losses    int // holders that could not hand back
	drains    int // holders that could
	drained   []*fakeaws.Instance
}

// round runs the file once. The first strike is of each kind in turn.
func (m *disturber) round(n int, content string, want outcome) {
	asked, steps := m.llm.requests(), m.Calls()["coordinate"].Count
	id := m.put(disturbed, content)
	kinds := m.kinds()
	m.disturb(id, kinds[n%len(kinds)])
	for range m.rng.IntN(3) {
		m.disturb(id, kinds[m.rng.IntN(len(kinds))])
	}
	wantSame(m.t, m.ends(id), want)
	shards := int(want.summary.Items)/8 + 1
	// A holder has a shard in work and two more prefetched, of 8 items each.
	if got, most := m.llm.requests()-asked, m.completed+m.losses*24+m.drains*8; got > most {
		m.t.Errorf("%d questions were asked for %d answers, after %d losses and %d drains: want at most %d (I5)", got, m.completed, m.losses, m.drains, most)
	}
	if got, most := m.Calls()["coordinate"].Count-steps, 6*shards+40; got > most {
		m.t.Errorf("%d steps of coordinate for %d shards, want at most %d (I8)", got, shards, most)
	}
	for _, in := range m.drained {
		select {
		case <-in.Ended():
		case <-time.After(10 * time.Second):
			m.t.Errorf("%s has not drained: %s", in.ID, end(in.Output()))
		}
	}
}

// disturb waits until the engine was asked some more questions, a number drawn
// from the run's, and acts. If the run ends first, nothing happens.
func (m *disturber) disturb(id identity.RunID, act func(identity.RunID)) {
	from, moment := m.llm.requests(), 1+m.rng.IntN(m.completed/4)
	eventually(m.t, "the moment to strike comes", func() bool { return m.llm.requests() >= from+moment || m.over(id) })
	if !m.over(id) {
		act(id)
	}
}

func (m *disturber) kinds() []func(identity.RunID) {
	lose := func(lead time.Duration) func(identity.RunID) {
		return func(identity.RunID) {
			if in := m.victim(); in != nil {
				m.t.Logf("%s is taken back in %s", in.ID, lead)
				m.Groups.Interrupt(in, lead)
				m.lost(in, lead)
			}
		}
	}
	return []func(identity.RunID){lose(0), lose(3 * time.Second), lose(30 * time.Second), lose(2 * time.Minute), m.kill, m.everything, m.freeze, m.crash, m.pause}
}

// lost notes what a loss may cost. Whoever has time hands back and ends.
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

func (m *disturber) kill(identity.RunID) {
	if in := m.victim(); in != nil {
		m.t.Logf("the worker on %s is killed", in.ID)
		m.losses++
		in.KillProcess()
	}
}

// everything gives five notices at once: they are one drain.
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

// freeze stops a worker for longer than it takes to be given up.
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

func (m *disturber) crash(identity.RunID) {
	name := []string{"coordinate", "plan", "submit", "finalize", "reclaim"}[m.rng.IntN(5)]
	m.t.Logf("a process of %s dies: %v", name, m.Crash(name))
}

// pause pauses the run for a while, in which it asks nothing.
func (m *disturber) pause(id identity.RunID) {
	said, err := m.steer("pause", id)
	if err != nil {
		if !m.over(id) {
			m.t.Errorf("pause: %v: %s", err, said)
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
	eventually(m.t, "some time passes", func() bool { return m.Calls()["reclaim"].Count > minutes+2 })
	if got := m.llm.requests(); got != asked {
		m.t.Errorf("%d questions while the run is %s", got-asked, at)
	}
	if said, err := m.steer("resume", id); err != nil && !m.over(id) {
		m.t.Errorf("resume: %v: %s", err, said)
	}
}
