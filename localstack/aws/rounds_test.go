package emulators

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"rollout/functions/inprocess"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/rounds"
	"rollout/localstack/subprocess"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/memory"
)

// The plan of a run grows, and a second pool answers its second round, over a network
// that throttles and loses replies, while functions and workers are killed with SIGKILL
// before and after their calls. The files are byte for byte those of a run over stores
// in memory whose processes live.
func TestRoundsOverTheDriversHaveTheBytesOfRoundsInMemory(t *testing.T) {
	t.Parallel()
	want := roundsInMemory(t)
	if !strings.Contains(want[0], "in round 3 first of its round was") {
		t.Fatalf("an undisturbed run has no third round that depends on the judged one: %s", want[0])
	}
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	e.MakeTable(t.Context(), t)
	for seed := range uint64(*roundsSeeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			got := killedRounds(t, seed, roundsProcess{URL: e.URL, Bucket: e.Bucket, Table: e.Table, Prefix: fresh()})
			for i := range want {
				if got[i] != want[i] || len(want[i]) == 0 {
					t.Errorf("file %d differs: %d and %d bytes", i, len(got[i]), len(want[i]))
				}
			}
		})
	}
}

// roundsSeeds is how many runs are disturbed.
var roundsSeeds = flag.Int("rounds", 1, "`number` of runs whose processes are killed")

// roundsVariable holds the roundsProcess of a process of the system, as JSON.
const roundsVariable = "EMULATORS_ROUNDS"

// roundsProcess is a process of the system, and what it shares with the others.
type roundsProcess struct {
	URL, Bucket, Table, Prefix string
	Upload                     blob.Info // the run's input

	Name  string
	Pool  string // of a worker; "" for the functions
	DieAt int    // the number of the call that kills the process; 0 for none
	Seed  uint64 // of the faults
}

// stores are the drivers, over a network that throttles and loses replies.
func (p roundsProcess) stores(ctx context.Context) (s stores, err error) {
	cfg, err := Endpoint{URL: p.URL, Faults: NewFaults(p.Seed, 10, 10)}.load(ctx)
	if err != nil {
		return s, err
	}
	return stores{aws.NewBucket(cfg, p.Bucket, aws.BucketOptions{Prefix: p.Prefix + "/", PartBytes: 5 << 20}),
		aws.NewDocuments(cfg, p.Table,
			aws.DocumentOptions{Prefix: p.Prefix, Listed: aws.ListedPrefixes(), Spread: 3}),
		aws.NewQueues(cfg, aws.QueueOptions{Prefix: p.Prefix + "-", CreateMissing: true, Poll: time.Second})}, nil
}

// serveRounds runs a process of the system until it is killed.
func serveRounds(text string) error {
	var p roundsProcess
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := p.stores(ctx)
	if err != nil {
		return err
	}
	return runRounds(ctx, rounds.Mortal(s.ports(p.Name), p.DieAt, func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal comes
	}), p.Pool, p.Upload)
}

// judges is the pool that answers the second of three rounds.
const judges = "judges"

// runRounds runs the functions, or a worker of the pool, until ctx ends.
func runRounds(ctx context.Context, p host.Ports, pool string, upload blob.Info) error {
	kinds := kind.Table{}.With(rounds.WithJudge(3, 2))
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}, {Name: judges, Model: rounds.JudgeModel}}
	d.Defaults.Kind, d.Defaults.Shard.Items, d.Defaults.Model.URI = rounds.Name, 3, "mock"
	if pool == "" {
		uploads := make(chan blob.Upload, 1)
		uploads <- blob.Upload{Info: upload} // is announced to every life, since one may end before it sent it on
		return inprocess.New(p, inprocess.Config{Deployment: d, Uploads: uploads, Kinds: kinds}).Run(ctx)
	}
	exec := infer.Config{Engine: mock.New(mock.Config{Delay: 5 * time.Millisecond}), Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler), ProgressTimeout: time.Minute, MaxOutage: time.Minute}
	cfg := worker.Config{ID: p.Source, Pool: pool, Timings: host.Timings(d.Health), InFlight: 8,
		CheckpointInterval: time.Minute, Drain: 5 * time.Second, Grace: time.Second, Kinds: kinds}
	return worker.New(p, cfg, input.NewIndex(p.Blobs, p.Docs), infer.New(exec)).Run(ctx)
}

// roundsPools are the pools of the processes by their names; "" runs the functions.
var roundsPools = map[string]string{"functions": "", "worker": "default", "worker-two": "default",
	"worker-judge": judges}

// putRounds uploads the first round: 16 prompts and a broken line.
func (s stores) putRounds(t *testing.T) blob.Info {
	t.Helper()
	var file strings.Builder
	for n := range 16 {
		fmt.Fprintf(&file, `{"id":"p%d","prompt":"number %d"}`+"\n", n, n)
	}
	file.WriteString("no json\n")
	info, err := s.blobs.Put(t.Context(), key, strings.NewReader(file.String()), blob.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// roundsResults returns completions and errors of the rounds.
func (s stores) roundsResults(t *testing.T, upload blob.Info) [2]string {
	t.Helper()
	return s.results(t, identity.UploadRun(config.DefaultDeployment().Bucket, key, upload.Version))
}

// roundsInMemory runs three rounds in this process, and returns their files.
func roundsInMemory(t *testing.T) [2]string {
	t.Helper()
	s := stores{memory.NewBucket(clock.System{}), memory.NewDocuments(), memory.NewQueues(clock.System{})}
	upload := s.putRounds(t)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for name, pool := range roundsPools {
		all.Go(func() { _ = runRounds(ctx, s.ports(name), pool, upload) }) // it ends with the test
	}
	return s.roundsResults(t, upload)
}

// killedRounds runs three rounds in processes of their own, and returns their files. Some
// first lives of each process are killed at calls that the seed draws.
func killedRounds(t *testing.T, seed uint64, shared roundsProcess) [2]string {
	t.Helper()
	s, err := shared.stores(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shared.Upload = s.putRounds(t)
	ctx := t.Context() // ends before the cleanup
	var all sync.WaitGroup
	var killed atomic.Int64
	t.Cleanup(func() { // after the results, also if there are none
		all.Wait()
		if n := killed.Load(); n < 5 {
			t.Errorf("only %d processes were killed", n)
		} else {
			t.Logf("%d processes were killed", n)
		}
	})
	for name, pool := range roundsPools {
		deaths, most := 2, 30
		if pool == "" {
			deaths, most = 8, 40
		}
		rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
		all.Go(func() {
			for n := uint64(0); ctx.Err() == nil; n++ {
				p := shared
				p.Name, p.Pool, p.Seed, p.DieAt = fmt.Sprintf("%s-%d", name, n), pool, seed<<8+n, 0
				if n < uint64(deaths) {
					p.DieAt = 1 + rng.IntN(most)
				}
				switch output, err := p.live(ctx); {
				case ctx.Err() != nil:
				case err != nil && err.Error() == "signal: killed":
					killed.Add(1)
				default: // such as a worker that a busy machine fenced
					t.Logf("%s ended: %v: %s", p.Name, err, output)
				}
			}
		})
	}
	return s.roundsResults(t, shared.Upload)
}

// live runs the process until it ends, or ctx ends.
func (p roundsProcess) live(ctx context.Context) (output string, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roundsVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = &out, &out
	err = subprocess.Run(cmd)
	return out.String(), err
}
