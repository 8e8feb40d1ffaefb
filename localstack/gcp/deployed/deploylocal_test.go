package deployed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// deployment is the config of TestDeployLocal. A dead worker is noticed within a quarter of
// a minute.
const deployment = `schema_version = 1
[cloud]
provider = "gcp"
project = "acme-ml"
region = "us-central1"
gcs.bucket = "acme-rollout"
gcs.prefix = "team-a/"
fleet.instance_types = ["g2-standard-8"]
[[pool]]
name = "small"
model = "fake"
[health]
heartbeat_interval = "1s"
self_fence_timeout = "6s"
failure_timeout = "8s"
skew_budget = "1s"
`

// TestDeployLocal builds what infra/gcp plans, and runs a batch through it: functions and
// workers have the accounts of the plan, and what it does not grant is refused. A worker is
// killed. The answers are those of `rollout up`, byte for byte. A rollout that learns
// follows. No request was denied.
func TestDeployLocal(t *testing.T) {
	f := newFixture(t, deployment, map[string]any{})
	server := inferenceServer(t, 50*time.Millisecond)
	nightly := job{key: "prompts/nightly.jsonl", toml: "schema_version = 1\n[shard]\nitems = 20\n",
		lines: scenarios.MixedPrompts(2000)}
	want := f.local(t, server, nightly)

	first, _ := f.worker(t, server), f.worker(t, server)
	run := f.submit(t, nightly)
	f.eventually(t, "some shards are answered", func() bool {
		page, err := f.Ports.Blobs.List(t.Context(), record.WorkPrefix+string(run)+"/shards/", "", 100)
		return err == nil && len(page) >= 5
	})
	first.kill()
	t.Log("a worker is killed")
	f.awaitEnd(t, run)
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		if want[name] == "" {
			t.Errorf("rollout up has no row in %s", name)
		}
	}
	scenarios.WantFiles(t, f.Ports.Blobs, run, want)
	f.learns(t, run)
	for _, d := range f.Policy.Denied() {
		t.Errorf("the plan lacks a grant: %v", d)
	}
}

// learns runs examples/refunds through the installation, shortened to one epoch of 240
// tickets and to two batches, and checks that its guidance, its reflections and its other
// files are those of `rollout up`.
func (f *fixture) learns(t *testing.T, earlier identity.RunID) {
	t.Helper()
	config, tickets := scenarios.Refunds(t, 240)
	j := job{key: "prompts/refunds.jsonl", toml: config, lines: tickets}
	server := inferenceServer(t, 0)
	want := f.local(t, server, j)
	f.worker(t, server)
	run := f.submit(t, j)
	f.awaitEnd(t, run)
	scenarios.WantFiles(t, f.Ports.Blobs, run, want)
	if n := strings.Count(want[rollout.ReflectionFile], `"result":"accepted"`); n == 0 {
		t.Errorf("no guidance was accepted: %s", want[rollout.ReflectionFile])
	}
	f.onlyRuns(t, earlier, run)
}

// fixture is a deployed installation, and the owner's view of it.
type fixture struct {
	*Installation
	*gcp.Stack
	log         *scenarios.Output
	text        string // the config
	dir         string // a folder with the config
	commandLine string // the program rollout

	// Of TestGrants.
	engine   string         // address of the inference server
	machine  *process       // the worker; nil if none works
	serial   int            // of the last upload
	answered identity.RunID // a run that has ended
	hook     *scenarios.Inbox
}

// newFixture deploys a config, with more variables of Terraform, and calls the timer more
// often than its schedule says.
func newFixture(t *testing.T, text string, options map[string]any) *fixture {
	t.Helper()
	f := &fixture{log: &scenarios.Output{}, text: text, dir: t.TempDir(), commandLine: program(t, "rollout")}
	if err := os.WriteFile(filepath.Join(f.dir, "rollout.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.Installation = Deploy(t, plan(t, text, options), Options{Functions: program(t, "functions"), Log: f.log,
		SecretText: "a-token-of-24-characters"})
	for variable, address := range map[string]string{gcp.StorageEmulatorVariable: f.StorageAddress,
		gcp.FirestoreEmulatorVariable: f.Firestore.Address, gcp.PubSubEmulatorVariable: f.PubSub.Address} {
		t.Setenv(variable, address)
	}
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if f.Stack, err = gcp.OpenStack(t.Context(), d, gcp.StackOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		timer := time.NewTicker(2 * time.Second)
		defer timer.Stop()
		for ctx.Err() == nil {
			select {
			case <-timer.C:
				if err := f.Tick(ctx); err != nil && ctx.Err() == nil {
					fmt.Fprintln(f.log, "the timer:", err)
				}
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		all.Wait()
		if t.Failed() {
			t.Logf("the programs wrote:\n%s", scenarios.End(f.log.String()))
		}
	})
	return f
}

// process is a program that runs until the test ends.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// worker starts a worker of the first pool, with the account that the plan gives machines,
// until the test ends.
func (f *fixture) worker(t *testing.T, engine string) *process {
	t.Helper()
	machine := f.Plan.Of("google_compute_region_instance_template")[0].Values.Block("service_account")
	cmd := f.Program(t, machine.Text("email"), program(t, "gpuworker"), "--cloud", "gcp", "--pool",
		f.Deployment.Pools[0].Name, "--engine", engine, "--in-flight", "8")
	for _, e := range f.Plan.Of("google_cloud_run_v2_service")[0].Values.Block("template", "containers").Blocks("env") {
		if e.Text("name") == "ROLLOUT_CONFIG" { // functions and machines have the same
			cmd.Env = append(cmd.Env, "ROLLOUT_CONFIG="+e.Text("value"))
		}
	}
	return f.run(t, cmd)
}

// job is an upload: a config and the lines beside it.
type job struct{ key, toml, lines string }

func (j job) tomlKey() string { return strings.TrimSuffix(j.key, "jsonl") + "toml" }

// submit uploads a job and returns its run.
func (f *fixture) submit(t *testing.T, j job) identity.RunID {
	t.Helper()
	hosttest.Put(t, f.Ports, j.tomlKey(), j.toml)
	return identity.UploadRun(f.Deployment.Bucket, j.key, hosttest.Put(t, f.Ports, j.key, j.lines))
}

// awaitEnd waits until a run has ended.
func (f *fixture) awaitEnd(t *testing.T, run identity.RunID) {
	t.Helper()
	start := time.Now()
	f.eventually(t, "the run has ended", func() bool {
		_, err := f.Ports.Blobs.Stat(t.Context(), record.OutputKey(run, record.SummaryFile), "")
		return err == nil
	})
	t.Logf("the run %s has ended after %v", run, time.Since(start).Round(100*time.Millisecond))
}

// eventually polls until ok returns true.
func (f *fixture) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %v: %s; denied: %v", patience, what, f.Policy.Denied())
		}
	}
}

// local runs a job with `rollout up` and returns its files by name, without times.
func (f *fixture) local(t *testing.T, engine string, j job) map[string]string {
	t.Helper()
	start, l := time.Now(), scenarios.NewLaptop(t, f.commandLine, engine, "")
	files := l.Files(l.Complete(j.key, j.lines, j.toml))
	t.Logf("rollout up ran it in %v", time.Since(start).Round(100*time.Millisecond))
	return files
}

// onlyRuns checks that there are only these runs and that no task failed.
func (f *fixture) onlyRuns(t *testing.T, runs ...identity.RunID) {
	t.Helper()
	var found, want []string
	for doc, err := range document.All(t.Context(), f.Ports.Docs, "run/") {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, doc.Key)
	}
	for _, run := range runs {
		want = append(want, record.ManifestKey(run))
	}
	slices.Sort(found)
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("the runs are %v, want %v", found, want)
	}
	for _, name := range []string{host.TaskQueue, host.CoordinateQueue, host.WorkQueue("small")} {
		got, err := f.Ports.Queues.Receive(t.Context(), queue.DeadLetterQueue(name), 10, time.Minute, 0)
		if err != nil || len(got) > 0 {
			t.Errorf("the dead letters of %s: %v, %v", name, got, err)
		}
	}
}
