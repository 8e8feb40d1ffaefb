package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
)

// smallParts gives each run facts of small parts.
const smallParts = smallShards + "[defaults.facts]\nparquet = true\npart_items = 40\n"

// factsOf returns the files of a run's facts, by their names.
func (i *testInstallation) factsOf(id identity.RunID) map[string]string {
	i.t.Helper()
	names, err := filepath.Glob(i.bucket("runs/" + string(id) + "/facts/*"))
	if err != nil {
		i.t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			i.t.Fatal(err)
		}
		out[filepath.Base(name)] = string(b)
	}
	return out
}

// The facts of a run are the same bytes for any number of workers, and when processes are
// killed meanwhile.
func TestFactsAreTheSameForAnyWorkersAndKills(t *testing.T) {
	t.Parallel()
	const items = 160
	file := promptsFile(t, scenarios.MixedPrompts(items))
	i := install(t, serve(t).url, 1, smallParts)
	id := i.submit(file)
	i.awaitEnd(id)
	want, requests := i.factsOf(id), i.outcome(id).Summary.Completed
	if len(want) < 3 {
		t.Fatalf("%d files of facts, want several", len(want))
	}
	for _, workers := range []int{3, 8} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			i := install(t, serve(t).url, workers, smallParts)
			id := i.submit(file)
			i.awaitEnd(id)
			wantSameFacts(t, i.factsOf(id), want)
		})
	}
	t.Run("kills", func(t *testing.T) {
		t.Parallel()
		s := serveSlowly(t, 15*time.Millisecond)
		m := &processKiller{testInstallation: install(t, s.url, 3, smallParts), llm: s,
			rng: rand.New(rand.NewPCG(7, 0)), killed: map[int]bool{}}
		id := m.submit(file)
		m.killRandomly(id, requests)
		m.up.killGroup() // the process that writes the facts
		m.start()
		m.killRandomly(id, requests)
		m.awaitEnd(id)
		wantSameFacts(t, m.factsOf(id), want)
	})
}

func wantSameFacts(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("there are %d files of facts, want %d", len(got), len(want))
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s has other bytes: %d, want %d", name, len(got[name]), len(want[name]))
		}
	}
}
