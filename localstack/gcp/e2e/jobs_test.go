package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/api/option"

	"rollout/localstack/gcp/fakerun"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/core/health"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/record"
)

// taskProcess is the worker of a task.
type taskProcess struct {
	cmd   *exec.Cmd
	ended chan struct{}
	ok    bool // once it has ended
}

// Wait waits for the end; see fakerun.Process.
func (p *taskProcess) Wait() bool {
	<-p.ended
	return p.ok
}

// Terminate sends SIGTERM; see fakerun.Process.
func (p *taskProcess) Terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) } // it may have ended

// Kill sends SIGKILL; see fakerun.Process.
func (p *taskProcess) Kill() { _ = p.cmd.Process.Kill() } // it may have ended

// launchTasks returns the launcher of a job: each task is cloud-run.sh, as Terraform starts
// it, for a model that the worker itself serves. more are further variables.
func (in *installation) launchTasks(t *testing.T, more ...string) func(fakerun.Task) (fakerun.Process, error) {
	t.Helper()
	programs := t.TempDir()
	if err := os.Symlink(gpuworker, programs+"/gpuworker"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	return func(task fakerun.Task) (fakerun.Process, error) {
		mu.Lock()
		n++
		temp := fmt.Sprintf("%s/task-%d", programs, n)
		mu.Unlock()
		if err := os.Mkdir(temp, 0o700); err != nil {
			return nil, err
		}
		p := &taskProcess{cmd: exec.Command("bash", "../../../infra/gcp/cloud-run.sh"), ended: make(chan struct{})}
		p.cmd.Env = append(in.environment(), task.Environment()...)
		// The model rollout/tiny needs no other server; the engine of the config answers.
		p.cmd.Env = append(p.cmd.Env, "ROLLOUT_FOLDER="+programs, "ROLLOUT_WORKER=gpuworker", "ROLLOUT_POOL=default",
			"ROLLOUT_MODEL=rollout/tiny", "TMPDIR="+temp)
		p.cmd.Env = append(p.cmd.Env, more...)
		p.cmd.Stdout, p.cmd.Stderr = in.log, in.log
		if err := subprocess.Start(p.cmd); err != nil {
			return nil, err
		}
		go func() {
			p.ok = p.cmd.Wait() == nil
			close(p.ended)
		}()
		return p, nil
	}
}

// jobs starts Cloud Run with the pool's job, and returns the pool's fleet.
func (in *installation) jobs(t *testing.T, launch func(fakerun.Task) (fakerun.Process, error)) (
	*fakerun.Server, *gcp.Jobs) {
	t.Helper()
	run, end, err := fakerun.Start(fakerun.Options{Launch: launch}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	const job = "projects/acme-ml/locations/us-central1/jobs/rollout-default"
	run.MakeJob(job)
	fleet, err := gcp.NewJobs(t.Context(), gcp.Config{Project: "acme-ml"}, gcp.JobOptions{Docs: in.Ports.Docs,
		Clock: in.Ports.Clock, Log: in.Ports.Log, Max: 8, Name: func(string) string { return job },
	}, option.WithHTTPClient(run.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return run, fleet
}

// Of three tasks one gets SIGTERM and drains, and one reaches the end of its time and hands
// its work over; both end with 0. Raises start what is missing, and the completions are a
// laptop's.
func TestTasksOfAJobAnswerARun(t *testing.T) {
	t.Parallel()
	in := deployConfig(t, faults{}, quickHealth+scenarios.Settings{}.Config()+"machines = \"cloud-run\"\n")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { in.tick(ctx) })
	run, fleet := in.jobs(t, in.launchTasks(t, "ROLLOUT_WORK_FOR=20"))
	raise := func() {
		t.Helper()
		if err := fleet.ScaleUp(ctx, "default", 3); err != nil {
			t.Error(err)
		}
	}
	raise()
	file, f := scenarios.MixedPrompts(6000), in.fixture(t)
	id := f.Put(key, file)
	in.waitForResults(t, 10)
	in.wantTaskHeartbeats(t)
	if !run.TerminateOne() {
		t.Fatal("no task runs")
	}
	all.Go(func() {
		for ctx.Err() == nil {
			if err := fleet.ScaleUp(ctx, "default", 3); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
	scenarios.Eventually(t, "a task that ended in good order", func() bool { return run.Tasks()["succeeded"] > 0 })
	scenarios.WantSame(t, f.AwaitEnd(id), f.Local(key, file))
	scenarios.Eventually(t, "tasks that reached the end of their time",
		func() bool { return run.Tasks()["succeeded"] > 1 })
	if n := run.Tasks()["failed"]; n > 0 {
		t.Errorf("%d tasks failed", n)
	}
}

// wantTaskHeartbeats checks that workers name their task as their machine.
func (in *installation) wantTaskHeartbeats(t *testing.T) {
	t.Helper()
	err := host.Each(t.Context(), in.Ports.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if !strings.HasPrefix(b.Instance, "rollout-default-00001/") {
			t.Errorf("the worker %s is on the machine %q", b.Worker, b.Instance)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
