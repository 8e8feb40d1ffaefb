package emulators

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/functions/inprocess"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/rounds"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
)

// The plan of a run grows, and a second pool answers its second round, over a network
// that throttles and loses replies, while functions and workers die before and after
// their calls. The files are byte for byte
// those of a run over stores in memory whose processes live.
func TestRoundsOverTheDriversHaveTheBytesOfRoundsInMemory(t *testing.T) {
	t.Parallel()
	local, cloud := localAndCloud(t)
	want, got := local.completeRounds(t, false), cloud.completeRounds(t, true)
	if !strings.Contains(want[0], "in round 3 ") {
		t.Fatalf("an undisturbed run has no third round: %s", want[0])
	}
	for i := range want {
		if got[i] != want[i] || len(want[i]) == 0 {
			t.Errorf("file %d differs: %d and %d bytes", i, len(got[i]), len(want[i]))
		}
	}
}

// completeRounds runs three rounds to their end, and returns completions and errors.
// If mortal, the processes of some first lives die at calls that are drawn.
func (s stores) completeRounds(t *testing.T, mortal bool) [2]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var file strings.Builder
	for n := range 16 {
		fmt.Fprintf(&file, `{"id":"p%d","prompt":"number %d"}`+"\n", n, n)
	}
	file.WriteString("no json\n")
	info, err := s.blobs.Put(ctx, key, strings.NewReader(file.String()), blob.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}, {Name: "judges", Model: rounds.JudgeModel}}
	d.Defaults.Kind, d.Defaults.Shard.Items, d.Defaults.Model.URI = rounds.Name, 3, "mock"
	kinds := kind.Table{}.With(rounds.WithJudge(3, 2))
	// lives runs a process until ctx ends, as often as it dies.
	lives := func(name string, deaths, most int, run func(ctx context.Context, p host.Ports) error) {
		rng := rand.New(rand.NewPCG(1, uint64(len(name))))
		for n := 0; ctx.Err() == nil; n++ {
			dieAt := 0
			if mortal && n < deaths {
				dieAt = 1 + rng.IntN(most)
			}
			life, die := context.WithCancel(ctx)
			_ = run(life, rounds.Mortal(s.ports(fmt.Sprintf("%s-%d", name, n)), dieAt, die)) // ends with its process
			die()
		}
	}
	all.Go(func() {
		lives("functions", 8, 40, func(ctx context.Context, p host.Ports) error {
			uploads := make(chan blob.Info, 1)
			uploads <- info // is announced to every life, since one may end before it sent it on
			return inprocess.New(p, inprocess.Config{Deployment: d, Uploads: uploads, Kinds: kinds}).Run(ctx)
		})
	})
	exec := infer.Config{Engine: mock.New(mock.Config{Delay: 5 * time.Millisecond}), Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler), ProgressTimeout: time.Minute, MaxOutage: time.Minute}
	for name, pool := range map[string]string{"worker": "default", "worker-two": "default", "worker-judge": "judges"} {
		all.Go(func() {
			lives(name, 2, 30, func(ctx context.Context, p host.Ports) error {
				cfg := worker.Config{ID: p.Source, Pool: pool, Timings: host.Timings(d.Health), InFlight: 8,
					CheckpointInterval: time.Minute, Drain: 5 * time.Second, Grace: time.Second, Kinds: kinds}
				return worker.New(p, cfg, input.NewIndex(p.Blobs, p.Docs), infer.New(exec)).Run(ctx)
			})
		})
	}
	return s.results(t, identity.UploadRun(d.Bucket, key, info.Version))
}
