package rounds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/functions/api"
	"rollout/functions/submit"
	"rollout/localstack/rounds"
	"rollout/localstack/subprocess"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// prompts are the first round: 16 answers, a broken line and a duplicate.
func prompts() string {
	var b strings.Builder
	for n := range 16 {
		fmt.Fprintf(&b, `{"id":"p%d","prompt":"number %d"}`+"\n", n, n)
	}
	return b.String() + "no json\n" + `{"id":"p3","prompt":"again"}` + "\n"
}

// Functions and the workers of two pools are killed with SIGKILL before and after calls
// that change something, in all rounds of a run. The files are those of an undisturbed
// run.
func TestKilledProcessesDoNotChangeTheRoundsOfARun(t *testing.T) {
	t.Parallel()
	want := newSystem(t, 0).outcome()
	if !strings.Contains(want.completions, "in round 3 first of its round was") {
		t.Fatal("an undisturbed run has no third round that depends on the judged one")
	}
	// Each round has 16 prompts. The judged ones stand in no file.
	if s := want.summary; s.Completed != 16+16 || s.Failed != 2 || len(s.Roles) != 2 || s.Roles[1].Pool != judges ||
		s.Roles[1].Completed != 16 {
		t.Fatalf("an undisturbed run has %+v", want.summary)
	}
	const seeds = 20
	slots := make(chan struct{}, 4) // each run is three processes, which mostly wait
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			s := newSystem(t, seed+1)
			got := s.outcome()
			if got.completions != want.completions || got.errors != want.errors {
				t.Errorf("the files differ:\n%s%s\nwant\n%s%s", got.completions, got.errors, want.completions, want.errors)
			}
			if n := s.killed.Load(); n < 3 {
				t.Errorf("only %d processes were killed", n)
			}
		})
	}
}

// system is an installation with one run, and its processes.
type system struct {
	t      *testing.T
	local  *installation.Local
	id     identity.RunID
	logs   string // the folder of the processes' logs
	killed atomic.Int64
}

// newSystem starts a run of several rounds. Its processes die at edges that the seed
// draws, and live on after some deaths; seed 0 lets them live.
func newSystem(t *testing.T, seed uint64) *system {
	t.Helper()
	folder := t.TempDir()
	l, closeAll, err := installation.OpenLocal(t.Context(), folder, installation.LocalOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	s := &system{t: t, local: l, logs: t.TempDir()}
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		end()
		all.Wait()
		if t.Failed() {
			s.showLogs()
		}
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
	s.submit()
	lives := func(p process, mortal, most int) {
		rng := rand.New(rand.NewPCG(seed, uint64(len(p.name))<<8+uint64(p.name[len(p.name)-1])))
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				life := p
				life.name = fmt.Sprintf("%s-%d", p.name, n)
				if seed > 0 && n < mortal {
					life.dieAt = 1 + rng.IntN(most)
				}
				s.live(ctx, life, folder)
			}
		})
	}
	lives(process{role: "functions", name: "functions"}, 12, 40)
	lives(process{role: "worker", name: "worker-a", pool: "default"}, 2, 30)
	lives(process{role: "worker", name: "worker-b", pool: judges}, 2, 30)
	return s
}

// process is a process of the system, and the number of the call that kills it.
type process struct {
	role, name, pool string
	dieAt            int
}

// live runs a process until it dies, or ctx ends.
func (s *system) live(ctx context.Context, p process, folder string) {
	log, err := os.Create(filepath.Join(s.logs, p.name))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+p.role, folderVariable+"="+folder, nameVariable+"="+p.name,
		poolVariable+"="+p.pool, fmt.Sprintf("%s=%d", dieVariable, p.dieAt))
	cmd.Stdout, cmd.Stderr = log, log
	err = subprocess.Run(cmd)
	switch {
	case ctx.Err() != nil:
	case err != nil && err.Error() == "signal: killed":
		s.killed.Add(1)
	default: // such as a worker that a busy machine fenced
		s.t.Logf("%s ended: %v", p.name, err)
		select {
		case <-time.After(100 * time.Millisecond): // it may end again at once
		case <-ctx.Done():
		}
	}
}

// maxLog bounds what is shown of a process's log, in bytes.
const maxLog = 4 << 10

func (s *system) showLogs() {
	files, err := os.ReadDir(s.logs)
	if err != nil {
		s.t.Error(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(s.logs, f.Name()))
		s.t.Logf("%s %v\n%s", f.Name(), err, b[max(0, len(b)-maxLog):])
	}
}

// submit creates the run.
func (s *system) submit() {
	s.t.Helper()
	const key = "prompts/x.jsonl"
	info, err := s.local.Bucket.Put(s.t.Context(), key, strings.NewReader(prompts()), blob.PutOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.id = identity.UploadRun("local", key, info.Version)
	cfg := config.DefaultRun()
	cfg.Kind, cfg.Shard.Items, cfg.Model.URI = rounds.Name, 3, "mock"
	m := record.Manifest{Run: s.id, Name: "x",
		Inputs: []record.Input{{Key: key, Version: info.Version, Size: info.Size}}}
	sub := submit.New(s.local.Ports, submit.Options{Deployment: deployment(), Kinds: kinds()})
	if err := sub.Create(s.t.Context(), m, cfg); err != nil {
		s.t.Fatal(err)
	}
}

// outcome is what a run leaves, without its times.
type outcome struct {
	completions, errors string
	summary             record.Summary
}

// patience is how long a run may take on a busy machine.
const patience = 4 * time.Minute

var generatedAt = regexp.MustCompile(`"generated_at":"[^"]*"`)

// outcome waits until the run has ended.
func (s *system) outcome() (o outcome) {
	s.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		b, err := s.read(record.SummaryFile)
		if err == nil {
			if err := json.Unmarshal(b, &o.summary); err != nil {
				s.t.Fatal(err)
			}
			break
		}
		if !fault.Is(err, fault.NotFound) {
			s.t.Fatal(err)
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			s.t.Fatal("the run has not ended")
		}
	}
	for name, to := range map[string]*string{record.CompletionsFile: &o.completions, record.ErrorsFile: &o.errors} {
		b, err := s.read(name)
		if err != nil {
			s.t.Fatal(err)
		}
		*to = generatedAt.ReplaceAllString(string(b), `"generated_at":""`)
	}
	return o
}

func (s *system) read(name string) ([]byte, error) {
	r, _, err := s.local.Bucket.Get(s.t.Context(), record.OutputKey(s.id, name), blob.GetOptions{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Items of later rounds have places that users can name, as those of files have.
func TestItemsOfLaterRoundsAreExplained(t *testing.T) {
	t.Parallel()
	s := newSystem(t, 0)
	o := s.outcome()
	a := api.New(s.local.Ports, deployment(), cloud.OneMachine())
	const item = 16 + 2 + 16 + 2 // the third prompt of round 3
	var last string
	for _, name := range []string{fmt.Sprintf("#%d", item), "range 2:3", "round 3, 2"} {
		e, err := a.Explain(t.Context(), s.id, name)
		if err != nil || len(e.Items) != 1 || e.Items[0].Item != item || e.Items[0].File != "range 2" ||
			e.Items[0].Line != 3 || e.Items[0].ID != "round 3, 2" {
			t.Fatalf("%s: %+v, %v", name, e.Items, err)
		}
		last = e.Items[0].ItemID
	}
	if e, err := a.Explain(t.Context(), s.id, last); err != nil || len(e.Items) != 1 || e.Items[0].Item != item {
		t.Errorf("by its item id: %+v, %v", e.Items, err)
	}
	st, err := a.Show(t.Context(), s.id)
	if err != nil || st.Items.Total != o.summary.Items || !st.Items.Planned || st.Kind != rounds.Name {
		t.Errorf("%+v, %v", st, err)
	}
}
