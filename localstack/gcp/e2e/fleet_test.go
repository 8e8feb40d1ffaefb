package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/localstack/gcp/fakecompute"
	"rollout/localstack/gcp/fakemetadata"
	"rollout/localstack/scenarios"
	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/gcp"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// fromNone are settings by which machines come for little work, and leave soon.
var fromNone = scenarios.Settings{Machines: 3, Idle: 2 * time.Second, FromNone: true}

// group is the group of the machines that answer prompts, in all installations.
const group = "rollout-default-g2"

// machines are those that Compute Engine rents to an installation. Each is a worker with
// metadata of its own.
type machines struct {
	in *installation
	t  *testing.T

	mu      sync.Mutex
	broken  bool // the next machines can't work
	running map[string]*machine
}

// boot starts the worker of a machine.
func (s *machines) boot(i fakecompute.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &machine{id: i.ID, ended: make(chan error, 1)}
	pool, ok := gcp.PoolOfGroup(s.in.Deployment, i.Group)
	if !ok {
		s.t.Errorf("boot %+v: no pool has the group", i)
		return
	}
	account := gcp.LeaveAccount(s.in.Deployment.Cloud)
	if s.in.Deployment.Pool(pool).Trains() {
		account = gcp.TrainerAccount(s.in.Deployment.Cloud)
	}
	metadata, host, end, err := fakemetadata.Start(fakemetadata.Instance{
		ID: i.ID, Name: i.Name, Zone: i.Zone, Project: "acme-ml", Number: "27",
		Account: account, MachineType: "g2-standard-8", Spot: true,
		Attributes: map[string]string{
			"created-by":    "projects/27/regions/us-central1/instanceGroupManagers/" + i.Group,
			"rollout-leave": s.in.addresses[gcp.LeaveFunction],
		},
	}, s.in.signer)
	var arguments []string
	if s.broken {
		arguments = []string{"--give-up", "the engine died"}
	}
	if err == nil {
		m.metadata = metadata
		err = s.in.work(m, pool, host, arguments...)
	}
	if err != nil {
		s.t.Errorf("boot %+v: %v", i, err)
		return
	}
	s.t.Cleanup(end)
	s.t.Cleanup(m.kill)
	s.running[i.ID] = m
	if s.broken {
		go s.leave(m, host)
	}
}

// leave asks the function leave to remove a machine that has given up, as the machine's
// boot script does.
func (s *machines) leave(m *machine, host string) {
	<-m.ended
	audience := url.QueryEscape(gcp.LeaveAudience(s.in.Deployment.Cloud))
	ask, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet,
		"http://"+host+"/computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience="+audience, nil)
	if err != nil {
		return
	}
	ask.Header.Set("Metadata-Flavor", "Google")
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		fmt.Fprintln(s.in.log, "identity token:", err)
		return
	}
	defer answer.Body.Close() // opened for reading
	token, err := io.ReadAll(answer.Body)
	if err != nil {
		fmt.Fprintln(s.in.log, "identity token:", err)
		return
	}
	body := strings.NewReader(`{"token":"` + string(token) + `"}`)
	left, err := http.Post(s.in.addresses[gcp.LeaveFunction], "application/json", body)
	if err != nil {
		fmt.Fprintln(s.in.log, "leave:", err)
		return
	}
	fmt.Fprintln(s.in.log, "leave:", left.Status)
	_ = left.Body.Close() // it is not used
}

// setBroken makes the next machines unable to work, or able again.
func (s *machines) setBroken(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// end ends a machine.
func (s *machines) end(i fakecompute.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.running[i.ID]; m != nil {
		m.kill()
		delete(s.running, i.ID)
	}
}

// delete shuts a machine down: it has the time to end in good order.
func (s *machines) delete(i fakecompute.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.running[i.ID]; m != nil {
		go m.shutdown()
		delete(s.running, i.ID)
	}
}

// of returns the machine of an id.
func (s *machines) of(id string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[id]
}

// rent lets the installation rent machines until ctx ends.
func (in *installation) rent(ctx context.Context, all *sync.WaitGroup) {
	for _, p := range in.Deployment.Pools {
		for _, name := range gcp.GroupNames(in.Deployment, p.Name) {
			in.compute.MakeGroup(name, "us-central1-a", "us-central1-b")
		}
	}
	all.Go(func() { in.tick(ctx) })
	all.Go(func() {
		step := time.NewTicker(100 * time.Millisecond)
		defer step.Stop()
		for ctx.Err() == nil {
			in.compute.Step()
			select {
			case <-step.C:
			case <-ctx.Done():
			}
		}
	})
}

// wantEmptyFleet waits until no machine is left, and none is asked for.
func (in *installation) wantEmptyFleet(t *testing.T) {
	t.Helper()
	scenarios.Eventually(t, "all machines have left", func() bool {
		return len(in.compute.Machines()) == 0 && in.compute.Size(group) == 0
	})
	if ended := in.compute.Lowered(); len(ended) > 0 {
		t.Errorf("lower sizes ended the machines %v", ended)
	}
}

// Without quota no machine comes, and the reason is told. With it they come by themselves,
// answer as a laptop does, and leave.
func TestMachinesComeOnceThereIsQuota(t *testing.T) {
	t.Parallel()
	in := open(t, fromNone)
	in.compute.SetQuota(0)
	file := scenarios.MixedPrompts(2000)
	id := in.Put(key, file)
	scenarios.Eventually(t, "the lack of quota is told", func() bool {
		var f record.Fleet
		d, err := in.Ports.Docs.Get(t.Context(), record.FleetKey("default"))
		return err == nil && record.Decode(d.Value, &f, "fleet") == nil && strings.Contains(f.Absent, "quota")
	})
	in.compute.SetQuota(-1)
	scenarios.Eventually(t, "machines have come", func() bool { return len(in.compute.Machines()) == 3 })
	scenarios.WantSame(t, in.AwaitEnd(id), in.Local(key, file))
	in.wantEmptyFleet(t)
}

// Machines whose engine dies say so and leave. After three of them the run pauses, and no
// other comes.
func TestMachinesWhoseEngineDiesPauseTheRun(t *testing.T) {
	t.Parallel()
	in := open(t, fromNone)
	in.machines.setBroken(true)
	id := in.Put(key, scenarios.MixedPrompts(200))
	scenarios.Eventually(t, "the run pauses", func() bool {
		var s run.State
		d, err := in.Ports.Docs.Get(t.Context(), record.CoordinatorKey(id))
		return err == nil && record.Decode(d.Value, &s, "state") == nil && s.Phase == run.Paused
	})
	why := hosttest.Load[record.Control](t, in.Ports, record.ControlKey(id)).Reason
	if !strings.Contains(why, "machines of the pool default failed one after the other") {
		t.Errorf("the run paused because %q", why)
	}
	in.wantEmptyFleet(t)
}

// Machines that are preempted while they boot are no failures: Google took them back, and
// the group starts them again.
func TestMachinesPreemptedWhileBootingAreNoFailures(t *testing.T) {
	t.Parallel()
	in := open(t, fromNone)
	for n := range 3 {
		machine := fmt.Sprint(4520031799277581000 + n)
		entry := func(method, message string) string {
			return fmt.Sprintf(`{"protoPayload":{"methodName":%q,"status":{"message":%q},`+
				`"resourceName":"projects/acme-ml/zones/us-central1-a/instances/%s-x1c%d"},`+
				`"resource":{"type":"gce_instance","labels":{"instance_id":%q}},"timestamp":%q}`,
				method, message, group, n, machine, time.Now().UTC().Format(time.RFC3339Nano))
		}
		in.publish(t, gcp.MachinesTopic, entry("compute.instances.preempted", "Instance was preempted."))
		key := record.HeartbeatKey(machine)
		scenarios.Eventually(t, "the end of the machine is recorded", func() bool {
			_, err := in.Ports.Docs.Get(t.Context(), key)
			return err == nil
		})
		in.publish(t, gcp.MachinesTopic, entry("compute.instances.repair.recreateInstance",
			"Instance Group Manager 'projects/27/regions/us-central1/instanceGroupManagers/"+group+"' initiated "+
				"recreateInstance on instance 'x'. Reason: instance should be RUNNING, but is STOPPING"))
	}
	lost := fmt.Sprint(4520031799277581099) // it ends without a notice, which is a failure
	in.publish(t, gcp.MachinesTopic, `{"protoPayload":{"methodName":"compute.instances.repair.recreateInstance",`+
		`"status":{"message":"Instance Group Manager 'projects/27/regions/us-central1/instanceGroupManagers/`+group+
		`' initiated recreateInstance on instance 'x'. Reason: r"}},"resource":{"type":"gce_instance",`+
		`"labels":{"instance_id":"`+lost+`"}},"timestamp":"`+time.Now().UTC().Format(time.RFC3339Nano)+`"}`)
	scenarios.Eventually(t, "the silent end is recorded", func() bool {
		_, err := in.Ports.Docs.Get(t.Context(), record.HeartbeatKey(lost))
		return err == nil
	})
	if b := hosttest.Load[health.Heartbeat](t, in.Ports, record.HeartbeatKey(lost)); b.FailureReason == "" ||
		b.Pool != "default" {
		t.Errorf("the machine that ended in silence: %+v", b)
	}
	for n := range 3 {
		b := hosttest.Load[health.Heartbeat](t, in.Ports, record.HeartbeatKey(fmt.Sprint(4520031799277581000+n)))
		if b.FailureReason != "" || b.State != health.Gone {
			t.Errorf("a machine that was preempted while booting: %+v", b)
		}
	}
}
