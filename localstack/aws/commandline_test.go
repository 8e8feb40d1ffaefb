package emulators

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/functions/inprocess"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/subprocess"
	"rollout/shared/aws"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// fixture is a user's folder with the config of a deployment, the program rollout,
// and the deployment's functions and worker, which run in this process over an
// emulator. The worker does not fence itself on a busy machine.
type fixture struct {
	t       *testing.T
	rollout CommandLine
	dir     string
	env     []string
	blobs   *aws.Bucket
	muted   *atomic.Bool // uploads are not announced
}

// newFixture starts a deployment whose engine takes a time for each answer.
func newFixture(t *testing.T, answer time.Duration) fixture {
	t.Helper()
	e := StartKumo(t)
	e.MakeBucket(t.Context(), t)
	e.MakeTable(t.Context(), t)
	text := e.Deployment("t"+fresh(), prefix) +
		"[health]\nheartbeat_interval = \"500ms\"\nself_fence_timeout = \"4m\"\nfailure_timeout = \"5m\"\n" +
		"skew_budget = \"250ms\"\n"
	d, err := config.ParseDeployment("rollout.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg := e.Config(t.Context(), t)
	blobs := aws.NewBucket(cfg, e.Bucket, aws.BucketOptions{Prefix: prefix})
	s := stores{blobs, aws.NewDocuments(cfg, e.Table, aws.DocumentOptions{Listed: aws.ListedPrefixes()}),
		e.Queues(t, d.Cloud.SQS.Prefix)}
	for _, q := range []string{host.WorkQueue("default"), host.UrgentQueue("default")} { // a stack creates them
		if _, _, err := e.Queues(t, d.Cloud.SQS.Prefix).Depth(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	uploads := make(chan blob.Upload)
	muted := &atomic.Bool{}
	all.Go(func() { notify(ctx, blobs, uploads, muted) })
	system := inprocess.New(s.ports("functions"), inprocess.Config{Deployment: d, Uploads: uploads})
	all.Go(func() { _ = system.Run(ctx) }) // it ends with the test
	p := s.ports("worker")
	w := worker.New(p, worker.Config{ID: "worker", Pool: "default", Timings: host.Timings(d.Health), InFlight: 8,
		CheckpointInterval: time.Minute, Drain: 5 * time.Second, Grace: time.Second},
		input.NewIndex(p.Blobs, p.Docs), infer.New(infer.Config{Engine: mock.New(mock.Config{Delay: answer}),
			Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), ProgressTimeout: time.Minute, MaxOutage: time.Minute}))
	all.Go(func() { _ = w.Run(ctx) }) // likewise
	k := fixture{t: t, rollout: BuildRollout(t), dir: t.TempDir(), env: e.Environment(text, e.URL),
		blobs: blobs, muted: muted}
	k.file("rollout.toml", text)
	return k
}

// notify announces new objects under prompts/, as the bucket's events do.
func notify(ctx context.Context, blobs blob.Store, to chan<- blob.Upload, muted *atomic.Bool) {
	announced := map[blob.Info]bool{}
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		found, _ := blobs.List(ctx, record.PromptsPrefix, "", 100) // if it fails, the next one may not
		for _, info := range found {
			info.ModTime = time.Time{}
			if announced[info] || muted.Load() {
				continue
			}
			announced[info] = true
			select {
			case to <- blob.Upload{Info: info}:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// file writes a file into the folder and returns its path.
func (k fixture) file(name, text string) string {
	k.t.Helper()
	path := filepath.Join(k.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
	return path
}

// run runs a command on the deployment and checks its exit code.
func (k fixture) run(code int, args ...string) CommandResult {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	s := k.rollout.Run(ctx, k.t, k.env, append(args, "--cloud", "aws", "--dir", k.dir)...)
	if s.ExitCode != code {
		k.t.Fatalf("%s: exit code %d, want %d\n%s%s", strings.Join(args, " "), s.ExitCode, code, s.Stdout, s.Stderr)
	}
	return s
}

// object returns an object's content.
func (k fixture) object(key string) string {
	k.t.Helper()
	r, _, err := k.blobs.Get(k.t.Context(), key, blob.GetOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer r.Close() // read only: nothing can be lost
	b, err := io.ReadAll(r)
	if err != nil {
		k.t.Fatal(err)
	}
	return string(b)
}

// The file name needs to be encoded wherever it is used.
func TestCommandLineWorksWithADeployment(t *testing.T) {
	t.Parallel()
	k := newFixture(t, time.Millisecond)
	const name = "my nightly+file & 日本 100%"
	k.file(name+".toml", "schema_version = 1\n[shard]\nitems = 100\n")
	file := k.file(name+".jsonl", prompts())

	id := strings.TrimSpace(k.run(0, "submit", file).Stdout)
	if got := k.object("prompts/" + name + ".jsonl"); got != prompts() {
		t.Errorf("the bucket has %d bytes of %d", len(got), len(prompts()))
	}
	// Some of its lines are invalid, so the exit code is 1.
	watched := k.run(1, "status", id, "--watch", "--json")
	lines := strings.Split(strings.TrimSpace(watched.Stdout), "\n")
	var last struct {
		Run   string `json:"run_id"`
		Name  string
		Phase string
		Items struct{ Total, Done, Failed int }
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if last.Run != id || last.Name != name || last.Phase != "completed_with_errors" || last.Items.Total != 600 ||
		last.Items.Failed != 24 {
		t.Errorf("the last status is %+v", last)
	}
	if got := k.run(1, "results", name); got.Stdout != k.object("runs/"+id+"/completions.jsonl") ||
		strings.Count(got.Stdout, "\n") != 576 || !strings.Contains(got.Stderr, "24 of 600 items failed") {
		t.Errorf("results: %d lines, %s", strings.Count(got.Stdout, "\n"), got.Stderr)
	}
	folder := filepath.Join(k.dir, "out")
	k.run(1, "results", id[:20], "--output", folder+"/")
	if got, err := os.ReadFile(filepath.Join(folder, "errors.jsonl")); err != nil ||
		string(got) != k.object("runs/"+id+"/errors.jsonl") {
		t.Errorf("errors.jsonl: %d bytes, %v", len(got), err)
	}
	item := k.run(0, "explain", name, name+".jsonl:8")
	if !strings.Contains(item.Stdout, "failed (invalid_line)") {
		t.Errorf("explain: %s", item.Stdout)
	}
	if table := k.run(0, "status"); !strings.Contains(table.Stdout, "completed with errors") || table.Stderr != "" {
		t.Errorf("status: %+v", table)
	}
	bundle := filepath.Join(k.dir, "b.tar.gz")
	k.run(0, "bundle", id, "-o", bundle)
	if info, err := os.Stat(bundle); err != nil || info.Size() == 0 {
		t.Errorf("bundle: %v", err)
	}
	waited := k.run(0, "submit", k.file("x.jsonl", "{\"prompt\":\"hi\"}\n"), "--wait")
	want := fmt.Sprintf("completions s3://%sruns/%s/completions.jsonl", k.place(), strings.TrimSpace(waited.Stdout))
	if !strings.Contains(waited.Stderr, want) || !strings.Contains(waited.Stderr, "1 of 1 item answered") {
		t.Errorf("stderr has no %q:\n%s", want, waited.Stderr)
	}
	k.run(1, "results", "typo")
	k.run(2, "submit", k.file("x.csv", "a,b\n"))
	k.run(2, "submit", file, "--config", k.file("bad.toml", "schema_version = 1\ntypo = 1\n"))
}

// place is the bucket with the deployment's prefix.
func (k fixture) place() string {
	d := k.deployment()
	return d.Bucket + "/" + d.Cloud.S3.Prefix
}

func (k fixture) deployment() config.Deployment {
	k.t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte(k.env[len(k.env)-1][len("ROLLOUT_CONFIG="):]))
	if err != nil {
		k.t.Fatal(err)
	}
	return d
}

// The event of an upload may be late. Until then `status` reports that the run
// does not exist, and `status --watch` waits for it.
func TestStatusWatchWaitsForTheRun(t *testing.T) {
	t.Parallel()
	k := newFixture(t, time.Millisecond)
	k.muted.Store(true)
	id := strings.TrimSpace(k.run(0, "submit", k.file("x.jsonl", "{\"prompt\":\"hi\"}\n")).Stdout)
	if got := k.run(1, "status", id); !strings.Contains(got.Stderr, "there is no run") {
		t.Errorf("%+v", got)
	}
	time.AfterFunc(2*time.Second, func() { k.muted.Store(false) }) // the watch has started by then
	if got := k.run(0, "status", id, "--watch", "--json"); !strings.Contains(got.Stdout, `"phase":"completed"`) {
		t.Errorf("%+v", got)
	}
}

func TestRunIsPausedResumedAndStopped(t *testing.T) {
	t.Parallel()
	k := newFixture(t, 250*time.Millisecond) // about 20 s of work
	k.file("x.toml", "schema_version = 1\n[shard]\nitems = 20\n")
	file := k.file("x.jsonl", prompts())
	id := strings.TrimSpace(k.run(0, "submit", file).Stdout)
	k.awaitPhase(id, "running")
	if got := k.run(0, "pause", "x", "--reason", "lunch"); got.Stdout != fmt.Sprintf("pausing run %s (x)\n", id) ||
		got.Stderr != "" {
		t.Errorf("%+v", got)
	}
	k.awaitPhase(id, "paused")
	if got := k.run(1, "results", "x"); !strings.Contains(got.Stderr, "has not ended: it is paused") ||
		!strings.Contains(got.Stderr, "--watch --cloud aws --dir "+k.dir) {
		t.Errorf("%+v", got)
	}
	if got := k.run(1, "submit", file); !strings.Contains(got.Stderr, "still reads prompts/x.jsonl") {
		t.Errorf("%+v", got)
	}
	k.run(0, "resume", "x")
	k.awaitPhase(id, "running")
	k.run(0, "stop", "x")
	k.awaitPhase(id, "stopped")
	got := k.run(1, "results", "x")
	if n := strings.Count(got.Stdout, "\n"); n == 0 || n >= 576 || !strings.Contains(got.Stderr, "ended as stopped") {
		t.Errorf("results has %d answers, want some of 576: %s", n, got.Stderr)
	}
}

// awaitPhase waits until `status --watch` reports the phase.
func (k fixture) awaitPhase(id, phase string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.rollout.binary, "status", id, "--watch", "--json", "--cloud", "aws", "--dir", k.dir)
	cmd.Env = k.env
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = subprocess.Start(cmd)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was killed, or has ended with the run
	}()
	seen := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var s struct {
			Run   string `json:"run_id"`
			Phase string
		}
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Run == id {
			seen = s.Phase
		}
		if seen == phase {
			return
		}
	}
	k.t.Fatalf("run %s did not reach the phase %s, its last one is %s", id, phase, seen)
}
