package command_test

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"rollout/events"
	"rollout/scripts/rollout/command"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// What must stand in no bundle.
const (
	secretPrompt = "CANARY-PROMPT"
	secretAnswer = "CANARY-ANSWER"
	secretKey    = "CANARY-KEY"
	secretID     = "CANARY-ID"
)

// unpacked are a bundle's files, by name, in their order.
func unpacked(t *testing.T, b []byte) (names []string, files map[string]string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names, files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, "rollout-"+string(runA)+"/")
		names, files[name] = append(names, name), string(content)
	}
}

// troubled is an installation with a run in which everything that must not be
// shown stands wherever it can.
func troubled(t *testing.T) bench {
	t.Helper()
	dir := t.TempDir()
	config := "schema_version = 1\nsecrets = [\"engine-key\"]\n[engine]\nurl = \"http://127.0.0.1:1/v1\"\nsecret = \"engine-key\"\n"
	if err := os.WriteFile(filepath.Join(dir, "rollout.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	b := newBenchIn(t, dir)
	b.has(runA, "nightly", time.Minute, run.CompletedWithErrors)
	b.put("prompts/nightly.jsonl", `{"id":"`+secretID+`","prompt":"`+secretPrompt+`"}`+"\n")
	b.put("runs/"+string(runA)+"/completions.jsonl", `{"id":"`+secretID+`","prompt":"`+secretPrompt+`","completion":"`+secretAnswer+`"}`+"\n")
	b.put("runs/"+string(runA)+"/errors.jsonl", `{"id":"`+secretID+`","item":7,"file":"prompts/nightly.jsonl","line":8,"class":"refused","error":"no: `+secretPrompt+`"}`+"\n")
	b.put("work/"+string(runA)+"/0/1-x", secretAnswer)
	d, err := shard.New(runA, 1).Claim("w", noon, shard.HolderAlive)
	if err != nil {
		t.Fatal(err)
	}
	b.save(identity.ShardKey(runA, 1), d)
	b.save(record.HeartbeatKey("w"), health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready, At: noon, DueAt: noon,
		Load: health.Load{UnavailableReason: "Post http://127.0.0.1:1/v1 with " + secretKey}})
	if err := b.Ports.Send(t.Context(), queue.DeadLetterQueue(host.CoordinateQueue), events.InputMissing{Run: string(runA), Shard: 1, Reason: secretPrompt}); err != nil {
		t.Fatal(err)
	}
	if err := b.Ports.Queues.Send(t.Context(), queue.DeadLetterQueue(host.TaskQueue), [][]byte{[]byte(secretPrompt)}, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// bundled runs the command with a key in the environment and a clock that
// goes with the queues'.
func bundled(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := command.Main(t.Context(), append([]string{"bundle", "nightly"}, args...), command.Env{Out: &out, Err: &errs, Clock: fixedClock(time.Now()), Getenv: func(name string) string {
		if name == "ROLLOUT_SECRET_ENGINE_KEY" {
			return secretKey
		}
		return ""
	}})
	return result{code, out.String(), errs.String()}
}

func TestABundleHoldsNoPromptAnswerIDOrSecret(t *testing.T) {
	t.Parallel()
	b := troubled(t)
	log := b.file("up.log", "level=WARN msg=\"asked with "+secretKey+"\" run=x\nlevel=DEBUG msg=sample_failed id="+secretID+" item=7\nlevel=DEBUG msg=sample_failed id=\""+secretID+" 2\" item=8\n")
	stream := b.file("events.jsonl", `{"event":"sample_failed","run":"x","item":7,"id":"`+secretID+`","class":"refused"}
{"event":"sample_failed","item":8,"id": "`+secretID+`"}
{"event":"shard_done","shard":3}
`)
	r := bundled(t, "-o", "-", "--log", log, "--log", stream, "--dir", b.dir)
	if r.code != 0 || r.err != "" {
		t.Fatalf("exit code %d, %s", r.code, r.err)
	}
	names, files := unpacked(t, []byte(r.out))
	for name, content := range files {
		for _, canary := range []string{secretPrompt, secretAnswer, secretKey, secretID} {
			if strings.Contains(content, canary) {
				t.Errorf("%s holds %s:\n%s", name, canary, content)
			}
		}
	}
	want := []string{"version.json", "machine.json", "deployment.json", "status.json", "explain.json", "manifest.json", "coordinator.json",
		"shards.jsonl", "failures.jsonl", "workers.jsonl", "dead_letters.jsonl", "logs/up.log", "logs/events.jsonl", "README.txt"}
	if !slices.Equal(names, want) {
		t.Errorf("it holds %q, want %q", names, want)
	}
	for name, holds := range map[string]string{
		"failures.jsonl":     `{"item":7,"id":"blake3:`,
		"shards.jsonl":       `"shard":1,"state":"running"`,
		"dead_letters.jsonl": `"type":"rollout.input.missing.v1","source":"rollout/test"`,
		"deployment.json":    `"URL": "http://127.0.0.1:1/v1"`,
		"workers.jsonl":      `with ***`,
		"logs/up.log":        "asked with ***",
		"logs/events.jsonl":  `"item":7,"id":"blake3:`,
		"coordinator.json":   `"phase": "completed_with_errors"`,
		"explain.json":       `"story": [`,
		"README.txt":         "failures.jsonl           failed items: place and class",
	} {
		if !strings.Contains(files[name], holds) {
			t.Errorf("%s lacks %q:\n%s", name, holds, files[name])
		}
	}
	if strings.Count(files["dead_letters.jsonl"], "\n") != 2 {
		t.Errorf("dead letters:\n%s", files["dead_letters.jsonl"])
	}
}

func TestABundleShowsIDsIfAsked(t *testing.T) {
	t.Parallel()
	b := troubled(t)
	r := bundled(t, "-o", "-", "--with-ids", "--dir", b.dir)
	_, files := unpacked(t, []byte(r.out))
	if !strings.Contains(files["failures.jsonl"], `"id":"`+secretID+`"`) || strings.Contains(files["failures.jsonl"], secretPrompt) {
		t.Error(files["failures.jsonl"])
	}
}

func TestABundleIsWrittenToANewFile(t *testing.T) {
	t.Parallel()
	b := troubled(t)
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	r := bundled(t, "-o", path, "--log", filepath.Join(b.dir, "absent.log"), "--dir", b.dir)
	if r.code != 0 || r.out != path+"\n" || !strings.Contains(r.err, "shards.jsonl         documents of open shards") || !strings.Contains(r.err, "problems.txt") {
		t.Errorf("%+v", r)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, files := unpacked(t, content); !strings.Contains(files["problems.txt"], "logs/absent.log: read the log: ") {
		t.Errorf("problems: %s", files["problems.txt"])
	}
	if r := bundled(t, "-o", path, "--dir", b.dir); r.code != 2 || !strings.Contains(r.err, "already exists (name another file with -o, or remove it)") {
		t.Errorf("onto itself: %+v", r)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, content) {
		t.Errorf("the first one was changed (%v)", err)
	}
	check(t, rollout(t.Context(), "bundle", "weekly", "-o", path+"2", "--dir", b.dir), 1, "", `there is no run "weekly"`)
	if _, err := os.Stat(path + "2"); !os.IsNotExist(err) {
		t.Errorf("half a bundle is left: %v", err)
	}
}
