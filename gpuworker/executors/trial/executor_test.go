package trial_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/trial"
	"rollout/gpuworker/worker"
	"rollout/shared/artifact"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// next is the executor of what is no trial of an agent.
type next struct{ ran, asked atomic.Int64 }

func (n *next) Ready(context.Context) error { n.asked.Add(1); return nil }

func (n *next) Run(_ context.Context, s *worker.Shard) error {
	for i := range s.PendingItems(context.Background(), nil) {
		n.ran.Add(1)
		s.Put(i, []byte("{}\n"), "", worker.Tokens{})
	}
	return nil
}

// fixture is a planned run of one trial, and a worker.
type fixture struct {
	host.Ports
	t      *testing.T
	next   next
	config trial.Config
	worker *worker.Worker
}

// newFixture plans a trial of the agent of that name, with the limits.
func newFixture(t *testing.T, name string, m engine.Passer, limits config.AgentLimits) *fixture {
	t.Helper()
	f := &fixture{t: t, Ports: hosttest.New()}
	runner := newRunner(t, &model{})
	runner.Servers = m
	f.config = trial.Config{Next: &f.next, Runner: runner, Clock: f.Clock, Log: f.Log, AtOnce: 2, Memory: 4 << 30,
		Artifacts: &trial.Artifacts{Sandbox: runner.Sandbox, Blobs: f.Blobs}}
	t.Cleanup(func() {
		if err := f.config.Artifacts.Close(); err != nil {
			t.Error(err)
		}
	})
	program := readFile(t, folder+"/artifact/agent")
	if _, err := f.Blobs.Put(t.Context(), "agents/a/agent", strings.NewReader(program), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	pinned, err := artifact.Pin(t.Context(), f.Blobs, "agents/a/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := inputtest.Manifest(1)
	r.Kind, r.Config.Kind = config.KindTrials, config.KindTrials
	r.Config.Variants = []config.Variant{{Name: "prompt"}, {Name: "agent", Command: []string{"./agent"}, Trusted: true,
		Artifact: "agents/a/", Env: map[string]string{agentVariable: name}, Shows: []string{"question"}, Limits: &limits}}
	r.Config.Grades = []config.Grade{{Name: "right", Kind: config.GradeRegex, Pattern: "4"}}
	r.Artifacts = []record.Artifact{{Variant: "agent", Content: pinned.Content.String()}}
	inputtest.Plan(t, f.Ports, r, line("agent"))
	return f
}

func line(variant string) string {
	return fmt.Sprintf(`{"id":"t0.%[1]s.r0","messages":[{"role":"user","content":"2+2"}],"seed":5,`+
		`"trial":{"schedule_idx":0,"slot":0,"trial_id":"t0.%[1]s.r0","task":"q","variant":%[1]q,"replication":0},`+
		`"task":{"id":"q","question":"2+2","answer":"secret"}}`+"\n", variant)
}

// begin sends the trial to a new worker.
func (f *fixture) begin() {
	f.t.Helper()
	f.beginWith(trial.New(f.config))
}

// beginWith is begin with an executor.
func (f *fixture) beginWith(x *trial.Executor) {
	f.t.Helper()
	f.worker = worker.New(f.Ports, worker.Config{ID: "w1", Pool: "default", InFlight: 8,
		Timings: host.Timings(config.DefaultDeployment().Health), CheckpointInterval: time.Minute,
		Drain: 100 * time.Millisecond, Grace: time.Second}, input.NewIndex(f.Blobs, f.Docs), x)
	f.send()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.worker.Run(ctx) }()
	f.t.Cleanup(func() { cancel(); <-done })
}

// until waits until the shard's document is as it should be.
func (f *fixture) until(ok func(shard.Doc) bool) shard.Doc {
	f.t.Helper()
	for {
		var d shard.Doc
		_, _, err := host.Load(f.t.Context(), f.Docs, identity.ShardKey(inputtest.RunID, 0), &d)
		if err != nil {
			f.t.Fatal(err)
		}
		if ok(d) {
			return d
		}
		<-time.After(5 * time.Millisecond) // another goroutine writes it
	}
}

// row runs the trial and returns its row.
func (f *fixture) row() string {
	f.t.Helper()
	f.begin()
	return f.end()
}

// send sends the trial, as coordinate does again after a worker has given it back.
func (f *fixture) send() {
	f.t.Helper()
	work := events.Work{Run: string(inputtest.RunID), Pool: "default"}
	if err := f.Send(f.t.Context(), host.WorkQueue("default"), work); err != nil {
		f.t.Fatal(err)
	}
}

// end waits for the trial's row.
func (f *fixture) end() string {
	f.t.Helper()
	d := f.until(func(d shard.Doc) bool { return d.State == shard.Done })
	return hosttest.Object(f.t, f.Ports, d.Result.Key)
}

var usual = func() config.AgentLimits {
	l := config.DefaultAgentLimits()
	l.MemoryMB, l.DiskMB = 512, 128
	return l
}()

func TestTrialOfAnAgentHasAGradedRow(t *testing.T) {
	t.Parallel()
	text := newFixture(t, "solve", &model{}, usual).row()
	var row struct {
		Completion string
		Finish     string `json:"finish_reason"`
		Usage      struct {
			Prompt int64 `json:"prompt_tokens"`
		}
		Score *float64
		Agent trials.AgentRecord
	}
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		t.Fatal(err)
	}
	if row.Completion != "2+2 by mock for t0.agent.r0" || row.Finish != "stop" || row.Score == nil ||
		*row.Score != 0 || row.Usage.Prompt != 7 || row.Agent.Requests != 1 || row.Agent.Exit != "exited" ||
		row.Agent.Tries != 1 || string(row.Agent.Result) != `{"steps":1}` || row.Agent.Isolation == "" {
		t.Errorf("%s", text)
	}
}

func TestOtherTrialsAreLeftToTheNextExecutor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "solve", &model{}, usual)
	m := hosttest.Load[record.Manifest](t, f.Ports, record.ManifestKey(inputtest.RunID))
	other := &fixture{t: t, Ports: hosttest.New(), config: f.config}
	other.config.Next = &other.next
	m.Inputs = nil
	inputtest.Plan(t, other.Ports, m, line("prompt"))
	other.row()
	if n := other.next.ran.Load(); n != 1 {
		t.Errorf("it got %d shards", n)
	}
}

// S4-21, S4-32: what an agent is at fault for scores 0, and is committed.
func TestFaultsOfAnAgentAreItsRow(t *testing.T) {
	t.Parallel()
	few := usual
	few.Requests = 2
	for name, test := range map[string]struct {
		limits config.AgentLimits
		want   string
	}{
		"nothing":    {usual, `"class":"result_error"`},
		"bad result": {usual, `"class":"result_error"`},
		"bad grade":  {usual, `"class":"grade_error"`},
		"chat":       {few, `"finish_reason":"requests"`},
		"search":     {usual, `"forbidden_requests":1,"first_forbidden":"agents may not send tools[0].type`},
		"grade":      {usual, `"score":1,"scores":{"right":{"score":1}},"agent":{`}, // and not 0.5, as it says itself
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := newFixture(t, name, &model{}, test.limits).row()
			if !strings.Contains(row, test.want) {
				t.Errorf("%s", row)
			}
			if name != "chat" {
				return
			}
			if r, err := grade.ReadRow([]byte(row)); err != nil || r.Score == nil || *r.Score != 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// S4-15: a model that does not answer is tried again within the trial, and is no fault of the agent.
func TestTrialIsTriedAgainBeforeItsModelIsBlamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "solve", &model{down: true}, usual)
	if row := f.row(); !strings.Contains(row, `"class":"engine"`) || !strings.Contains(row, "in 3 tries") {
		t.Errorf("%s", row)
	}
	if trials.VerdictOf(fault.Engine) != trials.Infrastructure ||
		trials.VerdictOf(fault.Sandbox) != trials.Infrastructure || trials.VerdictOf(fault.ResultError) != trials.Failed {
		t.Error("the verdicts are others")
	}
}

func TestDrainedTrialIsGivenBack(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	f := newFixture(t, "solve", passer(func(ctx context.Context, _ engine.RawRequest) (engine.RawAnswer, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return engine.RawAnswer{}, ctx.Err()
	}), usual)
	f.begin()
	<-asked
	f.worker.Drain("test")
	d := f.until(func(d shard.Doc) bool { return d.State == shard.Pending })
	if d.Counts.OK+d.Counts.Failed > 0 || d.Result != nil {
		t.Errorf("%+v", d)
	}
}

// A run whose trials the worker must not run, or whose agent cannot start, asks to be paused.
func TestAgentThatCannotRunPausesTheRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"agents_not_permitted": {func(f *fixture) { f.config.Runner.Sandbox = nil }, "[trials]"},
		"no_isolation": {func(f *fixture) { f.config.NoSandbox = fault.New(fault.Denied, "no namespaces") },
			"no namespaces"},
		"artifact_unusable": {func(f *fixture) {
			m := hosttest.Load[record.Manifest](f.t, f.Ports, record.ManifestKey(inputtest.RunID))
			id, _ := identity.ParseContentID(m.Artifacts[0].Content)
			if err := f.Blobs.Delete(f.t.Context(), identity.ContentKey(id), ""); err != nil {
				f.t.Fatal(err)
			}
		}, "submit the tasks again"},
		"agent_not_started": {func(f *fixture) {
			m := hosttest.Load[record.Manifest](f.t, f.Ports, record.ManifestKey(inputtest.RunID))
			m.Config.Variants[1].Command = []string{"./missing"}
			m.Inputs = nil
			f.Ports = hosttest.New()
			m.Artifacts = nil
			inputtest.Plan(f.t, f.Ports, m, line("agent"))
		}, "./missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "solve", &model{}, usual)
			test.change(f)
			f.begin()
			for {
				ms, err := f.Queues.Receive(t.Context(), host.CoordinateQueue, 10, time.Minute, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range ms {
					_, p, err := events.Decode(m.Body)
					if refused, ok := p.(events.RequestsRefused); ok {
						if refused.Outcome != name || !strings.Contains(refused.Reason, test.want) {
							t.Errorf("%+v", refused)
						}
						return
					} else if err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
