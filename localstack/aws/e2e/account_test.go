package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/iam"
	"rollout/localstack/scenarios"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/ownership"
	"rollout/shared/queue"
)

// timings are the embedded defaults, which a deployment on AWS may have as well.
const timings = `
[health]
heartbeat_interval = "500ms"
self_fence_timeout = "4s"
failure_timeout = "5s"
skew_budget = "250ms"
`

// onAWS is AWS as the scenarios see it. EC2 gives a notice of two minutes, and sometimes a
// shorter one, or none.
func onAWS() scenarios.Cloud {
	return scenarios.Cloud{Provider: config.ProviderAWS, Program: programs.Path("rollout"), Parallel: true,
		Leads: []time.Duration{0, 3 * time.Second, 30 * time.Second, 2 * time.Minute},
		Deploy: func(t *testing.T, s scenarios.Settings) scenarios.Installation {
			return deploy(t, s, func(o *fakeaws.Options) {
				o.Taken = func(e fakeaws.BusEvent) (code string) {
					if s.Told != nil && !s.Told.Take(e.Detail) {
						return "InternalFailure"
					}
					return ""
				}
				if o.Seed = s.Faults; s.Faults != 0 {
					o.Events = fakeaws.Delivery{Copies: 3, Jitter: 300 * time.Millisecond}
					o.Faults = fakeaws.Faults{LostReplies: 15, Throttled: 10}
				}
			})
		}}
}

// account is a deployment in an account of its own on fakeaws; see scenarios.Installation.
type account struct {
	*fakeaws.Deployed
	t           *testing.T
	dir         string // with its rollout.toml
	deployment  config.Deployment
	group       string       // of the machines that answer prompts
	faults      bool         // the account has them
	mayBeDenied bool         // the test provokes denied requests
	broken      *atomic.Bool // machines that come; see BreakMachines
}

// installation is an account, and what the scenarios' tests can do with it.
type installation struct {
	*account
	*scenarios.Fixture
}

// open deploys with a server into a new account. change may modify the options; nil
// modifies none.
func open(t *testing.T, server *scenarios.Server, s scenarios.Settings, change func(*fakeaws.Options)) *installation {
	t.Helper()
	s.Server = server.URL
	a := deploy(t, s, change)
	return &installation{a, scenarios.NewFixture(t, onAWS(), server, a)}
}

// deploy deploys into a new account.
func deploy(t *testing.T, s scenarios.Settings, change func(*fakeaws.Options)) *account {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: short tests do not build the programs")
	}
	name := "t" + strings.ToLower(rand.Text()[:7])
	text := fmt.Sprintf("schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = %q\n"+
		"[cloud.s3]\nbucket = %q\nprefix = %q\n[cloud.fleet]\nengine_image = \"127.0.0.1:1/vllm\"\n",
		name, "bucket-"+name, scenarios.Prefix) + s.Fleet() +
		timings + s.Config()
	certificates := ""
	if s.Webhook != nil {
		receiver := httptest.NewTLSServer(s.Webhook)
		t.Cleanup(receiver.Close)
		text += scenarios.WebhookConfig(receiver.URL)
		certificates = certificateOf(t, receiver)
	}
	a := &account{t: t, dir: t.TempDir(), faults: s.Faults != 0}
	scenarios.Write(t, a.dir, "rollout.toml", text)
	var err error
	if a.deployment, err = config.ParseDeployment("rollout.toml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	a.group = a.deployment.Cloud.FleetName(scenarios.Pool)
	o := fakeaws.Options{Config: text, Minute: time.Second, Timeout: 20 * time.Second, BatchWindow: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	o.Roles, o.Certificates = roles(t, a.deployment), certificates
	if change != nil {
		change(&o)
	}
	if a.Deployed, err = fakeaws.Deploy(t.Context(), programs, o); err != nil {
		t.Fatal(err)
	}
	if s.Webhook != nil {
		a.createSecret(scenarios.WebhookSecretName, scenarios.WebhookSecret)
	}
	t.Cleanup(func() {
		a.Close()
		for _, what := range a.DeniedRequests() {
			if !a.mayBeDenied {
				t.Errorf("a role lacks a permission: %s", what)
			}
		}
		if t.Failed() {
			a.logOutput()
		}
	})
	if !s.FromNone {
		if err := a.Groups.SetDesired(a.group, s.Machines); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

// certificateOf returns a file with the certificate of a server.
func certificateOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return scenarios.Write(t, t.TempDir(), "ca.pem", string(text))
}

// createSecret makes a secret of the deployment.
func (a *account) createSecret(name, value string) {
	a.t.Helper()
	full := a.deployment.Cloud.Secrets.Prefix + name
	if _, err := secretsmanager.NewFromConfig(a.Stack.AWS).CreateSecret(a.t.Context(),
		&secretsmanager.CreateSecretInput{Name: &full, SecretString: &value}); err != nil {
		a.t.Fatal(err)
	}
}

// BreakMachines lets the program of the next machines be missing, or be there.
func (a *account) BreakMachines(broken bool) {
	if a.broken == nil {
		a.broken = &atomic.Bool{}
		worker, missing := programs.Path("gpuworker"), filepath.Join(a.dir, "missing")
		a.Groups.Make(a.group, a.deployment.Cloud.Fleet.MaxMachines, func(in *fakeaws.Instance) *exec.Cmd {
			cmd := exec.Command(worker, "--cloud", config.ProviderAWS, "--pool", scenarios.Pool)
			if a.broken.Load() {
				cmd = exec.Command(missing)
			}
			cmd.Env = append(in.Environment(), "PATH="+os.Getenv("PATH"), "HOME=/nonexistent")
			return cmd
		})
	}
	a.broken.Store(broken)
}

// testLog writes to the test's log.
type testLog struct{ t *testing.T }

func (l *testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil { // logging after the end of a test panics
		l.t.Logf("%s", strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// logOutput logs the output of the processes.
func (a *account) logOutput() {
	for name, calls := range a.Calls() {
		a.t.Logf("%s: %+v\n%s", name, calls, scenarios.End(a.Logs(name)))
	}
	for _, in := range a.instances() {
		a.t.Logf("%s:\n%s", in.ID, scenarios.End(in.Output()))
	}
}

// Stores use the emulator directly.
func (a *account) Stores() cloud.Stores { return a.Stack.Stores() }

// Reclaim has the role of the function.
func (a *account) Reclaim() ownership.CloudInstallation {
	a.t.Helper()
	s, err := fakeaws.OpenInstallation(a.t.Context(), a.deployment, a.URL, "reclaim")
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// Upload puts an object as the bucket's owner, who may write any key.
func (a *account) Upload(key, content string) (version string) {
	a.t.Helper()
	// The request goes through fakeaws, which announces the object to submit.
	front, err := fakeaws.OpenInstallation(a.t.Context(), a.deployment, a.URL, "owner")
	if err != nil {
		a.t.Fatal(err)
	}
	info, err := front.Bucket.Put(a.t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return info.Version
}

// Announce calls submit with the events of S3 and of EventBridge.
func (a *account) Announce(o scenarios.Object) {
	object := fakeaws.Object{Key: o.Name, Version: o.Version, Size: o.Size}
	a.InvokeAsync("submit", fakeaws.S3Event(a.deployment.Bucket, "ObjectCreated:Put", object))
	a.InvokeAsync("submit", fakeaws.EventBridgeS3Event(a.deployment.Bucket, object))
}

// Folder has the rollout.toml.
func (a *account) Folder() string { return a.dir }

// Environment is that of a user, see caller.
func (a *account) Environment() []string { return a.Deployed.Environment(a.caller("user")) }

// caller is a person to whom the stack's policies for a reader or a user are attached: a user
// has both.
func (a *account) caller(name string) string {
	if name == "user" {
		return a.policy("reader") + "+" + a.policy("user")
	}
	return a.policy(name)
}

// policy is the full name of one of the stack's user policies.
func (a *account) policy(name string) string {
	return a.deployment.Cloud.Name + "-" + name + "-" + fakeaws.Region
}

// Get sends a request as the API's function URL does for a caller whose signature is valid.
// It repeats one that the API's throttle refuses.
func (a *account) Get(path string) []byte {
	a.t.Helper()
	event := fmt.Sprintf(`{"version":"2.0","rawPath":%q,"rawQueryString":"",`+
		`"headers":{"host":"x.lambda-url.us-east-1.on.aws"},"isBase64Encoded":false,
		"requestContext":{"domainName":"x.lambda-url.us-east-1.on.aws","authorizer":{"iam":{"accountId":"000000000000"}},
		"http":{"method":"GET","path":%q,"protocol":"HTTP/1.1","sourceIp":"198.51.100.7"}}}`, path, path)
	var body []byte
	scenarios.Eventually(a.t, "the API answers "+path, func() bool {
		reply, err := a.Invoke("api", []byte(event))
		// A streamed answer starts with its status and eight zero bytes.
		head, rest, streamed := bytes.Cut(reply.Body, make([]byte, 8))
		var status struct{ StatusCode int }
		if err != nil || reply.Failed || !streamed || json.Unmarshal(head, &status) != nil {
			a.t.Fatalf("%s: %v, %s", path, err, reply.Body)
		}
		if body = rest; status.StatusCode >= 300 && status.StatusCode != http.StatusTooManyRequests {
			a.t.Fatalf("%s: %s", path, reply.Body)
		}
		return status.StatusCode < 300
	})
	return body
}

// Machines are the instances of all groups.
func (a *account) Machines() (all []scenarios.Machine) {
	for _, in := range a.instances() {
		all = append(all, machine{in, a.Groups})
	}
	return all
}

// instances are those of the groups of all pools.
func (a *account) instances() (all []*fakeaws.Instance) {
	for _, p := range a.deployment.Pools {
		all = append(all, a.Groups.Instances(a.deployment.Cloud.FleetName(p.Name))...)
	}
	return all
}

// machine is an instance; see scenarios.Machine.
type machine struct {
	*fakeaws.Instance
	groups *fakeaws.Groups
}

func (m machine) ID() string                 { return m.Instance.ID }
func (m machine) Kill()                      { m.KillProcess() } // its init starts the worker again
func (m machine) Preempt(lead time.Duration) { m.groups.Interrupt(m.Instance, lead) }
func (m machine) Freeze()                    { m.FreezeProcess() }
func (m machine) Resume()                    { m.ResumeProcess() }

// Insist sends four more notices.
func (m machine) Insist() {
	m.groups.EmitRebalance(m.Instance)
	m.groups.EmitInterruptionWarning(m.Instance)
	m.SignalTerminate()
	m.groups.EmitInterruptionWarning(m.Instance)
}

func (m machine) Ended() bool {
	select {
	case <-m.Instance.Ended():
		return true
	default:
		return false
	}
}

// Crash kills a process of a function, if it has one.
func (a *account) Crash(function string) { a.Deployed.Crash(function) }

// Minutes counts the calls of reclaim.
func (a *account) Minutes() int { return a.Calls()["reclaim"].Count }

// Check checks that no message of a run is a dead letter, that no chain of invocations was
// longer than one run's, and how many steps coordinate took for disturbed runs (I8).
func (a *account) Check(ended ...scenarios.Outcome) {
	a.t.Helper()
	names := []string{host.CoordinateQueue}
	for _, p := range a.deployment.Pools {
		names = append(names, host.WorkQueue(p.Name), host.UrgentQueue(p.Name))
	}
	for _, name := range names {
		if n := a.depth(queue.DeadLetterQueue(name)); n > 0 {
			a.t.Errorf("%d messages in %s", n, name)
		}
	}
	for name, calls := range a.Calls() {
		if calls.LoopsBlocked > 0 || calls.LongestChain > longestChain {
			a.t.Errorf("%s has a chain of %d invocations, and was cut %d times", name, calls.LongestChain, calls.LoopsBlocked)
		}
	}
	most := 0
	for _, o := range ended {
		most += 6*int(o.Summary.Shards) + 40
	}
	if got := a.Calls()["coordinate"].Count; most > 0 && got > most {
		a.t.Errorf("%d steps of coordinate, want at most %d (I8)", got, most)
	}
	var faults fakeaws.Count
	for _, c := range a.Meter.Counts() {
		faults.RepliesLost, faults.Throttled = faults.RepliesLost+c.RepliesLost, faults.Throttled+c.Throttled
	}
	if most > 0 && a.faults && (faults.RepliesLost == 0 || faults.Throttled == 0) {
		a.t.Errorf("%d replies were lost and %d requests throttled, want some of both", faults.RepliesLost, faults.Throttled)
	}
}

// longestChain is the longest chain of invocations in the life of a run, whatever
// other runs do: submit, plan, plan (a range), finalize, finalize (a segment),
// finalize, and coordinate, which continues the chains of its messages.
const longestChain = 7

// depth is the number of messages in a queue.
func (a *account) depth(name string) int {
	a.t.Helper()
	q, ok := a.Stores().Ports.Queues.(queue.Depther)
	if !ok {
		a.t.Fatal("the queues do not tell their depth")
	}
	visible, hidden, err := q.Depth(a.t.Context(), name)
	if err != nil {
		a.t.Fatal(err)
	}
	return visible + hidden
}

// roles are the roles of the stack's golden templates, with the names of the deployment at
// hand. Its bucket, queues and table have keys of one's own, which the roles need rights to.
func roles(t *testing.T, d config.Deployment) *iam.Roles {
	t.Helper()
	w := d.Cloud
	names := strings.NewReplacer("acme-batches", w.S3.Bucket, "team-a/", w.S3.Prefix, "eu-central-1", fakeaws.Region,
		"acme-small", w.FleetName(scenarios.Pool), "acme-work-small", w.SQS.Prefix+"work-"+scenarios.Pool,
		"acme-urgent-small", w.SQS.Prefix+"urgent-"+scenarios.Pool,
		"acme/", w.Secrets.Prefix, "acme", w.Name)
	var templates [2][]byte
	for i, name := range []string{"template.json", "keys.json"} {
		text, err := os.ReadFile(filepath.Join(source, "infra/aws/stack/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		templates[i] = []byte(names.Replace(string(text)))
	}
	r, err := iam.ReadTemplate(templates[0], templates[1])
	if err != nil {
		t.Fatal(err)
	}
	return &r
}
