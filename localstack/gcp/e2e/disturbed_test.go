package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakepubsub"
)

// calmHealth are timings by which a dead worker is noticed within a quarter of a
// minute, with few heartbeats.
const calmHealth = `
[health]
heartbeat_interval = "2s"
self_fence_timeout = "8s"
failure_timeout = "10s"
skew_budget = "500ms"
`

// leads are the times between a notice and the end of a machine. Compute Engine says
// 30 s, and takes them less seriously.
var leads = []time.Duration{30 * time.Second, 8 * time.Second, 3 * time.Second, 0}

// Runs go on while machines are lost and preempted, functions are killed, messages
// come twice and out of order, replies are lost and commits aborted. The completions
// are a laptop's, and no document is written more than once a second over 10 seconds.
// Repeat one with -args -seed N -rounds 1.
func TestDisturbedRuns(t *testing.T) {
	for n := range *rounds {
		seed := *seed + uint64(n)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { disturb(t, seed) })
	}
}

func disturb(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 18))
	in := deploy(t, faults{
		firestore: fakefirestore.Faults{Seed: seed, Aborted: 10, LostReplies: 10},
		pubsub:    fakepubsub.Faults{Seed: seed, LostReplies: 10, Duplicates: 20, StaleAcks: 50},
		storage:   fakegcs.NewFaults(seed, 10, 10, 5),
	}, calmHealth)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { in.tick(ctx) })
	machines := []*machine{in.boot(t, 1), in.boot(t, 2), in.boot(t, 3)}
	file := prompts(3000)
	id := upload(t, in.Ports, bucket, file)
	for i := range 4 {
		in.waitForResults(t, 20+25*i)
		m := rng.IntN(len(machines))
		switch rng.IntN(3) {
		case 0:
			_ = machines[m].worker.Process.Kill() // it may have ended
		case 1:
			lead := leads[rng.IntN(len(leads))]
			in.preempt(t, machines[m])
			victim := machines[m].worker.Process
			timer := time.AfterFunc(lead, func() { _ = victim.Kill() })
			t.Cleanup(func() { timer.Stop() })
		case 2:
			s := in.services[rng.IntN(len(in.services))]
			s.kill()
			in.launch(t, s)
			continue
		}
		machines[m] = in.boot(t, 4+i)
	}
	in.wantLaptops(t, id, file)
	const window = 10 * time.Second
	document, n := in.firestore.Busiest(window)
	t.Logf("the busiest document is %s, written %d times within %v", document, n, window)
	if n > 10 {
		t.Error("that is more than once a second")
	}
}
