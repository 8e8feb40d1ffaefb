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
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// Canaries: texts that no bundle may contain.
const (
	secretPrompt = "CANARY-PROMPT"
	secretAnswer = "CANARY-ANSWER"
	secretKey    = "CANARY-KEY"
	secretID     = "CANARY-ID"
	secretOther  = "CANARY-OTHER" // a key that stands in a config
)

// unpack returns the files of a bundle by name, and their names in order.
func unpack(t *testing.T, b []byte) (names []string, files map[string]string) {
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

// newCanaryFixture returns an installation with a run that contains the canaries in every place where they can occur.
func newCanaryFixture(t *testing.T) fixture {
	t.Helper()
	dir := t.TempDir()
	toml := "schema_version = 1\nsecrets = [\"engine-key\"]\n" +
		"[engine]\nurl = \"http://127.0.0.1:1/v1\"\nsecret = \"engine-key\"\n" +
		"system = \"" + secretPrompt + "\"\n" +
		"headers = { api-key = \"secret:engine-key\", x-own = \"" + secretOther + "\" }\n" +
		"[defaults.request.query]\nkey = \"" + secretOther + "\"\n" +
		"[[defaults.grade]]\nname = \"style\"\nkind = \"judge\"\nrange = [0, 1]\n" +
		"system = \"" + secretPrompt + "\"\nprompt = \"" + secretPrompt + " {answer} {rubric}\"\n" +
		"rubric = \"" + secretPrompt + "\"\nrequest.headers = { x-own = \"" + secretOther + "\" }\n"
	if err := os.WriteFile(filepath.Join(dir, "rollout.toml"), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newFixtureIn(t, dir)
	f.addRun(runA, "nightly", time.Minute, run.CompletedWithErrors)
	m := hosttest.Load[record.Manifest](t, f.Ports, record.ManifestKey(runA))
	m.Config.Request = &config.Request{System: secretPrompt, Headers: map[string]string{"x-own": secretOther},
		Query: map[string]string{"key": secretOther},
		Extra: map[string]any{"top_k": 7, "instructions": secretPrompt, "user": map[string]any{"key": secretOther}}}
	m.Original = &record.Original{Request: m.Config.Request}
	m.Parent = &record.Parent{Run: runC, Selection: record.Selection{Only: []string{"failed"}},
		Set: []string{"request.headers.x-own=" + secretOther}}
	m.Config.Grades = []config.Grade{{Name: "style", Kind: config.GradeJudge, System: secretPrompt, Prompt: secretPrompt,
		Rubric: secretPrompt, Request: m.Config.Request}}
	m.Roles = []record.Role{{Name: "judge-style", Request: m.Config.Request}}
	f.save(record.ManifestKey(runA), m)
	f.put("prompts/nightly.jsonl", `{"id":"`+secretID+`","prompt":"`+secretPrompt+`"}`+"\n")
	f.put("runs/"+string(runA)+"/completions.jsonl",
		`{"id":"`+secretID+`","prompt":"`+secretPrompt+`","completion":"`+secretAnswer+`"}`+"\n")
	f.put("runs/"+string(runA)+"/errors.jsonl",
		`{"id":"`+secretID+`","item":7,`+
			`"file":"prompts/nightly.jsonl","line":8,"class":"refused","error":"no: `+secretPrompt+`"}`+"\n")
	f.put("work/"+string(runA)+"/0/1-x", secretAnswer)
	d, err := shard.New(runA, 1).Claim("w", noon, shard.HolderAlive)
	if err != nil {
		t.Fatal(err)
	}
	f.save(identity.ShardKey(runA, 1), d)
	f.save(record.HeartbeatKey("w"), health.Heartbeat{Schema: 1, Worker: "w", Pool: "default", State: health.Ready,
		At: noon, DueAt: noon,
		Load: health.Load{UnavailableReason: "Post http://127.0.0.1:1/v1 with " + secretKey}})
	if err := f.Ports.Send(t.Context(), queue.DeadLetterQueue(host.CoordinateQueue),
		events.InputMissing{Run: string(runA), Shard: 1, Reason: secretPrompt}); err != nil {
		t.Fatal(err)
	}
	if err := f.Ports.Queues.Send(t.Context(), queue.DeadLetterQueue(host.TaskQueue), [][]byte{[]byte(secretPrompt)},
		0); err != nil {
		t.Fatal(err)
	}
	return f
}

// runBundle runs `rollout bundle` with a key in the environment and the real clock, which the queues use as well.
func runBundle(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	getenv := func(name string) string {
		if name == "ROLLOUT_SECRET_ENGINE_KEY" {
			return secretKey
		}
		return ""
	}
	code := command.Main(t.Context(), append([]string{"bundle", "nightly"}, args...),
		command.Env{Out: &out, Err: &errs, Clock: clock.Fixed(time.Now()), Getenv: getenv})
	return result{code, out.String(), errs.String()}
}

func TestBundleContainsNoPromptsCompletionsIDsOrSecrets(t *testing.T) {
	t.Parallel()
	f := newCanaryFixture(t)
	log := f.file("up.log", "level=WARN msg=\"asked with "+secretKey+"\" run=x\n"+
		"level=DEBUG msg=sample_failed id="+secretID+" item=7\n"+
		"level=DEBUG msg=sample_failed id=\""+secretID+" 2\" item=8\n")
	stream := f.file("events.jsonl", `{"event":"sample_failed","run":"x","item":7,"id":"`+secretID+`","class":"refused"}
{"event":"sample_failed","item":8,"id": "`+secretID+`"}
{"event":"shard_done","shard":3}
`)
	r := runBundle(t, "-o", "-", "--log", log, "--log", stream, "--dir", f.dir)
	if r.code != 0 || r.err != "" {
		t.Fatalf("exit code %d, %s", r.code, r.err)
	}
	names, files := unpack(t, []byte(r.out))
	for name, content := range files {
		for _, canary := range []string{secretPrompt, secretAnswer, secretKey, secretID, secretOther} {
			if strings.Contains(content, canary) {
				t.Errorf("%s holds %s:\n%s", name, canary, content)
			}
		}
	}
	want := []string{"version.json", "machine.json", "deployment.json", "status.json", "explain.json", "manifest.json",
		"coordinator.json",
		"shards.jsonl", "failures.jsonl", "workers.jsonl", "dead_letters.jsonl", "logs/up.log", "logs/events.jsonl",
		"README.txt"}
	if !slices.Equal(names, want) {
		t.Errorf("it holds %q, want %q", names, want)
	}
	for name, holds := range map[string]string{
		"failures.jsonl":     `{"item":7,"id":"blake3:`,
		"shards.jsonl":       `"shard":1,"state":"running"`,
		"dead_letters.jsonl": `"type":"rollout.input.missing.v1","source":"rollout/test"`,
		"deployment.json":    `"URL": "http://127.0.0.1:1/v1"`,
		"manifest.json":      `"top_k": 7`,
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

func TestBundleWithIDs(t *testing.T) {
	t.Parallel()
	f := newCanaryFixture(t)
	r := runBundle(t, "-o", "-", "--with-ids", "--dir", f.dir)
	_, files := unpack(t, []byte(r.out))
	if !strings.Contains(files["failures.jsonl"], `"id":"`+secretID+`"`) ||
		strings.Contains(files["failures.jsonl"], secretPrompt) {
		t.Error(files["failures.jsonl"])
	}
}

func TestBundleNeverOverwritesAFile(t *testing.T) {
	t.Parallel()
	f := newCanaryFixture(t)
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	r := runBundle(t, "-o", path, "--log", filepath.Join(f.dir, "absent.log"), "--dir", f.dir)
	if r.code != 0 || r.out != path+"\n" || !strings.Contains(r.err, "shards.jsonl         documents of open shards") ||
		!strings.Contains(r.err, "problems.txt") {
		t.Errorf("%+v", r)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, files := unpack(t, content); !strings.Contains(files["problems.txt"], "logs/absent.log: read the log: ") {
		t.Errorf("problems: %s", files["problems.txt"])
	}
	if r := runBundle(t, "-o", path, "--dir", f.dir); r.code != 2 ||
		!strings.Contains(r.err, "already exists (name another file with -o, or remove it)") {
		t.Errorf("onto itself: %+v", r)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, content) {
		t.Errorf("the first one was changed (%v)", err)
	}
	check(t, f.rollout("bundle", "weekly", "-o", path+"2"), 1, "", `there is no run "weekly"`)
	if _, err := os.Stat(path + "2"); !os.IsNotExist(err) {
		t.Errorf("half a bundle is left: %v", err)
	}
}
