package e2e

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/grade"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// modelPools are pools of three models, of which one judges; all have the engine of up.
const modelPools = `
[[pool]]
name = "default"
model = "small"
[[pool]]
name = "large"
model = "large"
[[pool]]
name = "judges"
model = "wise"
` + smallShards

// modelsConfig is the config of trials that compare two models.
const modelsConfig = `schema_version = 1
kind = "trials"
model.uri = "small"
[design]
replications = 2
seed = 7
[[variant]]
name = "small"
[[variant]]
name = "large"
model = "large"
[[variant]]
name = "terse"
model = "large"
system = "Be terse."
[[grade]]
name = "yes"
kind = "regex"
pattern = "verdict yes"
[limits]
grace = "500ms"
`

// styleJudge is a judge of modelsConfig.
const styleJudge = `[[grade]]
name = "style"
kind = "judge"
model = "wise"
prompt = "{prompt}: {answer}"
extract = 'Score: (\d+)'
range = [0, 8]
`

// modelServer serves several models. What each says is made from what it is asked alone.
type modelServer struct {
	*httptest.Server
	latency time.Duration

	mu    sync.Mutex
	asked map[string]int // requests by model
}

func newModelServer(t *testing.T, latency time.Duration) *modelServer {
	t.Helper()
	m := &modelServer{latency: latency, asked: map[string]int{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// requests returns how many requests a model received.
func (m *modelServer) requests(model string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked[model]
}

// ServeHTTP implements http.Handler.
func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"data":[{"id":"small"},{"id":"large"},{"id":"wise"}]}`)
		return
	}
	var q struct {
		Model    string
		Seed     int64
		Messages []struct{ Content string }
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &q) != nil || len(q.Messages) == 0 {
		http.NotFound(w, r)
		return
	}
	m.mu.Lock()
	m.asked[q.Model]++
	m.mu.Unlock()
	select {
	case <-time.After(m.latency):
	case <-r.Context().Done():
		return
	}
	h := fnv.New32a()
	h.Write([]byte(q.Messages[len(q.Messages)-1].Content))
	n := int64(h.Sum32())
	switch {
	case q.Model == "wise" && n%11 == 0:
		http.Error(w, `{"error":{"message":"that is not nice","code":"content_filter"}}`, http.StatusBadRequest)
	case q.Model == "wise":
		sayAs(w, q.Model, fmt.Sprintf("Score: %d", n%10), "stop")
	case q.Seed%9 == 0:
		http.Error(w, `{"error":{"message":"that is not nice","code":"content_filter"}}`, http.StatusBadRequest)
	case q.Model == "large" && q.Seed%4 > 0 || q.Seed%4 == 1:
		sayAs(w, q.Model, fmt.Sprintf("%s: verdict yes, %d", q.Model, q.Seed%97), "stop")
	default:
		sayAs(w, q.Model, fmt.Sprintf("%s: verdict no, %d", q.Model, q.Seed%97), "stop")
	}
}

// summary returns the summary of an ended run.
func (i *testInstallation) summary(id identity.RunID) (sum record.Summary) {
	i.t.Helper()
	if err := json.Unmarshal([]byte(read(i.t, i.bucket(record.OutputKey(id, record.SummaryFile)))), &sum); err != nil {
		i.t.Fatal(err)
	}
	return sum
}

// TestTrialsOfModelsWithAJudgeAreTheSameWhoeverAnswers compares two models in two pools, and a third
// one judges their answers. The files do not depend on how many workers there are, and on which of
// them are killed.
func TestTrialsOfModelsWithAJudgeAreTheSameWhoeverAnswers(t *testing.T) {
	t.Parallel()
	j := newModelServer(t, 0)
	i := install(t, j.URL, 1, modelPools)
	id := i.submit(tasksFile(t, modelsConfig+styleJudge))
	i.await(id, run.CompletedWithErrors)
	want := i.trialsFiles(id)
	i.wantModels(id)
	i.up.signal(15)
	i.up.wantExit(0)
	for _, workers := range []int{3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			j := newModelServer(t, 15*time.Millisecond)
			m := &processKiller{testInstallation: install(t, j.URL, workers, modelPools),
				rng: rand.New(rand.NewPCG(uint64(workers), 0)), killed: map[int]bool{}}
			id := m.submit(tasksFile(t, modelsConfig+styleJudge))
			for _, model := range []string{"large", "wise"} {
				eventually(t, "the moment of the kill comes", func() bool { return j.requests(model) >= 20 || m.hasEnded(id) })
				m.killWorker(id)
			}
			m.awaitEnd(id)
			wantSameFiles(t, m.trialsFiles(id), want)
		})
	}
}

// wantModels checks which model answered each trial, that each answer was judged, and what the
// summary counts by role.
func (i *testInstallation) wantModels(id identity.RunID) {
	i.t.Helper()
	answered, cannot := map[string]int{}, 0
	for _, line := range lines(i.t, read(i.t, i.bucket(record.OutputKey(id, record.CompletionsFile)))) {
		var row struct {
			Completion string
			Model      string `json:"model_uri"`
			Trial      trials.Trial
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			i.t.Fatal(err)
		}
		model := map[bool]string{true: "small", false: "large"}[row.Trial.Variant == "small"]
		if row.Model != model || !strings.HasPrefix(row.Completion, model+": ") {
			i.t.Errorf("trial %s is answered by %s: %s", row.Trial.ID, row.Model, row.Completion)
		}
		answered[model]++
		graded, err := grade.ReadRow([]byte(line))
		if err != nil {
			i.t.Fatal(err)
		}
		if graded.Scores["style"].Score == nil {
			cannot++
		}
	}
	sum := i.summary(id)
	all := uint64(taskCount * trialsOfATask)
	if len(sum.Roles) != 3 || sum.Items != all || sum.Roles[0].Items != all/3 || sum.Roles[2].Items != 2*all/3 ||
		sum.Roles[0].Completed != uint64(answered["small"]) || sum.Roles[2].Completed != uint64(answered["large"]) ||
		sum.Roles[1].Items != sum.Completed || sum.Roles[1].Pool != "judges" || sum.Roles[2].Pool != "large" {
		i.t.Errorf("%d trials, %d answered: %+v", sum.Items, sum.Completed, sum.Roles)
	}
	ungraded := 0
	for _, v := range sum.Trials.Variants {
		for _, n := range v.Ungraded {
			ungraded += n
		}
		if v.Answered == 0 || v.Scored == 0 {
			i.t.Errorf("variant %s: %+v", v.Name, v)
		}
	}
	if cannot == 0 || ungraded != cannot {
		i.t.Errorf("%d answers have no score of the judge, and %d are ungraded", cannot, ungraded)
	}
	if s, _ := i.show(id); s.Items.Total != all || s.Items.Processed() != all {
		i.t.Errorf("status has %+v", s.Items)
	}
}

// A retry asks trials again of their own models, and an amendment adds a model: the trials are
// those of a run that had all from the beginning.
func TestRetriesAndAmendmentsKeepTheModelsOfTrials(t *testing.T) {
	t.Parallel()
	j := newModelServer(t, 0)
	i := install(t, j.URL, 2, modelPools)
	const small = "[[variant]]\nname = \"large\"\nmodel = \"large\"\n[[variant]]\nname = \"terse\"\nmodel = \"large\"\n" +
		"system = \"Be terse.\"\n"
	// Before it costs anything, one trial of each variant is asked of its own model. The server
	// refuses one of them.
	do(t, 1, "submit", "--dir", i.dir, "--preflight", "--engine", i.engine, tasksFile(t, modelsConfig))
	if j.requests("small") != 1 || j.requests("large") != 2 {
		t.Errorf("the preflight asked %d times for small and %d times for large", j.requests("small"), j.requests("large"))
	}
	first := i.submit(tasksFile(t, strings.Replace(modelsConfig, small, "", 1)))
	i.await(first, run.CompletedWithErrors)
	whole := i.submit(tasksFile(t, modelsConfig))
	i.await(whole, run.CompletedWithErrors)
	added := i.amend(first, "--variant", write(t, t.TempDir()+"/large.toml", small))
	i.wantSameTrials(added, whole)

	asked := j.requests("small")
	again := i.retryTrials(added, run.CompletedWithErrors, "--trial", "t3.large.r1", "--trial", "t7.terse.r0")
	i.wantSameTrials(again, whole)
	if n := j.requests("small") - asked; n != 0 {
		t.Errorf("the model small was asked %d times, and no trial of it is asked again", n)
	}
	sum := i.summary(again)
	if len(sum.Roles) != 2 || sum.Roles[1].Items != sum.Roles[0].Items*2 || sum.Roles[1].Name != "answer-large" {
		t.Errorf("%+v", sum.Roles)
	}
}
