package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/functions/diagnosis"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// judgeModel is the model of the judges' pool.
const judgeModel = "wise"

// moodyJudge is the server of a judge that is slow, wrong and dead at times. What it
// judges, it judges by trueVerdict.
type moodyJudge struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	strange  []string // requests that the config does not make
}

func newMoodyJudge(t *testing.T) *moodyJudge {
	t.Helper()
	m := &moodyJudge{}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

// judged is how many requests the judge received.
func (m *moodyJudge) judged() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// trueVerdict is what the judge says of the answer to the question with that number.
func trueVerdict(n int) (text string, score float64, cause grade.Cause) {
	switch n % 10 {
	case 3:
		return "I would rather not say. 7 of 10?", 0, grade.Unparseable
	case 5: // it is cut
		return "Score: 1", 0, grade.Unparseable
	case 7, 9: // it always fails
		return "", 0, grade.JudgeFailed
	}
	return fmt.Sprintf("It is 10 lines long. Score: %d", n%9), float64(n%9) / 8, ""
}

var asked = regexp.MustCompile(`Question: question (\d+) \{answer\}", \{"x\n`)

// ServeHTTP implements http.Handler.
func (m *moodyJudge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var q struct {
		Model       string
		Temperature *float64
		MaxTokens   int `json:"max_tokens"`
		Messages    []struct{ Role, Content string }
	}
	if r.Method != http.MethodPost { // it lists no models, and says nothing of its health
		http.NotFound(w, r)
		return
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var found []string
	if len(q.Messages) == 1 && q.Messages[0].Content == "hi" { // a worker asks whether the server answers
		say(w, "hi", "stop")
		return
	}
	if len(q.Messages) == 2 {
		found = asked.FindStringSubmatch(q.Messages[1].Content)
	}
	m.mu.Lock()
	turn := m.requests
	m.requests++
	if found == nil || q.Model != judgeModel || r.Header.Get("X-Judge") != "yes" || q.MaxTokens != 40 ||
		q.Temperature == nil || *q.Temperature != 0 ||
		!strings.Contains(q.Messages[0].Content, "Answers {in braces} are fine.") {
		m.strange = append(m.strange, string(body))
	}
	m.mu.Unlock()
	if found == nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		panic(err)
	}
	m.judge(w, r, n, turn)
}

func (m *moodyJudge) judge(w http.ResponseWriter, r *http.Request, n, turn int) {
	switch n % 10 {
	case 7:
		http.Error(w, `{"error":{"message":"out of memory"}}`, http.StatusInternalServerError)
		return
	case 9:
		http.Error(w, `{"error":{"message":"that is not nice"}}`, http.StatusBadRequest)
		return
	}
	switch turn % 15 {
	case 2: // dead
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			conn.Close()
		}
		return
	case 6: // slow
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
			return
		}
	case 10: // busy
		http.Error(w, "later", http.StatusTooManyRequests)
		return
	}
	text, _, _ := trueVerdict(n)
	finish := "stop"
	if n%10 == 5 {
		finish = "length"
	}
	say(w, text, finish)
}

// say writes a chat's answer.
func say(w http.ResponseWriter, text, finish string) { sayAs(w, judgeModel, text, finish) }

func sayAs(w http.ResponseWriter, model, text, finish string) {
	_ = json.NewEncoder(w).Encode(map[string]any{"object": "chat.completion", "model": model,
		"choices": []any{map[string]any{"index": 0, "finish_reason": finish,
			"message": map[string]any{"role": "assistant", "content": text}}},
		"usage": map[string]any{"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}})
}

// judges are a deployment with a scoring service and a pool of judges that has an engine
// of its own, whose runs are graded by both.
func judges(reward, judge string) string {
	return fmt.Sprintf(`secrets = ["reward-key"]`+quickHealth+`
[[pool]]
name = "default"
model = "mock"
[[pool]]
name = "judges"
model = %q
engine = "judge"
[engines.judge]
url = "%s/v1"
[worker]
in_flight = 8
checkpoint = "200ms"
[graders.reward]
url = %q
secret = "reward-key"
timeout = "500ms"
max_wait = "3s"
retries = 3
batch = 8
[defaults]
schema_version = 1
[defaults.model]
uri = "mock"
[defaults.shard]
items = 8
[[defaults.grade]]
name = "reward"
kind = "http"
service = "reward"
expected = "number"
[[defaults.grade]]
name = "style"
kind = "judge"
weight = 3
model = %q
expected = "number"
system = "Answers {in braces} are fine. {rubric}"
prompt = """
Question: {prompt}
Expected: {expected}
Answer: {answer}
"""
rubric = "Be strict."
extract = 'Score: (\d+)'
range = [0, 8]
[defaults.grade.sampling]
max_tokens = 40
[defaults.grade.request]
headers = { X-Judge = "yes" }
`, judgeModel, judge, reward, judgeModel)
}

// TestJudgedBatchInventsNoScore answers prompts, and has the answers scored by a service
// and by a judge that are both slow, wrong and dead at times. All processes are killed
// while the answers are judged.
func TestJudgedBatchInventsNoScore(t *testing.T) {
	t.Parallel()
	const items = 80
	service, server := newMoodyService(t), newMoodyJudge(t)
	var prompts strings.Builder
	for n := range items {
		fmt.Fprintf(&prompts, `{"id":"%03d","prompt":"question %d {answer}\", {\"x","number":%d}`+"\n", n, n, n)
	}
	prompts.WriteString("no json\n" + `{"id":"none","prompt":"question 1 {answer}\", {\"x"}` + "\n")
	i := install(t, serve(t).url, 2, judges(service.URL, server.URL))
	id := i.submit(promptsFile(t, prompts.String()))
	eventually(t, "some answers are judged", func() bool { return server.judged() >= items/4 })
	i.up.killGroup()
	i.start()
	i.await(id, run.CompletedWithErrors)

	var sum record.Summary
	if err := json.Unmarshal([]byte(read(t, i.bucket(record.OutputKey(id, record.SummaryFile)))), &sum); err != nil {
		t.Fatal(err)
	}
	missing := i.wantVerdicts(id, items)
	style := sum.Scores["style"]
	if style.Scored+style.Missing != items+1 || fmt.Sprint(style.MissingByCause) != fmt.Sprint(missing) {
		t.Errorf("the summary has %+v of the judge, and the rows lack %v", style, missing)
	}
	if sum.Items != items+2 || sum.Failed != 1 || len(sum.Roles) != 2 || sum.Roles[1].Name != "judge-style" ||
		sum.Roles[1].Pool != "judges" || sum.Roles[1].Items != items || sum.Roles[1].Failed < items/5 ||
		sum.Roles[1].PromptTokens == 0 {
		t.Errorf("the summary counts %+v", sum)
	}
	if len(server.strange) > 0 {
		t.Errorf("the judge was asked %d times in another way than the config says: %s", len(server.strange),
			server.strange[0])
	}
	i.wantJudgeExplained(id)
}

// wantVerdicts checks the rows of the run, and returns the causes of the scores that the
// judge did not give.
func (i *testInstallation) wantVerdicts(id identity.RunID, items int) map[grade.Cause]uint64 {
	i.t.Helper()
	lines := strings.Split(strings.TrimSpace(read(i.t, i.bucket(record.OutputKey(id, record.CompletionsFile)))), "\n")
	if len(lines) != items+1 {
		i.t.Fatalf("%d rows, want %d", len(lines), items+1)
	}
	missing := map[grade.Cause]uint64{}
	scored := 0
	for n, line := range lines {
		var row struct{ ID, Completion string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			i.t.Fatal(err)
		}
		r, err := grade.ReadRow([]byte(line))
		if err != nil {
			i.t.Fatal(err)
		}
		got, reward := r.Scores["style"], r.Scores["reward"]
		if got.Score == nil {
			missing[got.Cause]++
		}
		if n == items {
			if row.ID != "none" || got.Cause != grade.NoExpected || reward.Cause != grade.NoExpected {
				i.t.Errorf("the row without an expected value: %s", line)
			}
			continue
		}
		_, want, cause := trueVerdict(n)
		wantReward, has := trueReward(n, row.Completion)
		switch {
		case row.ID != fmt.Sprintf("%03d", n):
			i.t.Errorf("row %d is that of %s", n, row.ID)
		case reward.Score != nil && (!has || n == crashes || n == refused || *reward.Score != wantReward):
			i.t.Errorf("%s: reward %v is invented", row.ID, *reward.Score)
		case got.Score == nil && got.Cause != cause && got.Cause != grade.JudgeFailed: // it may fail for any answer
			i.t.Errorf("%s: no score because of %s, want %s", row.ID, got.Cause, cause)
		case got.Score != nil && (cause != "" || *got.Score != want):
			i.t.Errorf("%s: score %v is invented; the judge has %v %s", row.ID, *got.Score, want, cause)
		case (r.Score != nil) != (got.Score != nil && reward.Score != nil):
			i.t.Errorf("%s: it has a score, or none: %s", row.ID, line)
		case r.Score != nil && *r.Score != (wantReward+3*want)/4:
			i.t.Errorf("%s: score %v, want the weighted mean %v", row.ID, *r.Score, (wantReward+3*want)/4)
		case got.Score != nil:
			scored++
		}
	}
	if scored < items/2 {
		i.t.Errorf("the judge scored %d of %d rows", scored, items)
	}
	return missing
}

// wantJudgeExplained checks that explain names what the judge was asked of an item, and
// what came of it.
func (i *testInstallation) wantJudgeExplained(id identity.RunID) {
	i.t.Helper()
	for item, want := range map[string]struct {
		state diagnosis.ItemState
		cause grade.Cause
		said  string
	}{
		"001": {diagnosis.Answered, "", "It is 10 lines long. Score: 1"},
		"003": {diagnosis.Answered, grade.Unparseable, "7 of 10?"},
		"005": {diagnosis.Answered, grade.Unparseable, "Score: 1"},
		"009": {diagnosis.Failed, grade.JudgeFailed, "that is not nice"},
	} {
		p := do(i.t, 0, "explain", "--dir", i.dir, "--json", string(id), item)
		var x diagnosis.Explanation
		if err := json.Unmarshal([]byte(p.stdoutText()), &x); err != nil {
			i.t.Fatal(err)
		}
		if len(x.Items) != 1 || len(x.Items[0].Judges) != 1 {
			i.t.Errorf("%s: %s", item, p.stdoutText())
			continue
		}
		got := x.Items[0].Judges[0]
		if got.Grader != "style" || got.State != want.state || got.Cause != want.cause ||
			(got.Score != nil) != (want.cause == "") || !strings.Contains(got.Said, want.said) {
			i.t.Errorf("%s: %+v, want %+v", item, got, want)
		}
	}
	p := do(i.t, 0, "explain", "--dir", i.dir, string(id), "001")
	if !strings.Contains(p.stdoutText(), "which scores 0.125") {
		i.t.Errorf("explain shows no score: %s", p.stdoutText())
	}
}
