package emulators

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"rollout/events"
	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/subprocess"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// emulatedAccount is the account of an emulator.
const emulatedAccount = "000000000000"

// TestDeployLocal deploys the stack into MiniStack with the CDK's command and runs
// a job through it: MiniStack runs the functions, and workers run beside it.
// Events are delivered twice and a worker is killed. The answers are those of
// `rollout up`, byte for byte.
func TestDeployLocal(t *testing.T) {
	d := deploy(t)
	const key = "prompts/nightly.jsonl"
	const toml = "schema_version = 1\n[shard]\nitems = 20\n"
	fake := d.fakellm(t)
	want := d.local(t, fake, key, toml)

	d.put(t, "prompts/nightly.toml", toml)
	info := d.put(t, key, prompts())
	run := identity.UploadRun(d.config.Bucket, key, info.Version)
	first, _ := d.worker(t, fake), d.worker(t, fake)
	d.call(t, "submit", string(fakeaws.S3Event(d.config.Bucket, "ObjectCreated:Put",
		fakeaws.Object{Key: key, Version: info.Version, Size: info.Size})))
	for range 2 {
		d.call(t, "plan", string(d.event(t, events.RunSubmitted{Run: string(run)})))
	}
	d.await(t, "some shards are answered", func() bool {
		page, err := d.blobs.List(t.Context(), record.WorkPrefix+string(run)+"/shards/", "", 100)
		return err == nil && len(page) >= 5
	})
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Log("a worker is killed")
	d.await(t, "the run has ended", func() bool {
		_, err := d.blobs.Stat(t.Context(), record.OutputKey(run, record.SummaryFile), "")
		return err == nil
	})
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		got := generatedAt.ReplaceAllString(d.get(t, record.OutputKey(run, name)), "")
		if got != want[i] || got == "" {
			t.Errorf("%s has %d bytes, want the %d of rollout up", name, len(got), len(want[i]))
		}
		t.Logf("%s: %d bytes, as of rollout up", name, len(got))
	}
	d.onlyRun(t, run)
}

// deployed is the stack in MiniStack.
type deployed struct {
	Endpoint
	config   config.Deployment
	text     string // of the config
	file     string // of the config
	cfg      awssdk.Config
	blobs    *aws.Bucket
	docs     document.Store
	programs string
}

// deploy starts MiniStack and deploys the stack into it with the CDK, without the
// resources that MiniStack lacks; see DIFFERENCES.md.
func deploy(t *testing.T) *deployed {
	t.Helper()
	e := RequireExternal(t).MiniStack(t)
	infra, functions := requireFolder(t, "ROLLOUT_INFRA"), requireFolder(t, "ROLLOUT_LAMBDA")
	d := &deployed{Endpoint: e, programs: t.TempDir()}
	d.cfg = e.Config(t.Context(), t)
	requireEmulatedAccount(t, d.cfg)
	d.text = fmt.Sprintf("schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\nname = \"t%s\"\n"+
		"[cloud.s3]\nbucket = %q\n[[pool]]\nname = \"small\"\nmodel = \"fake\"\n"+
		"[health]\nheartbeat_interval = \"1s\"\nself_fence_timeout = \"8s\"\nfailure_timeout = \"10s\"\n"+
		"skew_budget = \"1s\"\n", fresh(), e.Bucket)
	var err error
	if d.config, err = config.ParseDeployment("rollout.toml", []byte(d.text)); err != nil {
		t.Fatal(err)
	}
	d.file = filepath.Join(t.TempDir(), "rollout.toml")
	if err := os.WriteFile(d.file, []byte(d.text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{"gpuworker": "./gpuworker", "fakellm": "./scripts/fakellm",
		"rollout": "./scripts/rollout"} {
		d.build(t, "../..", name, in)
	}
	d.build(t, "../../infra/aws", "app", ".")
	start := time.Now()
	cdk := func(arguments ...string) {
		arguments = append(arguments, "--app", filepath.Join(d.programs, "app"), "--build", "true", "--output",
			filepath.Join(d.programs, "cdk.out"),
			"-c", "config="+d.file, "-c", "lambda="+functions, "-c", "arch=x86_64", "-c", "gpu=false", "-c", "budget=0")
		cmd := exec.CommandContext(t.Context(), filepath.Join(infra, "bin", "cdk"), arguments...)
		cmd.Dir, cmd.Env = "../../infra/aws", d.environment(t, "PATH="+filepath.Join(infra, "bin")+":"+os.Getenv("PATH"),
			"CDK_DISABLE_CLI_TELEMETRY=true", "CI=true")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("cdk %s: %v\n%s", arguments[0], err, out)
		}
	}
	cdk("bootstrap", "aws://"+emulatedAccount+"/us-east-1")
	cdk("deploy", "--require-approval", "never")
	t.Logf("deployed in %v", time.Since(start).Round(time.Second))
	d.blobs = aws.NewBucket(d.cfg, d.config.Cloud.S3.Bucket, aws.BucketOptions{})
	d.docs = aws.NewDocuments(d.cfg, d.config.Cloud.DynamoDB.Table, aws.DocumentOptions{Listed: aws.ListedPrefixes()})
	if err := d.blobs.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// requireFolder returns the folder in a variable that scripts/deploylocal sets.
func requireFolder(t *testing.T, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Fatalf("%s is not set: run make deploy-local, which sets it", variable)
	}
	return dir
}

// requireEmulatedAccount stops the test before it touches a real account.
func requireEmulatedAccount(t *testing.T, cfg awssdk.Config) {
	t.Helper()
	if at := awssdk.ToString(cfg.BaseEndpoint); !strings.HasPrefix(at, "http://127.0.0.1:") {
		t.Fatalf("the endpoint is %q, which is not on this machine", at)
	}
	who, err := sts.NewFromConfig(cfg).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	if awssdk.ToString(who.Account) != emulatedAccount {
		t.Fatalf("the account is %s, not an emulator's: the test deploys nothing there", awssdk.ToString(who.Account))
	}
}

// environment is the environment of a process, without that of the test.
func (d *deployed) environment(t *testing.T, more ...string) []string {
	t.Helper()
	home := t.TempDir()
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home,
		"AWS_CONFIG_FILE=" + filepath.Join(home, "none"), "AWS_SHARED_CREDENTIALS_FILE=" + filepath.Join(home, "none"),
		"AWS_ENDPOINT_URL=" + d.URL, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=" + emulatedAccount,
		"AWS_SECRET_ACCESS_KEY=none", "AWS_EC2_METADATA_DISABLED=true"}, more...)
}

// build builds a program.
func (d *deployed) build(t *testing.T, dir, name, what string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(d.programs, name), what)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
}

// fakellm starts a fake inference server and returns its address.
func (d *deployed) fakellm(t *testing.T) string {
	t.Helper()
	port := freePort(t)
	cmd := exec.Command(filepath.Join(d.programs, "fakellm"), "--listen", "127.0.0.1:"+port, "--latency", "100ms")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	run(t, "fakellm", port, cmd)
	return "http://127.0.0.1:" + port + "/v1"
}

// worker starts a worker of the deployment.
func (d *deployed) worker(t *testing.T, engine string) *exec.Cmd {
	t.Helper()
	stderr := &strings.Builder{}
	cmd := exec.Command(filepath.Join(d.programs, "gpuworker"), "--cloud", "aws", "--config", d.file, "--engine", engine,
		"--in-flight", "8")
	cmd.Env, cmd.Stderr = d.environment(t), stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("a worker wrote:\n%s", stderr)
		}
	})
	return cmd
}

// local runs the same job with `rollout up` and returns completions and errors.
func (d *deployed) local(t *testing.T, engine, key, toml string) (files [2]string) {
	t.Helper()
	dir := t.TempDir()
	bucket := filepath.Join(dir, "bucket")
	if err := os.MkdirAll(filepath.Join(bucket, record.PromptsPrefix), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{strings.TrimSuffix(key, "jsonl") + "toml": toml, key: prompts()} {
		if err := os.WriteFile(filepath.Join(bucket, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := CommandLine{filepath.Join(d.programs, "rollout")}.Run(t.Context(), t, nil, "up", "--dir", dir, "--engine",
		engine, "--listen", "off", "--once")
	found, err := filepath.Glob(filepath.Join(bucket, record.RunsPrefix, "*"))
	if err != nil || len(found) != 1 {
		t.Fatalf("rollout up has the runs %v, %v: %s", found, err, out.Stderr)
	}
	for i, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		content, err := os.ReadFile(filepath.Join(found[0], name))
		if err != nil {
			t.Fatal(err)
		}
		files[i] = generatedAt.ReplaceAllString(string(content), "")
	}
	return files
}

func (d *deployed) put(t *testing.T, key, content string) blob.Info {
	t.Helper()
	info, err := d.blobs.Put(t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (d *deployed) get(t *testing.T, key string) string {
	t.Helper()
	r, _, err := d.blobs.Get(t.Context(), key, blob.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// event encodes an event of the product.
func (d *deployed) event(t *testing.T, p events.Payload) []byte {
	t.Helper()
	b, err := events.Encode(p, events.Meta{Source: "rollout/test", Time: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// call invokes a function asynchronously.
func (d *deployed) call(t *testing.T, function, event string) {
	t.Helper()
	name := d.config.Cloud.FunctionName(function)
	if _, err := lambda.NewFromConfig(d.cfg).Invoke(t.Context(),
		&lambda.InvokeInput{FunctionName: &name, InvocationType: lambdatypes.InvocationTypeEvent,
			Payload: []byte(event)}); err != nil {
		t.Fatal(err)
	}
}

// await waits until ok returns true. It calls reclaim more often than the schedule
// does.
func (d *deployed) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll, reclaim := time.NewTicker(200*time.Millisecond), time.NewTicker(5*time.Second)
	defer poll.Stop()
	defer reclaim.Stop()
	for start := time.Now(); ; {
		select {
		case <-poll.C:
			if ok() {
				t.Logf("%s, after %v", what, time.Since(start).Round(100*time.Millisecond))
				return
			}
		case <-reclaim.C:
			d.call(t, "reclaim", "{}")
		case <-ctx.Done():
			t.Fatalf("this did not happen in time: %s", what)
		}
	}
}

// onlyRun checks that the repeated events made one run and that no task failed.
func (d *deployed) onlyRun(t *testing.T, run identity.RunID) {
	t.Helper()
	var found []string
	for doc, err := range document.All(t.Context(), d.docs, "run/") {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, doc.Key)
	}
	if len(found) != 1 || found[0] != record.ManifestKey(run) {
		t.Errorf("the runs are %v, want one", found)
	}
	queues := aws.NewQueues(d.cfg, aws.QueueOptions{Prefix: d.config.Cloud.SQS.Prefix})
	for _, name := range []string{host.TaskQueue, host.CoordinateQueue, host.WorkQueue("small")} {
		if visible, hidden, err := queues.Depth(t.Context(), queue.DeadLetterQueue(name)); err != nil || visible+hidden > 0 {
			t.Errorf("%d dead letters of %s, %v", visible+hidden, name, err)
		}
	}
}
