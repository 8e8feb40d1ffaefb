package trial_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/trial"
	"rollout/gpuworker/isolation"
	"rollout/shared/core/cost"
	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// agentVariable makes the test program an agent of that name.
const agentVariable = "ROLLOUT_TEST_AGENT"

func TestMain(m *testing.M) {
	if isolation.Main(os.Args) {
		return
	}
	if name := os.Getenv(agentVariable); name != "" {
		if err := agents[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

// folder has the sandboxes and the artifact: this test program, named agent.
var folder string

func runTests(m *testing.M) int {
	var err error
	if folder, err = os.MkdirTemp("", "trial"); err == nil {
		err = errors.Join(os.Chmod(folder, 0o755), copyAgent(filepath.Join(folder, "artifact")))
	}
	defer os.RemoveAll(folder)
	if err != nil {
		panic(err)
	}
	return m.Run()
}

func copyAgent(artifact string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return errors.Join(os.Mkdir(artifact, 0o755), os.WriteFile(filepath.Join(artifact, "agent"), text, 0o755))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// agents are the programs of the tests.
var agents = map[string]func() error{
	// solve asks the model about its task, and leaves what it says.
	"solve": func() error {
		answer, err := ask()
		if err != nil {
			return err
		}
		return leave("result.json", map[string]any{"answer": answer, "steps": 1})
	},
	"grade": func() error {
		return errors.Join(leave("result.json", map[string]any{"answer": "4"}),
			leave("grade.json", map[string]any{"score": 0.5}))
	},
	"bad grade": func() error {
		return errors.Join(leave("result.json", map[string]any{}), leave("grade.json", map[string]any{"score": "good"}))
	},
	"nothing":    func() error { return errors.New("no idea") },
	"bad result": func() error { return leave("result.json", []int{1}) },
	"bad answer": func() error { return leave("result.json", map[string]any{"answer": 4}) },
	// chat asks for ever, whatever it is told.
	"chat": func() error {
		for {
			_, _ = ask()
		}
	},
	// big leaves a result of half a MiB.
	"big": func() error {
		return leave("result.json", map[string]any{"answer": "4", "thoughts": strings.Repeat("x", 512<<10)})
	},
	// big chat leaves it, and then asks for ever.
	"big chat": func() error {
		err := leave("result.json", map[string]any{"answer": "4", "thoughts": strings.Repeat("x", 512<<10)})
		for err == nil {
			_, _ = ask()
		}
		return err
	},
	// search asks for a tool that the server runs, and then as solve does.
	"search": func() error {
		if _, err := post(map[string]any{"tools": []any{map[string]any{"type": "web_search"}}}); err == nil {
			return errors.New("the server has searched")
		}
		return leave("result.json", map[string]any{"answer": "4"})
	},
	"sleep": func() error { select {} },
	// give up asks twice, and leaves nothing.
	"give up": func() error {
		_, first := ask()
		_, second := ask()
		return errors.Join(first, second, errors.New("no idea"))
	},
	// wait asks, and waits for ever.
	"wait": func() error {
		_, _ = ask()
		time.Sleep(time.Hour)
		return nil
	},
	"link": func() error {
		return os.Symlink("/work/task.json", filepath.Join(os.Getenv("ROLLOUT_OUT"), "result.json"))
	},
}

func leave(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(os.Getenv("ROLLOUT_OUT"), name), text, 0o644)
}

// ask posts the task to the model, and returns what it says.
func ask() (string, error) {
	task, err := os.ReadFile("task.json")
	if err != nil {
		return "", err
	}
	var question struct{ Question string }
	if err := json.Unmarshal(task, &question); err != nil {
		return "", err
	}
	said, err := post(map[string]any{"messages": []any{map[string]any{"role": "user", "content": question.Question}}})
	return said + " for " + os.Getenv("ROLLOUT_TRIAL_ID"), err
}

// post posts a chat, and returns what the model says.
func post(chat map[string]any) (string, error) {
	body, err := json.Marshal(chat)
	if err != nil {
		return "", err
	}
	q, err := http.NewRequest(http.MethodPost, os.Getenv("OPENAI_BASE_URL")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	q.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	var said struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
		return "", err
	}
	if len(said.Choices) == 0 {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	return said.Choices[0].Message.Content, nil
}

// model answers each request with the question in it.
type model struct {
	down   bool
	status func(call int) int // of an answer; nil is 200
	mu     sync.Mutex
	calls  int
}

func (m *model) Pass(_ context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	m.mu.Lock()
	m.calls++
	status := http.StatusOK
	if m.status != nil {
		status = m.status(m.calls)
	}
	m.mu.Unlock()
	if m.down {
		return engine.RawAnswer{}, fault.New(fault.Unavailable, "connection refused")
	}
	var asked struct {
		Model    string
		Messages []struct{ Content string }
	}
	if err := json.Unmarshal(r.Body, &asked); err != nil {
		return engine.RawAnswer{}, err
	}
	text := fmt.Sprintf(`{"choices":[{"message":{"content":%q}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`,
		asked.Messages[0].Content+" by "+asked.Model)
	return engine.RawAnswer{Status: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(text))}, nil
}

var sandbox = sync.OnceValues(func() (*isolation.Sandbox, error) {
	return isolation.Open(filepath.Join(folder, "sandboxes"))
})

func newRunner(t *testing.T, m *model) trial.Runner {
	t.Helper()
	s, err := sandbox()
	if err != nil {
		t.Fatal(err)
	}
	if level, reason := s.Probe(t.Context()); level == isolation.Refused {
		t.Skip(reason)
	}
	return trial.Runner{Sandbox: s, Servers: m, Prices: cost.TokenPrices{Prompt: 1, Completion: 1},
		Bodies: onlinewire.NewBodies()}
}

// agent returns the agent of that name, with limits that a busy machine does not reach.
func agent(name string) trial.Agent {
	return trial.Agent{Args: []string{"./agent"}, Env: map[string]string{agentVariable: name}, Trusted: true,
		Artifact: filepath.Join(folder, "artifact"),
		Limits: isolation.Limits{Wall: 5 * time.Minute, CPU: 5 * time.Minute, Memory: 512 << 20, Processes: 100,
			Output: 1 << 20, Keep: 1 << 10, Disk: 128 << 20, Files: 100, OutFiles: 10, OutBytes: 1 << 20}}
}

var task = trial.Task{Trial: "t-7", Model: "pool/model", Seed: 5, JSON: []byte(`{"id":"a","question":"2+2"}`)}

func TestAgentSolvesItsTaskWithTheModel(t *testing.T) {
	t.Parallel()
	r, err := newRunner(t, &model{}).Run(t.Context(), agent("solve"), task)
	if err != nil {
		t.Fatal(err)
	}
	const answer = "2+2 by pool/model for t-7"
	if r.End != trial.Answered || r.Answer != answer || string(r.JSON) != `{"answer":"`+answer+`","steps":1}` ||
		r.Scores != nil {
		t.Errorf("%+v\n%s", r, r.Process.Stderr.Kept)
	}
	if r.Model.Requests != 1 || r.Model.PromptTokens != 7 || r.Process.Verdict != isolation.Exited {
		t.Errorf("%+v, %s", r.Model, r.Process.Verdict)
	}
}

// A request for more than the model is refused, and the trial goes on.
func TestForbiddenRequestIsRecorded(t *testing.T) {
	t.Parallel()
	r, err := newRunner(t, &model{}).Run(t.Context(), agent("search"), task)
	if err != nil {
		t.Fatal(err)
	}
	if r.End != trial.Answered || r.Model.Requests != 0 || r.Model.Forbidden != 1 ||
		!strings.Contains(r.Model.FirstForbidden, "tools[0].type") {
		t.Errorf("%s %s, %+v\n%s", r.End, r.Reason, r.Model, r.Process.Stderr.Kept)
	}
}

func TestEachEndIsTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(a *trial.Agent, m *model)
		end    trial.End
		limit  string
		reason string
	}{
		"grade":          {nil, trial.Answered, "", ""},
		"nothing":        {nil, trial.ResultError, "", "ended with 1"},
		"bad result":     {nil, trial.ResultError, "", "not a JSON object"},
		"bad answer":     {nil, trial.ResultError, "", "not a text"},
		"link":           {nil, trial.ResultError, "", "missing"},
		"bad grade":      {nil, trial.GradeError, "", "not a number"},
		"chat, requests": {func(a *trial.Agent, _ *model) { a.Model.Requests = 3 }, trial.Limited, "requests", ""},
		"chat, tokens":   {func(a *trial.Agent, _ *model) { a.Model.Tokens = 25 }, trial.Limited, "tokens", ""},
		"chat, dollars":  {func(a *trial.Agent, _ *model) { a.Model.NanoUSD = 1 }, trial.Limited, "dollars", ""},
		"sleep": {func(a *trial.Agent, _ *model) { a.Limits.Wall = time.Second },
			trial.Limited, "time_limit", ""},
		"solve, model down": {func(_ *trial.Agent, m *model) { m.down = true },
			trial.Infrastructure, "", "model"},
		"solve, model overloaded": {func(_ *trial.Agent, m *model) { m.status = func(int) int { return 503 } },
			trial.Infrastructure, "", "model"},
		"wait, model down": {func(a *trial.Agent, m *model) { m.down, a.Limits.Wall = true, 2*time.Second },
			trial.Infrastructure, "", "time_limit"},
		"chat, model down": {func(a *trial.Agent, m *model) { m.down, a.Model.Requests = true, 3 },
			trial.Infrastructure, "", "requests"},
		"give up, model failed before": {func(_ *trial.Agent, m *model) {
			m.status = func(call int) int { return map[int]int{1: 503, 2: 200}[call] }
		}, trial.ResultError, "", "no idea"},
		"give up, a request is refused": {func(_ *trial.Agent, m *model) {
			m.status = func(call int) int { return map[int]int{1: 200, 2: 403}[call] }
		}, trial.ResultError, "", "no idea"},
		"solve, no artifact": {func(a *trial.Agent, _ *model) { a.Artifact = "" },
			trial.NotStarted, "", "agent"},
		"solve, artifact is big": {func(a *trial.Agent, _ *model) { a.Limits.Disk = 1 << 20 },
			trial.NotStarted, "", "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &model{}
			name, _, _ := strings.Cut(name, ",")
			a := agent(name)
			if test.change != nil {
				test.change(&a, m)
			}
			r, err := newRunner(t, m).Run(t.Context(), a, task)
			if err != nil {
				t.Fatal(err)
			}
			if r.End != test.end || r.Limit != test.limit || !strings.Contains(r.Reason, test.reason) {
				t.Errorf("%s %s %q, want %s %s %q\n%s", r.End, r.Limit, r.Reason, test.end, test.limit, test.reason,
					r.Process.Stderr.Kept)
			}
			if name == "grade" && !maps.Equal(r.Scores, map[string]float64{"": 0.5}) {
				t.Errorf("scores %v", r.Scores)
			}
		})
	}
}

func TestCanceledTrialHasNoEnd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	m := &model{}
	runner := newRunner(t, m)
	runner.Servers = passer(func(ctx context.Context, _ engine.RawRequest) (engine.RawAnswer, error) {
		cancel() // the agent runs
		<-ctx.Done()
		return engine.RawAnswer{}, ctx.Err()
	})
	if r, err := runner.Run(ctx, agent("solve"), task); !fault.Is(err, fault.Canceled) || r.End != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

type passer func(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error)

func (p passer) Pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	return p(ctx, r)
}
