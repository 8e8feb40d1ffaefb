package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// quickHealth finds killed workers soon. Workers of a busy machine may fence
// themselves, which is one more disturbance.
const quickHealth = `
[health]
heartbeat_interval = "100ms"
self_fence_timeout = "1200ms"
failure_timeout = "1500ms"
skew_budget = "50ms"
`

// sourPrompts is a plain file of a number of items with ids of three digits. One in
// five is sour, and one in ten very sour: broken servers refuse those.
func sourPrompts(items int) string {
	var b strings.Builder
	for n := range items {
		taste := "sweet"
		switch n % 10 {
		case 2:
			taste = "sour"
		case 7:
			taste = "very sour"
		}
		fmt.Fprintf(&b, "{\"id\":\"%03d\",\"prompt\":\"a %s question, number %d\"}\n", n, taste, n)
	}
	return b.String()
}

// Items that a broken server refused are asked again when it is mended, in children of
// their run and, where it was not mended wholly, in children of those. Processes are
// killed without notice meanwhile. The files are complete: those of a run whose server
// was never broken, with the very rows that the parent had answered.
func TestRetriesCompleteTheFilesThoughProcessesAreKilled(t *testing.T) {
	t.Parallel()
	const items, seeds = 160, 5 // four rounds of kills each
	file := promptsFile(t, sourPrompts(items))
	want := undisturbed(t, file)
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := newSouredRun(t, seed, file, want)
			s.wantAnswered(s.id, func(n int) bool { return n%5 != 2 })
			s.mend("--refuse", "very sour")
			children := []identity.RunID{s.undisturbedRetry(items / 5)}
			for range 2 {
				children = append(children, s.disturbedRetry(s.id, items/5))
			}
			for _, id := range children {
				s.wantAnswered(id, func(n int) bool { return n%10 != 7 })
				s.wantKept(id, s.id)
			}
			s.mend()
			for _, parent := range children[1:] {
				id := s.disturbedRetry(parent, items/10)
				wantSame(t, s.outcome(id), want)
				s.wantKept(id, parent)
				s.wantKept(id, s.id)
			}
			if len(s.killed) == 0 {
				t.Error("no worker was killed")
			}
		})
	}
}

// souredRun is a run whose server refuses sour items, and its installation.
type souredRun struct {
	*processKiller
	id   identity.RunID
	want outcome // of a run whose server refuses nothing
}

func newSouredRun(t *testing.T, seed uint64, file string, want outcome) *souredRun {
	t.Helper()
	l := serve(t, "--refuse", "sour")
	s := &souredRun{want: want, processKiller: &processKiller{llm: l, killed: map[int]bool{},
		testInstallation: install(t, l.url, 3, quickHealth+smallShards), rng: rand.New(rand.NewPCG(seed, 7))}}
	s.id = s.submit(file)
	s.awaitEnd(s.id)
	return s
}

// mend starts the installation again, with a slower server that has these faults alone.
func (s *souredRun) mend(faults ...string) {
	s.t.Helper()
	s.llm = serve(s.t, append([]string{"--latency", "60ms", "--spread", "0.8"}, faults...)...)
	s.engine = s.llm.url
	s.up.killGroup()
	s.start()
}

// retry starts a child of the run, which asks its failed items again.
func (s *souredRun) retry(id identity.RunID) identity.RunID {
	s.t.Helper()
	p := do(s.t, 0, "retry", "--dir", s.dir, string(id))
	return identity.RunID(strings.TrimSpace(p.stdoutText()))
}

// undisturbedRetry runs a child of the run, in which each failed item is asked again, and
// nothing else. The server still refuses half of them, which takes some tries: it does
// not say that they are at fault.
func (s *souredRun) undisturbedRetry(failed int) identity.RunID {
	s.t.Helper()
	before := s.times("worker_fenced")
	id := s.retry(s.id)
	s.awaitEnd(id)
	// Three workers learn it, and so does each that takes the place of one that a busy
	// machine has kept from its heartbeat.
	learn := 3 + s.times("worker_fenced") - before
	if n := s.llm.requests(); n < failed || n > 2*failed+learn*failed {
		s.t.Errorf("the server received %d requests for %d failed items, and %d workers learned of them", n, failed, learn)
	}
	return id
}

// disturbedRetry runs a child of the run, and kills a process meanwhile.
func (s *souredRun) disturbedRetry(parent identity.RunID, failed int) identity.RunID {
	s.t.Helper()
	id := s.retry(parent)
	s.killRandomly(id, uint64(failed))
	s.awaitEnd(id)
	return id
}

// wantAnswered checks that the run answered the items for which answered is true, with
// the rows of the run that had no fault, and that the server refused all others.
func (s *souredRun) wantAnswered(id identity.RunID, answered func(n int) bool) {
	s.t.Helper()
	var rows, ids strings.Builder
	var refused []string
	for n, row := range lines(s.t, s.want.Completions) {
		if answered(n) {
			rows.WriteString(row + "\n")
			fmt.Fprintf(&ids, "%03d ", n)
		} else {
			refused = append(refused, fmt.Sprintf("%03d", n))
		}
	}
	got := s.outcome(id)
	scenarios.WantSameLines(s.t, record.CompletionsFile, got.Completions, rows.String())
	if list := strings.Join(got.ids(s.t), " ") + " "; list != ids.String() {
		s.t.Errorf("run %s answered %s, want %s", id, list, ids.String())
	}
	var errs []string
	for _, e := range got.errorRows(s.t) {
		if e.ID == nil || e.Class != "refused" {
			s.t.Fatalf("run %s has the error row %+v", id, e)
		}
		errs = append(errs, *e.ID)
	}
	if !slices.Equal(errs, refused) {
		s.t.Errorf("run %s failed at %v, want %v", id, errs, refused)
	}
	if sum := got.Summary; sum.Completed+sum.Failed != s.want.Summary.Items || sum.Failed != uint64(len(refused)) ||
		sum.FailedByClass["refused"] != len(refused) {
		s.t.Errorf("run %s has the summary %+v", id, sum)
	}
}

// wantKept checks that a run has each answered row of its ancestor, with every byte.
func (s *souredRun) wantKept(id, ancestor identity.RunID) {
	s.t.Helper()
	has := map[string]bool{}
	for _, row := range s.rawRows(id) {
		has[row] = true
	}
	for _, row := range s.rawRows(ancestor) {
		if !has[row] {
			s.t.Fatalf("run %s lacks the row of run %s\n%s", id, ancestor, row)
		}
	}
}

func (s *souredRun) rawRows(id identity.RunID) []string {
	s.t.Helper()
	return lines(s.t, read(s.t, s.bucket(filepath.Join("runs", string(id), record.CompletionsFile))))
}
