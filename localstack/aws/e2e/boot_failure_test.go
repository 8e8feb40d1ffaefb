package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// setMachines makes the deployment's machines run another command.
func (a *installation) setMachines(most int, program func() []string) {
	a.Groups.Make(a.group, most, func(in *fakeaws.Instance) *exec.Cmd {
		command := program()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(in.Environment(), "PATH="+os.Getenv("PATH"), "HOME=/nonexistent")
		return cmd
	})
}

// failureBeats counts the heartbeats of machines without a worker: those that failed
// to boot, and others.
func (a *installation) failureBeats() (failed, others int) {
	a.t.Helper()
	if err := host.Each(a.t.Context(), a.Stores().Ports.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		switch {
		case b.FailureReason != "":
			failed++
		case b.Worker == b.Instance:
			others++
		}
		return nil
	}); err != nil {
		a.t.Fatal(err)
	}
	return failed, others
}

// is reports whether the run exists and is in the phase.
func (a *installation) is(id identity.RunID, phase run.Phase) bool {
	a.t.Helper()
	_, found, err := host.Load(a.t.Context(), a.Stores().Ports.Docs, record.ManifestKey(id), &record.Manifest{})
	if err != nil {
		a.t.Fatal(err)
	}
	return found && a.Phase(id) == phase
}

// A machine whose program is missing can't report its failure. The events of its
// group do: after three failures the run pauses with the reason, and goes on once
// the machines work.
func TestThreeFailedBootsPauseTheRun(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1, FromNone: true, Idle: 2 * time.Second}, nil)
	var repaired atomic.Bool
	var launched atomic.Int64
	missing := filepath.Join(t.TempDir(), "gpuworker")
	a.setMachines(1, func() []string {
		if launched.Add(1); repaired.Load() {
			return []string{programs.Path("gpuworker"), "--cloud", config.ProviderAWS, "--pool", scenarios.Pool}
		}
		return []string{missing}
	})
	const key = "prompts/x.jsonl"
	content := scenarios.SimplePrompts(40)
	id := a.Put(key, content)
	scenarios.Eventually(t, "the run is paused", func() bool { return a.is(id, run.Paused) })
	if n := launched.Load(); n < 3 || n > 6 {
		t.Errorf("%d machines were launched, want 3 to 6", n)
	}
	output := a.Do("explain", string(id))
	for _, part := range []string{"machines of the pool default failed one after the other", "i-0000000",
		"it ended before any worker sent a heartbeat", "get-console-output --latest --instance-id i-0000000",
		"rollout resume"} {
		if !strings.Contains(output, part) {
			t.Errorf("explain does not write %q:\n%s", part, output)
		}
	}
	repaired.Store(true)
	if !a.Control("resume", id) {
		t.Fatal("the run is not resumed")
	}
	scenarios.WantSame(t, a.AwaitEnd(id), a.Local(key, content))
}

// Interrupted machines and failed launches are reported and pause nothing. Machines
// that end without an announcement before their worker starts pause the run.
func TestInterruptionsDuringTheBootDoNotPauseTheRun(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1, FromNone: true, Idle: 2 * time.Second}, nil)
	a.setMachines(1, func() []string { return []string{"sleep", "1000"} })
	id := a.Put("prompts/x.jsonl", scenarios.SimplePrompts(40))
	launchedMachine := func() (in *fakeaws.Instance) {
		scenarios.Eventually(t, "a machine is launched", func() bool {
			if all := a.Groups.Instances(a.group); len(all) == 1 {
				in = all[0]
			}
			return in != nil
		})
		return in
	}
	for n := range 4 {
		in := launchedMachine()
		a.Groups.EmitInterruptionWarning(in)
		scenarios.Eventually(t, "the interruption is recorded",
			func() bool { _, interrupted := a.failureBeats(); return interrupted == n+1 })
		a.Groups.PowerOff(in)
	}
	a.Groups.FailLaunch(a.group, "Max spot instance count exceeded")
	scenarios.Eventually(t, "explain reports the failed launch", func() bool {
		return strings.Contains(a.Do("explain", string(id)), "could not come up")
	})
	if failed, interrupted := a.failureBeats(); failed != 0 || interrupted != 4 || !a.is(id, run.Running) {
		t.Errorf("%d machines failed, %d were interrupted, and the run is %s; want 0, 4 and running", failed,
			interrupted, a.Phase(id))
	}
	for range 3 { // without an announcement
		a.Groups.PowerOff(launchedMachine())
	}
	scenarios.Eventually(t, "the run is paused", func() bool { return a.is(id, run.Paused) })
}
