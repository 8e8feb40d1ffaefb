package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/gcp/fakecompute"
	"rollout/localstack/gcp/fakefirestore"
	"rollout/localstack/gcp/fakegcs"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/scenarios"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/ownership"
	"rollout/shared/queue"
)

// Users have on Google Cloud what they have in every cloud.
func TestScenarios(t *testing.T) {
	t.Parallel()
	scenarios.Run(t, onGoogleCloud())
}

// Runs end with the bytes of a laptop whatever disturbs them. Repeat one with
// -args -seed N -rounds 1.
func TestDisturbedRuns(t *testing.T) {
	t.Parallel()
	scenarios.Disturb(t, onGoogleCloud(), *seed, *rounds)
}

// calmHealth are timings by which a dead worker is noticed within a quarter of a
// minute, with few heartbeats.
const calmHealth = `
[health]
heartbeat_interval = "2s"
self_fence_timeout = "8s"
failure_timeout = "10s"
skew_budget = "500ms"
`

// onGoogleCloud is Google Cloud as the scenarios see it. Compute Engine gives a notice of
// 30 s, and takes them less seriously.
func onGoogleCloud() scenarios.Cloud {
	return scenarios.Cloud{Provider: config.ProviderGCP, Program: commandLine, Parallel: true,
		Leads:  []time.Duration{30 * time.Second, 8 * time.Second, 3 * time.Second, 0},
		Deploy: func(t *testing.T, s scenarios.Settings) scenarios.Installation { return deployScene(t, s) }}
}

// scene is an installation whose machines are those of groups; see scenarios.Installation.
type scene struct {
	*installation
	t   *testing.T
	dir string // with its rollout.toml
}

// deployScene starts an installation with an API until the test ends.
func deployScene(t *testing.T, s scenarios.Settings) *scene {
	t.Helper()
	var f faults
	if s.Faults != 0 {
		f = faults{
			firestore: fakefirestore.Faults{Seed: s.Faults, Aborted: 10, LostReplies: 10},
			pubsub:    fakepubsub.Faults{Seed: s.Faults, LostReplies: 10, Duplicates: 20, StaleAcks: 50},
			storage:   fakegcs.NewFaults(s.Faults, 10, 10, 5),
		}
	}
	f.told, f.webhook = s.Told, s.Webhook
	in := &scene{t: t, dir: t.TempDir()}
	in.installation = deployConfig(t, f, "[cloud.fleet]\n"+s.Fleet()+"instance_types = [\"g2-standard-8\"]\n"+calmHealth+
		s.Config())
	scenarios.Write(t, in.dir, "rollout.toml", in.toml)
	in.start(t, host.APIFunction)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	in.rent(ctx, &all)
	if !s.FromNone {
		in.compute.SetSize(group, s.Machines)
	}
	return in
}

// opened is an installation with machines of its own, and what the scenarios' tests can do
// with it.
type opened struct {
	*scene
	*scenarios.Fixture
}

// open starts an installation whose workers have the mock engine.
func open(t *testing.T, s scenarios.Settings) *opened {
	t.Helper()
	in := deployScene(t, s)
	return &opened{in, scenarios.NewFixture(t, onGoogleCloud(), nil, in)}
}

// fixture returns what the scenarios' tests can do with an installation without machines.
func (in *installation) fixture(t *testing.T) *scenarios.Fixture {
	return scenarios.NewFixture(t, onGoogleCloud(), nil, &scene{installation: in, t: t})
}

// Upload puts an object; the bucket notifies of it.
func (in *scene) Upload(key, content string) (version string) {
	in.t.Helper()
	info, err := in.Ports.Blobs.Put(in.t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	if err != nil {
		in.t.Fatal(err)
	}
	return info.Version
}

// Reclaim has the rights of the test's own process.
func (in *scene) Reclaim() ownership.CloudInstallation { return in.Stack }

// Announce publishes a notification of the bucket.
func (in *scene) Announce(o scenarios.Object) {
	in.announce(fakegcs.Notification{Bucket: bucket, Object: o.Name, Generation: o.Version,
		ObjectDescription: fmt.Appendf(nil, `{"bucket":%q,"name":%q,"generation":%q,"size":"%d"}`, bucket, o.Name, o.Version,
			o.Size)})
}

// Folder has the rollout.toml.
func (in *scene) Folder() string { return in.dir }

// Environment leads commands to the emulators.
func (in *scene) Environment() []string { return in.environment() }

// Get asks the API with a user's identity, and again while it is throttled.
func (in *scene) Get(path string) []byte {
	in.t.Helper()
	var body string
	scenarios.Eventually(in.t, "the API answers "+path, func() bool {
		status, answer := in.call(in.t, http.MethodGet, in.addresses[host.APIFunction]+path, "me@acme.com", "")
		if status != http.StatusOK && status != http.StatusTooManyRequests {
			in.t.Fatalf("%s: %d %s", path, status, answer)
		}
		body = answer
		return status == http.StatusOK
	})
	return []byte(body)
}

// Machines are those of all groups.
func (in *scene) Machines() (all []scenarios.Machine) {
	for _, i := range in.compute.Machines() {
		if m := in.machines.of(i.ID); m != nil {
			all = append(all, groupMachine{in, i, m})
		}
	}
	return all
}

// BreakMachines lets the engines of the next machines die, or live.
func (in *scene) BreakMachines(broken bool) { in.machines.setBroken(broken) }

// Crash kills a function, which Cloud Run starts again.
func (in *scene) Crash(function string) {
	for _, s := range in.services {
		if s.name == function {
			s.kill()
			in.launch(in.t, s)
		}
	}
}

// Minutes counts the timer's calls.
func (in *scene) Minutes() int { return int(in.ticks.Load()) }

// Check checks that no message is a dead letter, that no document was written more often
// than Firestore sustains, and that no working machine was ended by a lower size.
func (in *scene) Check(...scenarios.Outcome) {
	in.t.Helper()
	queues := []string{host.TaskQueue, host.CoordinateQueue}
	for _, p := range in.Deployment.Pools {
		queues = append(queues, host.WorkQueue(p.Name), host.UrgentQueue(p.Name))
	}
	for _, q := range queues {
		got, err := in.Ports.Queues.Receive(in.t.Context(), queue.DeadLetterQueue(q), 10, time.Minute, 0)
		if err != nil || len(got) > 0 {
			in.t.Errorf("the dead letters of %s: %v, %v", q, got, err)
		}
	}
	const window = 10 * time.Second
	document, n := in.firestore.Busiest(window)
	in.t.Logf("the busiest document is %s, written %d times within %v", document, n, window)
	runs, err := in.Ports.Docs.List(in.t.Context(), "run/", "", 100)
	if err != nil {
		in.t.Error(err)
	}
	// The open runs of a pool are a document, which the start and the end of each run change.
	most := 10 + 2*len(runs)
	if strings.Contains(document, "notify") { // each call of the timer delivers, here every 2 s and not every minute
		most *= 3
	}
	if n > most {
		in.t.Errorf("that is more than %d times, about once a second", most)
	}
	if ended := in.compute.Lowered(); len(ended) > 0 {
		in.t.Errorf("lower sizes ended the machines %v", ended)
	}
}

// groupMachine is a machine of the group; see scenarios.Machine.
type groupMachine struct {
	in *scene
	fakecompute.Instance
	*machine
}

func (m groupMachine) ID() string { return m.Instance.ID }

// Kill takes the machine away without a word. The group makes another one.
func (m groupMachine) Kill() { m.in.compute.Preempt(m.ID()) }

// Preempt tells the machine and the audit log.
func (m groupMachine) Preempt(lead time.Duration) {
	m.in.preempt(m.in.t, m.machine)
	end := time.AfterFunc(lead, m.Kill)
	m.in.t.Cleanup(func() { end.Stop() })
}

// Insist tells them again.
func (m groupMachine) Insist() {
	m.in.preempt(m.in.t, m.machine)
	m.signal(syscall.SIGTERM)
}

func (m groupMachine) Freeze() { m.signal(syscall.SIGSTOP) }
func (m groupMachine) Resume() { m.signal(syscall.SIGCONT) }

func (m groupMachine) signal(s syscall.Signal) { _ = m.worker.Process.Signal(s) } // it may have ended

func (m groupMachine) Finished() bool { return m.finished.Load() }

func (m groupMachine) Ended() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}
