package emulators

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	"rollout/shared/rollout"
)

// emulatedAccount is the account of an emulator.
const emulatedAccount = "000000000000"

// TestDeployLocal deploys the stack into MiniStack with the CDK's command and runs
// a job through it: MiniStack runs the functions, and workers run beside it.
// Events are delivered twice and a worker is killed. The answers are those of
// `rollout up`, byte for byte. A rollout that learns follows, over workers of their own.
func TestDeployLocal(t *testing.T) {
	d := deploy(t)
	fake := d.fakellm(t, "100ms")
	nightly := job{key: "prompts/nightly.jsonl", toml: "schema_version = 1\n[shard]\nitems = 20\n", lines: prompts()}
	want := d.local(t, fake, nightly)

	first, _ := d.worker(t, fake), d.worker(t, fake)
	run := d.submit(t, nightly)
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
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		if want[name] == "" {
			t.Errorf("rollout up has no row in %s", name)
		}
	}
	d.sameFiles(t, run, want)
	d.onlyRuns(t, run)
	d.learns(t, run)
}

// learns runs examples/refunds through the stack, shortened to one epoch of 240 tickets and to
// two batches, and checks that its guidance, its reflections and its other files are those of
// `rollout up`.
func (d *deployed) learns(t *testing.T, earlier identity.RunID) {
	t.Helper()
	j := job{key: "prompts/refunds.jsonl", toml: example(t, "refunds.toml"), lines: example(t, "refunds.jsonl")}
	for _, short := range [][2]string{{"epochs = 3", "epochs = 1"},
		{"\nrollout_batch_size = 60", "\nrollout_batch_size = 70"},
		{"\nbatch_size = 16", "\nbatch_size = 32"}} {
		if strings.Count(j.toml, short[0]) != 1 {
			t.Fatalf("the example has no line %q", short[0])
		}
		j.toml = strings.Replace(j.toml, short[0], short[1], 1)
	}
	j.lines = strings.Join(strings.SplitAfter(j.lines, "\n")[:240], "")
	clerk := d.fakellm(t, "0s")
	start := time.Now()
	want := d.local(t, clerk, j)
	t.Logf("rollout up ran it in %v", time.Since(start).Round(100*time.Millisecond))
	d.worker(t, clerk)
	run := d.submit(t, j)
	d.await(t, "the rollout has ended", func() bool {
		_, err := d.blobs.Stat(t.Context(), record.OutputKey(run, record.SummaryFile), "")
		return err == nil
	})
	d.sameFiles(t, run, want)
	if n := strings.Count(want[rollout.ReflectionFile], `"result":"accepted"`); n == 0 {
		t.Errorf("no guidance was accepted: %s", want[rollout.ReflectionFile])
	}
	d.onlyRuns(t, earlier, run)
}

// job is an upload: a config and the lines beside it.
type job struct{ key, toml, lines string }

func (j job) tomlKey() string { return strings.TrimSuffix(j.key, "jsonl") + "toml" }

// example returns a file of the folder examples.
func example(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// submit uploads a job and delivers its events, some of them twice.
func (d *deployed) submit(t *testing.T, j job) identity.RunID {
	t.Helper()
	d.put(t, j.tomlKey(), j.toml)
	info := d.put(t, j.key, j.lines)
	run := identity.UploadRun(d.config.Bucket, j.key, info.Version)
	d.call(t, "submit", string(fakeaws.S3Event(d.config.Bucket, "ObjectCreated:Put",
		fakeaws.Object{Key: j.key, Version: info.Version, Size: info.Size})))
	for range 2 {
		d.call(t, "plan", string(d.event(t, events.RunSubmitted{Run: string(run)})))
	}
	return run
}

// sameFiles checks that the run has the files of a local one, times and who answered apart.
func (d *deployed) sameFiles(t *testing.T, run identity.RunID, want map[string]string) {
	t.Helper()
	found, err := d.blobs.List(t.Context(), record.OutputKey(run, ""), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range found {
		got[strings.TrimPrefix(o.Key, record.OutputKey(run, ""))] = generatedAt.ReplaceAllString(d.get(t, o.Key), "")
	}
	for name, text := range want {
		if name == rollout.AttemptsFile {
			continue
		}
		other, ok := got[name]
		if ok && name == record.SummaryFile {
			text, other = summaryOf(t, text), summaryOf(t, other)
			if text != other {
				t.Errorf("%s is\n%s\nwant\n%s", name, other, text)
			}
			continue
		}
		if !ok || other != text {
			t.Errorf("%s has %d bytes, want the %d of rollout up", name, len(other), len(text))
		}
		t.Logf("%s: %d bytes, as of rollout up", name, len(text))
	}
	if len(got) != len(want) {
		t.Errorf("the run has %d files, want the %d of rollout up: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
}

// summaryOf returns what a summary says of the input and its answers: without the run's id,
// names that the place decides, times, workers, costs, and tokens that attempts wasted.
func summaryOf(t *testing.T, text string) string {
	t.Helper()
	var s record.Summary
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	s.Run, s.Outputs, s.Errors, s.Workers = "", "", "", nil
	s.CreatedAt, s.StartedAt, s.EndedAt, s.Seconds = time.Time{}, time.Time{}, time.Time{}, 0
	s.WastedTokens, s.WastedEstimated = 0, 0
	s.CostUSD, s.Cost = 0, record.Cost{}
	for n := range s.Roles {
		r := &s.Roles[n]
		r.Pool, r.WastedTokens, r.WastedEstimated = "", 0, 0
	}
	return string(record.Encode(s))
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

// fakellm starts a fake inference server with that latency and returns its address. It
// answers the tickets of examples/refunds as a clerk.
func (d *deployed) fakellm(t *testing.T, latency string) string {
	t.Helper()
	port := freePort(t)
	cmd := exec.Command(filepath.Join(d.programs, "fakellm"), "--listen", "127.0.0.1:"+port, "--latency", latency,
		"--clerk")
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

// local runs the same job with `rollout up` and returns its files by name, without times.
func (d *deployed) local(t *testing.T, engine string, j job) map[string]string {
	t.Helper()
	dir := t.TempDir()
	bucket := filepath.Join(dir, "bucket")
	if err := os.MkdirAll(filepath.Join(bucket, record.PromptsPrefix), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range [][2]string{{j.tomlKey(), j.toml}, {j.key, j.lines}} {
		if err := os.WriteFile(filepath.Join(bucket, f[0]), []byte(f[1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := CommandLine{filepath.Join(d.programs, "rollout")}.Run(t.Context(), t, nil, "up", "--dir", dir, "--engine",
		engine, "--listen", "off", "--once")
	runs, err := filepath.Glob(filepath.Join(bucket, record.RunsPrefix, "*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("rollout up has the runs %v, %v: %s", runs, err, out.Stderr)
	}
	files := map[string]string{}
	err = filepath.WalkDir(runs[0], func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name := filepath.ToSlash(strings.TrimPrefix(path, runs[0]+string(filepath.Separator)))
		files[name] = generatedAt.ReplaceAllString(string(content), "")
		return err
	})
	if err != nil {
		t.Fatal(err)
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

// onlyRuns checks that the repeated events made only these runs and that no task failed.
func (d *deployed) onlyRuns(t *testing.T, runs ...identity.RunID) {
	t.Helper()
	var found, want []string
	for doc, err := range document.All(t.Context(), d.docs, "run/") {
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
	queues := aws.NewQueues(d.cfg, aws.QueueOptions{Prefix: d.config.Cloud.SQS.Prefix})
	for _, name := range []string{host.TaskQueue, host.CoordinateQueue, host.WorkQueue("small")} {
		if visible, hidden, err := queues.Depth(t.Context(), queue.DeadLetterQueue(name)); err != nil || visible+hidden > 0 {
			t.Errorf("%d dead letters of %s, %v", visible+hidden, name, err)
		}
	}
}
