package emulators

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/provision"
	"rollout/shared/aws"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/record"
)

// machineFixture is a fleet of machines with two GPUs each. Its workers are idle.
type machineFixture struct {
	*fakeaws.Cloud
	t     *testing.T
	docs  document.Store
	group string
}

// startMachine starts a fleet of one machine that runs the program. Its workers end
// themselves after the idle time.
func startMachine(t *testing.T, program string, idle time.Duration) machineFixture {
	t.Helper()
	e := StartKumo(t)
	text := e.Deployment("t"+fresh(), "") + fmt.Sprintf("[cloud.fleet]\nidle = %q\n[engine]\nurl = \"mock\"\n"+
		"[health]\nheartbeat_interval = \"300ms\"\nself_fence_timeout = \"4m\"\nfailure_timeout = \"5m\"\n"+
		"skew_budget = \"250ms\"\n", idle)
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg := e.Config(t.Context(), t)
	if err := provision.Create(t.Context(), cfg, d); err != nil {
		t.Fatal(err)
	}
	c, err := fakeaws.Open(fakeaws.Options{Backend: e.URL, Config: text, Programs: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r := machineFixture{c, t, aws.NewDocuments(cfg, d.Cloud.DynamoDB.Table,
		aws.DocumentOptions{Listed: aws.ListedPrefixes()}), d.Cloud.FleetName("default")}
	c.Groups.Make(r.group, 2, func(in *fakeaws.Instance) *exec.Cmd {
		cmd := exec.Command(program, "--cloud", "aws", "--gpus", "0,1")
		cmd.Dir = t.TempDir()
		cmd.Env = append(slices.DeleteFunc(c.Environment(in.ID),
			func(v string) bool { return v == "AWS_EC2_METADATA_DISABLED=true" }),
			"HOME="+cmd.Dir, "AWS_EC2_METADATA_SERVICE_ENDPOINT="+in.Metadata)
		return cmd
	})
	if err := c.Groups.SetDesired(r.group, 1); err != nil {
		t.Fatal(err)
	}
	return r
}

// waits waits until ok returns true.
func (r machineFixture) waits(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-deadline.C:
			for _, in := range r.Groups.Instances(r.group) {
				r.t.Logf("%s:\n%s", in.ID, in.Output())
			}
			r.t.Fatalf("this did not happen within %s: %s", patience, what)
		}
	}
}

// workers are the heartbeats of the workers in the state on the instance.
func (r machineFixture) workers(instance string, state health.State) (found []health.Heartbeat) {
	r.t.Helper()
	for d, err := range document.All(r.t.Context(), r.docs, "beat/") {
		var b health.Heartbeat
		if err == nil {
			err = json.Unmarshal(d.Value, &b)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		if b.Instance == instance && b.State == state {
			found = append(found, b)
		}
	}
	return found
}

// machine is the only machine.
func (r machineFixture) machine() *fakeaws.Instance {
	r.t.Helper()
	all := r.Groups.Instances(r.group)
	if len(all) != 1 {
		r.t.Fatalf("%d machines", len(all))
	}
	return all[0]
}

// ready waits until both workers of the only machine are ready, and returns it.
func (r machineFixture) ready() *fakeaws.Instance {
	r.t.Helper()
	in := r.machine()
	r.waits("both workers are ready", func() bool { return len(r.workers(in.ID, health.Ready)) == 2 })
	return in
}

func TestWorkersStartAndEndWithTheirMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the worker")
	}
	t.Parallel()
	program := filepath.Join(t.TempDir(), "gpuworker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./gpuworker")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("idle workers end and the fleet shrinks", func(t *testing.T) {
		t.Parallel()
		// The first worker may have ended before the second one is ready.
		r := startMachine(t, program, 2*time.Second)
		in := r.machine()
		r.waits("the machine ends", func() bool {
			desired, _,
				alive := r.Groups.Size(r.group)
			return desired == 0 && alive == 0
		})
		if gone := len(r.workers(in.ID, health.Gone)); gone != 2 {
			t.Errorf("%d workers have drained, want 2", gone)
		}
	})
	t.Run("workers drain at notices and another machine starts", func(t *testing.T) {
		t.Parallel()
		r := startMachine(t, program, time.Hour)
		in := r.ready()
		const lead = 10 * time.Minute
		for range 3 {
			r.Groups.Interrupt(in, lead)
			r.Groups.EmitRebalance(in)
		}
		began := time.Now()
		r.waits("another machine starts", func() bool {
			now := r.Groups.Instances(r.group)
			return len(now) == 1 && now[0].ID != in.ID
		})
		if took, gone := time.Since(began), len(r.workers(in.ID, health.Gone)); took > lead || gone != 2 {
			t.Errorf("another machine started after %s and %d workers have drained, want less than the lead and 2", took, gone)
		}
		r.ready()
	})
	t.Run("a marked worker drains and the other goes on", func(t *testing.T) {
		t.Parallel()
		r := startMachine(t, program, time.Hour)
		in := r.ready()
		marked := r.workers(in.ID, health.Ready)[0].Worker
		if _, err := host.Save(t.Context(), r.docs, record.WorkerKey(marked),
			record.WorkerMark{Schema: record.Schema, Sequence: 1, DrainReason: "its machine goes"}, ""); err != nil {
			t.Fatal(err)
		}
		r.waits("the marked worker drains", func() bool {
			gone := r.workers(in.ID, health.Gone)
			return len(gone) == 1 &&
				gone[0].Worker == marked
		})
		if left := r.workers(in.ID, health.Ready); len(left) != 1 || len(r.Groups.Instances(r.group)) != 1 {
			t.Errorf("%d workers and %d machines are left, want 1 and 1", len(left), len(r.Groups.Instances(r.group)))
		}
	})
}
