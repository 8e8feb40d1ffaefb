package e2e

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"rollout/localstack/emulators/standin"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
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
	content := motley(items)
	want := laptop(t, s, disturbed, content)
	a := open(t, s, "max_machines = 3\nidle = '10m'", func(o *standin.Options) {
		o.Seed, o.Events = *seed, standin.Delivery{Times: 3, Jitter: 300 * time.Millisecond}
		o.Faults = standin.Faults{Lost: 15, Throttled: 10}
	})
	if err := a.Groups.Set(a.group, 3); err != nil {
		t.Fatal(err)
	}
	for n := range *rounds {
		at := *seed + uint64(n)
		if !t.Run(fmt.Sprintf("seed %d", at), func(t *testing.T) {
			m := &mayhem{account: a, t: t, dice: rand.New(rand.NewPCG(at, 3)), completed: int(want.summary.Completed)}
			m.round(int(at), content, want)
		}) {
			t.Fatalf("repeat it with -args -seed %d -rounds 1", at)
		}
	}
	a.wantNothingCut()
	var faults standin.Count
	for _, c := range a.Meter.Counts() {
		faults.Lost, faults.Throttled = faults.Lost+c.Lost, faults.Throttled+c.Throttled
	}
	if faults.Lost == 0 || faults.Throttled == 0 {
		t.Errorf("%d replies were lost, and %d requests throttled: that tries nothing", faults.Lost, faults.Throttled)
	}
	for _, name := range []string{queue.DeadLetters(host.CoordinateQueue), queue.DeadLetters(host.WorkQueue(pool))} {
		if n := a.depth(name); n > 0 {
			t.Errorf("%d messages in %s", n, name)
		}
	}
}

// disturbed is the file that is put again and again.
const disturbed = "prompts/nightly & more+100%.jsonl"

// mayhem is one run and who disturbs it.
type mayhem struct {
	*account
	t         *testing.T
	dice      *rand.Rand
	completed int // answers of an undisturbed run
	losses    int // holders that could not hand back
	drains    int // holders that could
	drained   []*standin.Instance
}

// round runs the file once. The first strike is of each kind in turn.
func (m *mayhem) round(n int, content string, want outcome) {
	asked, steps := m.llm.requests(), m.Calls()["coordinate"].Count
	id := m.put(disturbed, content)
	kinds := m.kinds()
	m.strike(id, kinds[n%len(kinds)])
	for range m.dice.IntN(3) {
		m.strike(id, kinds[m.dice.IntN(len(kinds))])
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
			m.t.Errorf("%s has not drained: %s", in.ID, end(in.Said()))
		}
	}
}

// strike waits until the engine was asked some more questions, a number drawn
// from the run's, and acts. If the run ends first, nothing happens.
func (m *mayhem) strike(id identity.RunID, act func(identity.RunID)) {
	from, moment := m.llm.requests(), 1+m.dice.IntN(m.completed/4)
	eventually(m.t, "the moment to strike comes", func() bool { return m.llm.requests() >= from+moment || m.over(id) })
	if !m.over(id) {
		act(id)
	}
}

func (m *mayhem) kinds() []func(identity.RunID) {
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
func (m *mayhem) lost(in *standin.Instance, lead time.Duration) {
	if lead < 5*time.Second {
		m.losses++
		return
	}
	m.drains++
	m.drained = append(m.drained, in)
}

// victim is one of the group's instances.
func (m *mayhem) victim() *standin.Instance {
	all := m.Groups.Instances(m.group)
	if len(all) == 0 {
		return nil
	}
	return all[m.dice.IntN(len(all))]
}

func (m *mayhem) kill(identity.RunID) {
	if in := m.victim(); in != nil {
		m.t.Logf("the worker on %s is killed", in.ID)
		m.losses++
		in.Kill()
	}
}

// everything gives five notices at once: they are one drain.
func (m *mayhem) everything(identity.RunID) {
	in := m.victim()
	if in == nil {
		return
	}
	m.t.Logf("%s gets five notices", in.ID)
	m.lost(in, time.Minute)
	m.Groups.Rebalance(in)
	m.Groups.Interrupt(in, time.Minute)
	m.Groups.Warn(in)
	in.Terminate()
	m.Groups.Warn(in)
}

// freeze stops a worker for longer than it takes to be given up.
func (m *mayhem) freeze(identity.RunID) {
	in := m.victim()
	if in == nil {
		return
	}
	m.t.Logf("the worker on %s is frozen", in.ID)
	m.losses++
	in.Stop()
	time.AfterFunc(7*time.Second, in.Continue)
}

func (m *mayhem) crash(identity.RunID) {
	name := []string{"coordinate", "plan", "submit", "finalize", "reclaim"}[m.dice.IntN(5)]
	m.t.Logf("a process of %s dies: %v", name, m.Crash(name))
}

// pause pauses the run for a while, in which it asks nothing.
func (m *mayhem) pause(id identity.RunID) {
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
