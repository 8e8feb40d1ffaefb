package e2e

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// Workers are killed without notice, and so is `rollout up`. The run ends with
// the same bytes as an undisturbed run (I1 to I5, I10).
func TestKilledProcessesDoNotChangeTheResult(t *testing.T) {
	t.Parallel()
	const items, rounds = 320, 5
	file := promptsFile(t, scenarios.MixedPrompts(items))
	want := undisturbed(t, file)
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			m := newProcessKiller(t, seed)
			for range rounds {
				id := m.submit(file)
				for range 1 + m.rng.IntN(4) {
					m.killRandomly(id, want.Summary.Completed)
				}
				m.awaitEnd(id)
				wantSame(t, m.outcome(id), want)
			}
		})
	}
}

// The run is paused and resumed between the kills. A paused run sends the engine
// no request, whichever processes end and start meanwhile (I9).
func TestKilledProcessesDoNotChangeThePausedResult(t *testing.T) {
	t.Parallel()
	const items, rounds = 240, 3
	file := promptsFile(t, scenarios.MixedPrompts(items))
	want := undisturbed(t, file)
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			m := newProcessKiller(t, 100+seed)
			for range rounds {
				id := m.submit(file)
				m.awaitMoment(id, want.Summary.Completed)
				m.duringKill(id, "pause")
				m.await(id, run.Paused, run.Interrupted)
				m.wantNoRequests(id)
				m.control("resume", id)
				m.killRandomly(id, want.Summary.Completed)
				m.awaitEnd(id)
				wantSame(t, m.outcome(id), want)
			}
		})
	}
}

// processKiller is an installation of three worker processes, with a seeded
// choice of processes to kill and of the moments.
type processKiller struct {
	*testInstallation
	llm    llm
	gate   *gate
	rng    *rand.Rand
	killed map[int]bool // by process id
}

func newProcessKiller(t *testing.T, seed uint64) *processKiller {
	t.Helper()
	s := serveSlowly(t, 15*time.Millisecond)
	g := serveBehindGate(t, s)
	return &processKiller{testInstallation: install(t, g.url, 3, smallShards), llm: s, gate: g,
		rng: rand.New(rand.NewPCG(seed, 0)), killed: map[int]bool{}}
}

// killRandomly waits for a moment of the run and kills a process.
func (m *processKiller) killRandomly(id identity.RunID, requests uint64) {
	m.t.Helper()
	m.awaitMoment(id, requests)
	m.kill(id)
}

// awaitMoment waits until the engine has received some more requests, a drawn
// share of the run's number, or the run has ended.
func (m *processKiller) awaitMoment(id identity.RunID, requests uint64) {
	m.t.Helper()
	from := m.llm.requests()
	moment := 1 + m.rng.IntN(int(requests)/3)
	eventually(m.t, "the moment of the kill comes", func() bool {
		return m.llm.requests() >= from+moment || m.hasEnded(id)
	})
}

// kill kills a worker. One time in six it kills `up` and starts it again; in
// half of those cases it also kills all workers. If the run has ended, no worker
// is killed.
func (m *processKiller) kill(id identity.RunID) {
	m.t.Helper()
	switch m.rng.IntN(12) {
	case 0:
		m.up.kill()
		m.start()
	case 1:
		m.up.killGroup()
		m.start()
	default:
		m.killWorker(id)
	}
}

// duringKill kills a process and sends pause or stop while no request is answered:
// an `up` takes a while to start again, and the run would end meanwhile.
func (m *processKiller) duringKill(id identity.RunID, control string) {
	m.t.Helper()
	m.gate.hold()
	defer m.gate.release()
	m.kill(id)
	m.control(control, id)
}

func (m *processKiller) hasEnded(id identity.RunID) bool {
	s, _ := m.show(id)
	return s.Phase.Ended()
}

// killWorker kills a worker process that has not been killed yet, as soon as
// one exists. It leaves out workers whose parent has ended: they drain, and
// are not started again.
func (m *processKiller) killWorker(id identity.RunID) {
	m.t.Helper()
	eventually(m.t, "a worker exists to be killed", func() bool {
		alive := m.aliveWorkers()
		for _, n := range m.rng.Perm(len(alive)) {
			if pid := alive[n].PID; !m.killed[pid] && parent(pid) == m.up.cmd.Process.Pid {
				m.killed[pid] = true
				// One that has just ended by itself counts as killed.
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return m.hasEnded(id)
	})
}

// wantNoRequests checks that a paused run stays paused and sends no request
// while a worker is killed and another one starts.
func (m *processKiller) wantNoRequests(id identity.RunID) {
	m.t.Helper()
	asked := m.llm.requests()
	before := map[string]bool{}
	for _, w := range m.aliveWorkers() {
		before[w.Worker] = true
	}
	m.killWorker(id)
	eventually(m.t, "a worker starts in place of the killed one", func() bool {
		for _, w := range m.aliveWorkers() {
			if !before[w.Worker] && w.State == "ready" {
				return true
			}
		}
		return false
	})
	if now := m.llm.requests(); now != asked {
		m.t.Errorf("the engine received %d requests while the run was paused", now-asked)
	}
	if s, _ := m.show(id); s.Phase != run.Paused && s.Phase != run.Interrupted {
		m.t.Errorf("the paused run is %s", s.Phase)
	}
}
