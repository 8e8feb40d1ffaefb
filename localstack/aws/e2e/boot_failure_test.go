package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/record"
)

// machines are the account's, which run the program of that path.
func (a *awsInstallation) machines(most int, program func() []string) {
	a.Groups.Make(a.group, most, func(in *fakeaws.Instance) *exec.Cmd {
		command := program()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(in.Environment(), "PATH="+os.Getenv("PATH"), "HOME=/nonexistent")
		return cmd
	})
}

// failureBeats are the beats that tell of machines themselves, by whether those gave
// up.
func (a *awsInstallation) failureBeats() (gaveUp, others int) {
	a.t.Helper()
	if err := host.Each(a.t.Context(), a.Stack.Ports.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		switch {
		case b.FailureReason != "":
			gaveUp++
		case b.Worker == b.Instance:
			others++
		}
		return nil
	}); err != nil {
		a.t.Fatal(err)
	}
	return gaveUp, others
}

// is reports whether the run is there, and in the phase.
func (a *awsInstallation) is(id identity.RunID, phase run.Phase) bool {
	a.t.Helper()
	_, found, err := host.Load(a.t.Context(), a.Stack.Ports.Docs, record.ManifestKey(id), &record.Manifest{})
	if err != nil {
		a.t.Fatal(err)
	}
	return found && a.phase(id) == phase
}

// A machine whose program is missing can't say that it gives up. Its group does,
// and after three the run pauses, says why, and goes on once it is mended.
func TestMachinesThatCanSayNothingPauseTheRun(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 1\nidle = '2s'", nil)
	var mended atomic.Bool
	var came atomic.Int64
	missing := filepath.Join(t.TempDir(), "gpuworker")
	a.machines(1, func() []string {
		if came.Add(1); mended.Load() {
			return []string{programs.Path("gpuworker"), "--cloud", config.ProviderAWS, "--pool", pool}
		}
		return []string{missing}
	})
	const key = "prompts/x.jsonl"
	content := simple(40)
	id := a.put(key, content)
	eventually(t, "the run is paused", func() bool { return a.is(id, run.Paused) })
	if n := came.Load(); n < 3 || n > 6 {
		t.Errorf("%d machines came up, want three, and who came meanwhile", n)
	}
	said := do(t, a.environment(), "explain", string(id), "--cloud", "aws", "--dir", a.dir)
	for _, part := range []string{"machines of the pool default failed one after the other", "i-0000000", "it ended before any worker sent a heartbeat", "get-console-output --latest --instance-id i-0000000", "rollout resume"} {
		if !strings.Contains(said, part) {
			t.Errorf("it does not say %q:\n%s", part, said)
		}
	}
	mended.Store(true)
	if said, err := a.steer("resume", id); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	wantSame(t, a.ends(id), laptop(t, s, key, content))
}

// A spot market that takes each machine back before its worker begins says
// nothing against them; and that none comes is told, and pauses nothing.
func TestMachinesThatAreTakenBackWhileTheyStartPauseNothing(t *testing.T) {
	t.Parallel()
	s := serve(t)
	a := open(t, s, "max_machines = 1\nidle = '2s'", nil)
	a.machines(1, func() []string { return []string{"sleep", "1000"} })
	id := a.put("prompts/x.jsonl", simple(40))
	comes := func() (in *fakeaws.Instance) {
		eventually(t, "a machine comes", func() bool {
			if all := a.Groups.Instances(a.group); len(all) == 1 {
				in = all[0]
			}
			return in != nil
		})
		return in
	}
	for n := range 4 {
		in := comes()
		a.Groups.EmitInterruptionWarning(in)
		eventually(t, "it is noted that it is taken back", func() bool { _, taken := a.failureBeats(); return taken == n+1 })
		a.Groups.PowerOff(in)
	}
	a.Groups.FailLaunch(a.group, "Max spot instance count exceeded")
	eventually(t, "it is told that no machine can come", func() bool {
		return strings.Contains(do(t, a.environment(), "explain", string(id), "--cloud", "aws", "--dir", a.dir), "could not come up")
	})
	if gaveUp, taken := a.failureBeats(); gaveUp != 0 || taken != 4 || !a.is(id, run.Running) {
		t.Errorf("%d gave up, %d were taken back, and the run is %s", gaveUp, taken, a.phase(id))
	}
	for range 3 { // which nobody announced
		a.Groups.PowerOff(comes())
	}
	eventually(t, "the run is paused", func() bool { return a.is(id, run.Paused) })
}
