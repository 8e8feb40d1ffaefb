package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// agentVariable makes the test program the agent of that name.
const agentVariable = "ROLLOUT_E2E_AGENT"

// agentsConfig has a prompt and two agents.
const agentsConfig = `schema_version = 1
kind = "trials"
[[variant]]
name = "plain"
[[variant]]
name = "good"
command = ["./agent"]
artifact = "agents/mine/"
env = { ROLLOUT_E2E_AGENT = "good" }
[variant.limits]
memory_mb = 512
[[variant]]
name = "hostile"
command = ["./agent"]
artifact = "agents/mine/"
env = { ROLLOUT_E2E_AGENT = "hostile" }
shows = ["attack"]
[variant.limits]
seconds = 20
memory_mb = 512
disk_mb = 160
output_mb = 1
[[grade]]
name = "exact"
kind = "exact"
expected = "target"
`

// attack is what the hostile agent does with a task, and what becomes of its trial.
type attack struct {
	class  fault.Class
	finish string // of an answered trial
	answer string
	do     func() error
}

// attacks are those of the hostile agent.
func attacks() map[string]attack {
	return map[string]attack{
		"forks":      {finish: "process_limit", do: func() error { return sh("f() { f | f & }; f; while :; do :; done") }},
		"disk":       {finish: "disk_limit", do: func() error { return sh("head -c 10000000000 /dev/zero > big; sleep 99") }},
		"output":     {finish: "output_limit", do: func() error { return sh("yes") }},
		"ignores":    {finish: "time_limit", do: ignore},
		"links":      {class: fault.ResultError, do: link},
		"bad result": {class: fault.ResultError, do: func() error { return leave("result.json", []int{1}) }},
		"bad grade": {class: fault.GradeError, do: func() error {
			return errors.Join(leave("result.json", map[string]string{"answer": sentinel}), leave("grade.json", "good"))
		}},
		"grades itself": {finish: "stop", answer: "wrong", do: func() error {
			return errors.Join(leave("result.json", map[string]string{"answer": "wrong"}),
				leave("grade.json", map[string]float64{"score": 1, "exact": 1}))
		}},
		"listens": {finish: "stop", answer: "listens", do: listenAll},
		"reads":   {finish: "stop", answer: "found nothing", do: search},
	}
}

// runAgent runs an agent on its task.
func runAgent(name string) int {
	text, err := os.ReadFile("task.json")
	var task struct {
		Attack   string
		Messages json.RawMessage
	}
	if err == nil {
		err = json.Unmarshal(text, &task)
	}
	switch {
	case err != nil:
	case name == "good":
		err = solve(task.Messages)
	default:
		err = attacks()[task.Attack].do()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func leave(name string, v any) error {
	b, err := json.Marshal(v)
	return errors.Join(err, os.WriteFile(filepath.Join(os.Getenv("ROLLOUT_OUT"), name), b, 0o644))
}

// solve asks the model, and leaves what it says.
func solve(messages json.RawMessage) error {
	body, err := json.Marshal(map[string]any{"messages": messages, "seed": 1, "model": "any"})
	if err != nil {
		return err
	}
	q, err := http.NewRequest(http.MethodPost, os.Getenv("OPENAI_BASE_URL")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var said struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || len(said.Choices) == 0 {
		return fmt.Errorf("status %d, %v", resp.StatusCode, err)
	}
	return leave("result.json", map[string]any{"answer": said.Choices[0].Message.Content, "steps": 1})
}

// sh runs a script.
func sh(script string) error {
	c := exec.Command("sh", "-c", script)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// ignore ignores SIGTERM, in a process of a session of its own as well.
func ignore() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
	c := exec.Command("sleep", "100000")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return err
	}
	for {
		time.Sleep(time.Hour)
	}
}

// link leaves links that lead out of its folder.
func link() error {
	out := os.Getenv("ROLLOUT_OUT")
	return errors.Join(os.Symlink("/etc/passwd", filepath.Join(out, "result.json")),
		os.Symlink("/", filepath.Join(out, "root")))
}

// listenAll listens, and tries to reach what is not its own.
func listenAll() error {
	for _, network := range []string{"tcp", "unix"} {
		address := map[string]string{"tcp": "0.0.0.0:8080", "unix": "@agent"}[network]
		l, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		defer l.Close()
	}
	return leave("result.json", map[string]string{"answer": "listens"})
}

// search looks for what the grader expects, in all files that it can read.
func search() error {
	found := "found nothing"
	err := filepath.WalkDir("/", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // it may not
		case strings.HasPrefix(path, "/usr") || strings.HasPrefix(path, "/lib") || path == "/work/agent":
			if e.IsDir() {
				return fs.SkipDir // of the machine; and the program has the text itself
			}
			return nil
		case !e.Type().IsRegular():
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer file.Close()
		if text, _ := io.ReadAll(io.LimitReader(file, 1<<16)); bytes.Contains(text, []byte(sentinel)) {
			found = "found it in " + path
		}
		return nil
	})
	return errors.Join(err, leave("result.json", map[string]string{"answer": found}))
}

// S4-19 to S4-21, S4-32: agents that are programs run beside prompts. Hostile ones harm neither
// their workers nor other trials, and every trial has a verdict, although a worker is killed.
func TestTrialsOfAgentsEndWithAVerdict(t *testing.T) {
	t.Parallel()
	j := newJudgeServer(t, 50*time.Millisecond)
	m := &processKiller{testInstallation: install(t, j.URL, 2, smallShards+"[trials]\nprocesses = true\n"),
		rng: rand.New(rand.NewPCG(1, 0)), killed: map[int]bool{}}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	write(t, m.bucket("agents/mine/agent"), read(t, self))
	write(t, filepath.Join(dir, "tasks.toml"), agentsConfig)
	var tasks strings.Builder
	known := attacks()
	for _, name := range slices.Sorted(maps.Keys(known)) { // the first is a bad grade
		fmt.Fprintf(&tasks, "{\"id\":%q,\"prompt\":\"case of %s\",\"attack\":%q,\"target\":%q}\n", name, name, name, sentinel)
	}
	file := write(t, filepath.Join(dir, "tasks.jsonl"), tasks.String())
	wantPreflight(t, m.testInstallation, file)
	asked := j.requests()
	id := m.submit(file)
	eventually(t, "agents run", func() bool { return j.requests() >= asked+5 || m.hasEnded(id) })
	m.killWorker(id)
	m.await(id, run.CompletedWithErrors)
	facts := lines(t, m.trialsFiles(id)[trials.TrialsFile])
	if len(facts) != 3*len(known) {
		t.Fatalf("%d trials have a verdict, want %d", len(facts), 3*len(known))
	}
	answers := map[string]string{}
	for _, row := range lines(t, read(t, m.bucket("runs/"+string(id)+"/"+record.CompletionsFile))) {
		var r struct{ ID, Completion string }
		if err := json.Unmarshal([]byte(row), &r); err != nil {
			t.Fatal(err)
		}
		answers[r.ID] = r.Completion
	}
	for _, line := range facts {
		var f trials.Fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		want := attack{finish: "stop", answer: answers[f.ID]}
		switch {
		case f.Variant == "hostile":
			want = known[f.Task]
		case f.Variant == "plain" && f.Class == fault.Refused:
			want = attack{class: fault.Refused}
		}
		if f.Class != want.class || f.Finish != want.finish || answers[f.ID] != want.answer ||
			f.Score == nil || *f.Score != 0 || (f.Agent == nil) != (f.Variant == "plain" || want.class != "") {
			t.Errorf("%s of %s: answer %q, %s", f.Variant, f.Task, answers[f.ID], line)
		}
		if f.Variant == "good" && answers[f.ID] == "" {
			t.Errorf("the good agent has no answer: %s", line)
		}
	}
	eventually(t, "both workers live", func() bool { return len(m.aliveWorkers()) == 2 })
	for _, w := range m.aliveWorkers() {
		t.Logf("worker %d isolates at the level %s", w.PID, w.Isolation)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.bodies {
		if strings.Contains(b, sentinel) {
			t.Fatalf("a request has what is expected: %s", b)
		}
	}
}

// wantPreflight tries the variants before the run: one trial of each, in which the hostile one fails.
// S4-22.
func wantPreflight(t *testing.T, i *testInstallation, file string) {
	t.Helper()
	p := do(t, 1, "submit", "--dir", i.dir, "--preflight", "--engine", i.engine, "--json", file)
	var report struct {
		Tasks     int
		Artifacts []record.Artifact
		Smoked    []struct{ Variant, Isolation, Answer, Problem string }
	}
	if err := json.Unmarshal([]byte(p.stdoutText()), &report); err != nil {
		t.Fatalf("%v: %s", err, p.stdoutText())
	}
	if report.Tasks != len(attacks()) || len(report.Artifacts) != 2 || len(report.Smoked) != 3 {
		t.Fatalf("%s", p.stdoutText())
	}
	for _, s := range report.Smoked {
		if s.Variant == "hostile" && s.Problem == "" || s.Variant == "good" && (s.Problem != "" || s.Answer == "") ||
			(s.Isolation == "") != (s.Variant == "plain") {
			t.Errorf("%+v", s)
		}
	}
	if runs := i.runs(); len(runs) > 0 {
		t.Errorf("the preflight has started %d runs", len(runs))
	}
}
