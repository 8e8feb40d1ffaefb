package e2e

import (
	"fmt"
	"strings"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Each message is a batch of its own, so that the run takes hundreds of steps. No
// chain of invocations is cut.
func TestLongRunIsNotCutAsALoop(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 2}, func(o *fakeaws.Options) { o.BatchSize = 1 })
	const key = "prompts/long.jsonl"
	content := scenarios.SimplePrompts(8 * 320)
	id := a.Put(key, content)
	scenarios.WantSame(t, a.AwaitEnd(id), a.Local(key, content))
	a.Check()
	if calls := a.Calls()["coordinate"]; calls.Count < 320 {
		t.Errorf("coordinate had %d steps, want at least 320", calls.Count)
	}
}

// Many runs share coordinate's batches, each at another stage of its life. Their chains
// of invocations do not lengthen each other.
func TestChainsOfManyRunsAreAsShortAsThoseOfOne(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1}, nil)
	var ids []identity.RunID
	for n := range 24 {
		ids = append(ids, a.Put(fmt.Sprintf("prompts/%d.jsonl", n), scenarios.SimplePrompts(2)))
	}
	for _, id := range ids {
		if got := a.AwaitEnd(id).Summary; got.Completed != 2 {
			t.Errorf("run %s has %d answers, want 2", id, got.Completed)
		}
	}
	a.Check()
}

// A new account has the quota 0: each launch fails, after a day Auto Scaling suspends the
// process Launch, and the quota is granted at last. The run tells why it waits, and goes on
// without anyone's help.
func TestQuotaIsGrantedAfterADay(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1, FromNone: true}, nil)
	const quota = "VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 0 allows"
	a.Groups.Refuse(a.group, quota)
	const key = "prompts/x.jsonl"
	content := scenarios.SimplePrompts(40)
	id := a.Put(key, content)
	scenarios.Eventually(t, "explain tells the quota", func() bool {
		out, _ := a.Command("explain", string(id)) // the run may not be made yet
		return strings.Contains(out, "VcpuLimitExceeded")
	})
	a.Groups.SuspendLaunch(a.group, "administrative suspension")
	scenarios.WantSame(t, a.AwaitEnd(id), a.Local(key, content))
	if why := a.Groups.Suspended(a.group); why != "" {
		t.Errorf("the process Launch is suspended: %s", why)
	}
	var f record.Fleet
	if _, _, err := host.Load(t.Context(), a.Stores().Ports.Docs, record.FleetKey(scenarios.Pool), &f); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"had suspended the process Launch of the group " + a.group, "administrative suspension",
		"it is resumed; before that: VcpuLimitExceeded"} {
		if !strings.Contains(f.Absent, part) {
			t.Errorf("people are not told %q: %s", part, f.Absent)
		}
	}
}

// A machine that did not come for a run is not rented hours later, when the run is over.
func TestMachinesThatDidNotComeAreGivenUp(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{})
	a := open(t, s, scenarios.Settings{Machines: 1, FromNone: true}, nil)
	a.Groups.Refuse(a.group, "InsufficientInstanceCapacity - We currently do not have sufficient g6.xlarge capacity")
	id := a.Put("prompts/x.jsonl", scenarios.SimplePrompts(40))
	scenarios.Eventually(t, "a machine is asked for", func() bool {
		desired, _, _ := a.Groups.Size(a.group)
		return desired == 1
	})
	if !a.Control("stop", id) {
		t.Fatal("the run is not stopped")
	}
	a.AwaitEnd(id)
	scenarios.Eventually(t, "the machine is given up", func() bool {
		desired, _, _ := a.Groups.Size(a.group)
		return desired == 0
	})
	a.Groups.Refuse(a.group, "")
	if all := a.Groups.Instances(a.group); len(all) > 0 {
		t.Errorf("%d machines start for a run that is over", len(all))
	}
}
