package e2e

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/aws/iam"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// timings are the embedded defaults, which a deployment on AWS may have as well.
const timings = `
[health]
heartbeat_interval = "500ms"
self_fence_timeout = "4s"
failure_timeout = "5s"
skew_budget = "250ms"
`

// smallShards let some hundred items keep several workers busy for a while.
const smallShards = `
[worker]
in_flight = 4
checkpoint = "300ms"
drain_budget = "2s"
[defaults]
schema_version = 1
kind = "batch"
[defaults.shard]
items = 8
[defaults.limits]
grace = "500ms"
[[pool]]
name = "default"
model = "fake"
`

// pool is the deployment's only pool.
const pool = "default"

// awsInstallation is a deployment on fakeaws.
type awsInstallation struct {
	*fakeaws.Deployed
	t           *testing.T
	llm         llm
	dir         string // with its rollout.toml
	deployment  config.Deployment
	group       string // of its machines
	mayBeDenied bool   // the test provokes denied requests
}

// open deploys into a new account. fleet is the text of [cloud.fleet]; change may
// modify the options.
func open(t *testing.T, s llm, fleet string, change func(*fakeaws.Options)) *awsInstallation {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: short tests do not build the programs")
	}
	name := "t" + strings.ToLower(rand.Text()[:7])
	text := fmt.Sprintf("schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = %q\n"+
		"[cloud.s3]\nbucket = %q\nprefix = \"team-a/\"\n[cloud.fleet]\n%s\n[engine]\nurl = %q\n",
		name, "bucket-"+name, fleet, s.url+"/v1") + timings + smallShards
	a := &awsInstallation{t: t, llm: s, dir: t.TempDir()}
	write(t, a.dir, "rollout.toml", text)
	var err error
	if a.deployment, err = config.ParseDeployment("rollout.toml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	a.group = a.deployment.Cloud.FleetName(pool)
	o := fakeaws.Options{Config: text, Minute: time.Second, Timeout: 20 * time.Second, BatchWindow: 100 * time.Millisecond,
		Log: slog.New(slog.NewTextHandler(&testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	o.Roles = roles(t, a.deployment)
	if change != nil {
		change(&o)
	}
	if a.Deployed, err = fakeaws.Deploy(t.Context(), programs, o); err != nil {
		t.Fatal(err)
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
	return a
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
func (a *awsInstallation) logOutput() {
	for name, calls := range a.Calls() {
		a.t.Logf("%s: %+v\n%s", name, calls, end(a.Logs(name)))
	}
	for _, in := range a.Groups.Instances(a.group) {
		a.t.Logf("%s:\n%s", in.ID, end(in.Output()))
	}
}

// end is the end of a text.
func end(text string) string { return text[max(0, len(text)-3000):] }

// put uploads an object as the bucket's owner, who may write any key, and returns
// the id of its run.
func (a *awsInstallation) put(key, content string) identity.RunID {
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
	return identity.UploadRun(a.deployment.Bucket, key, info.Version)
}

// read reads an object of the deployment; ok is false if it does not exist.
func (a *awsInstallation) read(key string) (text string, ok bool) {
	a.t.Helper()
	r, _, err := a.Stack.Ports.Blobs.Get(a.t.Context(), key, blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return "", false
	}
	if err != nil {
		a.t.Fatal(err)
	}
	defer r.Close() // read only
	content, err := io.ReadAll(r)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(content), true
}

// hasEnded reports whether a run has ended.
func (a *awsInstallation) hasEnded(id identity.RunID) bool {
	_, ok := a.read(record.OutputKey(id, record.SummaryFile))
	return ok
}

// awaitEnd waits until a run has ended and returns its files.
func (a *awsInstallation) awaitEnd(id identity.RunID) outcome {
	a.t.Helper()
	eventually(a.t, fmt.Sprintf("the run %s ends", id), func() bool { return a.hasEnded(id) })
	return readOutcome(a.t, func(name string) string {
		content, ok := a.read(record.OutputKey(id, name))
		if !ok {
			a.t.Errorf("the run %s has no %s", id, name)
		}
		return content
	})
}

// environment is the environment of a user's commands.
func (a *awsInstallation) environment() []string { return a.Environment(a.policy("user")) }

// policy is the full name of one of the stack's user policies.
func (a *awsInstallation) policy(name string) string {
	return a.deployment.Cloud.Name + "-" + name + "-" + fakeaws.Region
}

// depth is the number of messages in a queue.
func (a *awsInstallation) depth(name string) int {
	a.t.Helper()
	q, ok := a.Stack.Ports.Queues.(queue.Depther)
	if !ok {
		a.t.Fatal("the queues do not tell their depth")
	}
	visible, hidden, err := q.Depth(a.t.Context(), name)
	if err != nil {
		a.t.Fatal(err)
	}
	return visible + hidden
}

// longestChain is the longest chain of invocations in the life of a run, whatever
// other runs do: submit, plan, plan (a range), finalize, finalize (a segment),
// finalize, and coordinate, which continues the chains of its messages.
const longestChain = 7

// wantNoLoops checks that no chain of invocations was longer than one run's (I8).
func (a *awsInstallation) wantNoLoops() {
	a.t.Helper()
	for name, calls := range a.Calls() {
		if calls.LoopsBlocked > 0 || calls.LongestChain > longestChain {
			a.t.Errorf("%s has a chain of %d invocations, and was cut %d times", name, calls.LongestChain, calls.LoopsBlocked)
		}
	}
}

// roles are the roles of the stack's golden template, with the names of the
// deployment at hand.
func roles(t *testing.T, d config.Deployment) *iam.Roles {
	t.Helper()
	template, err := os.ReadFile("../../../infra/aws/stack/testdata/template.json")
	if err != nil {
		t.Fatal(err)
	}
	w := d.Cloud
	text := strings.NewReplacer("acme-batches", w.S3.Bucket, "team-a/", w.S3.Prefix, "eu-central-1", fakeaws.Region,
		"acme-small", w.FleetName(pool), "acme-work-small", w.SQS.Prefix+"work-"+pool, "acme-urgent-small",
		w.SQS.Prefix+"urgent-"+pool,
		"acme/", w.Secrets.Prefix, "acme", w.Name).Replace(string(template))
	r, err := iam.ReadTemplate([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return &r
}
