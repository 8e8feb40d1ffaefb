package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// Workers die without notice, and so does `rollout up`: the files are the same
// bytes as if nothing had happened (I1 to I5, I10), and the run ends.
func TestKilledWorkersChangeNothing(t *testing.T) {
	t.Parallel()
	const items, rounds = 320, 5
	file := promptsFile(t, mixedPrompts(items))
	want := undisturbed(t, file)
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			m := newProcessKiller(t, seed)
			for range rounds {
				id := m.submit(file)
				for range 1 + m.rng.IntN(4) {
					m.killRandomly(id, want.summary.Completed)
				}
				m.ends(id)
				wantSame(t, m.outcome(id), want)
			}
		})
	}
}

// The same, paused and resumed between the kills. A paused run asks the engine
// nothing, whoever dies and comes back meanwhile (I9).
func TestKilledWorkersChangeNothingAcrossPauses(t *testing.T) {
	t.Parallel()
	const items, rounds = 240, 3
	file := promptsFile(t, mixedPrompts(items))
	want := undisturbed(t, file)
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			m := newProcessKiller(t, 100+seed)
			for range rounds {
				id := m.submit(file)
				m.killRandomly(id, want.summary.Completed)
				if m.over(id) {
					t.Fatalf("the run was over before it could be paused: give it more items")
				}
				m.steer("pause", id)
				m.await(id, run.Paused, run.Interrupted)
				m.wantSilence(id)
				m.steer("resume", id)
				m.killRandomly(id, want.summary.Completed)
				m.ends(id)
				wantSame(t, m.outcome(id), want)
			}
		})
	}
}

// processKiller is an installation of three worker processes at whose processes a
// seeded killer strikes.
type processKiller struct {
	*testInstallation
	llm    llm
	rng    *rand.Rand
	killed map[int]bool // processes that were killed
}

func newProcessKiller(t *testing.T, seed uint64) *processKiller {
	t.Helper()
	s := serveSlowly(t, 15*time.Millisecond)
	return &processKiller{testInstallation: install(t, s.url, 3, smallBites), llm: s,
		rng: rand.New(rand.NewPCG(seed, 0)), killed: map[int]bool{}}
}

// killRandomly waits until the engine was asked some more questions, a number drawn
// from the run's, and kills a worker; or, one time in six, `up`, which is then
// started again, and half of those times all its workers with it. If the run
// ends first, nobody dies.
func (m *processKiller) killRandomly(id identity.RunID, questions uint64) {
	m.t.Helper()
	from := m.llm.requests()
	moment := 1 + m.rng.IntN(int(questions)/3)
	target := m.rng.IntN(12)
	eventually(m.t, "the moment to strike comes", func() bool {
		return m.llm.requests() >= from+moment || m.over(id)
	})
	switch target {
	case 0:
		m.up.kill()
		m.start()
	case 1:
		m.up.crash()
		m.start()
	default:
		m.killWorker(id)
	}
}

func (m *processKiller) over(id identity.RunID) bool {
	s, _ := m.show(id)
	return s.Phase.Ended()
}

// parent is the parent process of a process; 0 if it is no more.
func parent(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for l := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(l, "PPid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(text))
			return n
		}
	}
	return 0
}

// killWorker kills a worker process that was not killed yet, as soon as there
// is one. One whose parent is gone is on its way out, and nobody would begin in
// its place.
func (m *processKiller) killWorker(id identity.RunID) {
	m.t.Helper()
	eventually(m.t, "there is a worker to kill", func() bool {
		living := m.living()
		for _, n := range m.rng.Perm(len(living)) {
			if pid := living[n].PID; !m.killed[pid] && parent(pid) == m.up.cmd.Process.Pid {
				m.killed[pid] = true
				// One that has just ended by itself is as good as killed.
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
		return m.over(id)
	})
}

// wantSilence checks that a paused run stays so while a worker dies and
// another one begins.
func (m *processKiller) wantSilence(id identity.RunID) {
	m.t.Helper()
	asked := m.llm.requests()
	before := map[string]bool{}
	for _, w := range m.living() {
		before[w.Worker] = true
	}
	m.killWorker(id)
	eventually(m.t, "a worker begins in the place of the killed one", func() bool {
		for _, w := range m.living() {
			if !before[w.Worker] && w.State == "ready" {
				return true
			}
		}
		return false
	})
	if now := m.llm.requests(); now != asked {
		m.t.Errorf("the engine was asked %d questions while the run was paused", now-asked)
	}
	if s, _ := m.show(id); s.Phase != run.Paused && s.Phase != run.Interrupted {
		m.t.Errorf("the paused run is %s", s.Phase)
	}
}
