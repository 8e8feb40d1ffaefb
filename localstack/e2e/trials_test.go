package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rollout/functions/diagnosis"
	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// trialsConfig is the config of the tests' trials: 3 variants × 2 replications.
const trialsConfig = `schema_version = 1
kind = "trials"
[design]
replications = 2
seed = 7
[[variant]]
name = "plain"
[[variant]]
name = "terse"
system = "Be terse."
sampling.temperature = 0.2
[[variant]]
name = "asked"
prompt = "Please: {prompt}"
max_parallel_trials = 3
[[grade]]
name = "yes"
kind = "regex"
pattern = "verdict yes"
[[grade]]
name = "exact"
kind = "exact"
expected = "target"
weight = 0
[limits]
grace = "500ms"
`

const (
	taskCount     = 20
	trialsOfATask = 6
)

// tasksFile writes tasks with the config beside them, and returns the file's path.
func tasksFile(t *testing.T, config string) string {
	t.Helper()
	var b strings.Builder
	for n := range taskCount {
		fmt.Fprintf(&b, "{\"id\":\"q%d\",\"prompt\":\"case %d\",\"target\":%q,\"session\":\"s%d\"}\n", n, n, sentinel, n%4)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tasks.toml"), config)
	return write(t, filepath.Join(dir, "tasks.jsonl"), b.String())
}

// trialsFiles returns the files of ended trials without the times of rows and the addresses of
// servers. Of the summary, it has what the variants came to.
func (i *testInstallation) trialsFiles(id identity.RunID) map[string]string {
	i.t.Helper()
	out, folder := map[string]string{}, i.bucket("runs/"+string(id))
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text := read(i.t, path)
		if e.Name() == record.SummaryFile {
			var sum record.Summary
			if err := json.Unmarshal([]byte(text), &sum); err != nil {
				return err
			}
			text = string(record.Encode(sum.Trials)) + sum.Phase
		}
		out[e.Name()] = scenarios.WithoutTimes(serverOf.ReplaceAllString(text, "http://server"))
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// S4-03, S4-11, S4-38: the files of trials do not depend on how many workers answer them, nor on
// which of them are killed when. What a grader expects is in no request.
func TestTrialsHaveTheSameFilesWhoeverAnswers(t *testing.T) {
	t.Parallel()
	j := newJudgeServer(t, 0)
	i := install(t, j.URL, 0, smallShards)
	id := i.submit(tasksFile(t, trialsConfig))
	i.await(id, run.CompletedWithErrors)
	want := i.trialsFiles(id)
	if n := strings.Count(want[trials.TrialsFile], "\n"); n != taskCount*trialsOfATask {
		t.Fatalf("%d trials", n)
	}
	wantTrials(t, want)
	i.wantTrialsReport(id)
	i.wantTrialsGrid(id, want)
	i.up.signal(15)
	i.up.wantExit(0)
	for _, workers := range []int{3, 8} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			j := newJudgeServer(t, 15*time.Millisecond)
			m := &processKiller{testInstallation: install(t, j.URL, workers, smallShards),
				rng: rand.New(rand.NewPCG(uint64(workers), 0)), killed: map[int]bool{}}
			id := m.submit(tasksFile(t, trialsConfig))
			for kill := range 2 {
				until := j.requests() + 15 + m.rng.IntN(15)
				eventually(t, "the moment of the kill comes", func() bool { return j.requests() >= until || m.hasEnded(id) })
				if kill == 1 {
					m.up.kill()
					m.start()
					continue
				}
				m.killWorker(id)
			}
			m.awaitEnd(id)
			wantSameFiles(t, m.trialsFiles(id), want)
			j.mu.Lock()
			defer j.mu.Unlock()
			for _, b := range j.bodies {
				if strings.Contains(b, sentinel) {
					t.Fatalf("a request has what is expected: %s", b)
				}
			}
		})
	}
}

// pruningConfig is that of trials of which one variant is worse: 4 replications.
const pruningConfig = `schema_version = 1
kind = "trials"
[design]
replications = 4
seed = 7
[pruning]
rule = "race"
looks = 6
[[variant]]
name = "plain"
[[variant]]
name = "terse"
system = "Be terse."
[[variant]]
name = "asked"
prompt = "Please: {prompt}"
[[grade]]
name = "yes"
kind = "regex"
pattern = "verdict yes"
[limits]
grace = "500ms"
`

// S4-11 to S4-14: pruning log and files do not depend on how many workers answer, nor on which of them
// are killed when.
func TestPruningIsTheSameWhoeverAnswers(t *testing.T) {
	t.Parallel()
	var want map[string]string
	for _, workers := range []int{1, 3, 8} {
		g := newExaminer(t, time.Duration(workers-1)*2*time.Millisecond)
		m := &processKiller{testInstallation: install(t, g.URL, workers, smallShards),
			rng: rand.New(rand.NewPCG(uint64(workers), 1)), killed: map[int]bool{}}
		id := m.submit(tasksFile(t, pruningConfig))
		for kill := range 2 {
			until := g.requests() + 25 + m.rng.IntN(25)
			eventually(t, "the moment of the kill comes", func() bool { return g.requests() >= until || m.hasEnded(id) })
			if workers == 1 {
				break
			}
			if kill == 1 {
				m.up.kill()
				m.start()
				continue
			}
			m.killWorker(id)
		}
		m.awaitEnd(id)
		got := m.trialsFiles(id)
		if want == nil {
			want = got
			if log := got[trials.PruningFile]; strings.Count(log, "\n") != 6 || !strings.Contains(log, `"name":"asked"`) ||
				strings.Count(log, `"pruned":true`) != 1 {
				t.Fatalf("the pruning log is %s", log)
			}
			report := do(t, 0, "report", "--dir", m.dir, string(id)).stdoutText()
			if !strings.Contains(report, "asked: pruned after ") {
				t.Errorf("the report does not say what was pruned: %s", report)
			}
		}
		wantSameFiles(t, got, want)
		m.up.signal(15)
		m.up.wantExit(0)
	}
}

// examiner answers prompts that say please wrongly, and all others rightly.
type examiner struct {
	*httptest.Server
	asked atomic.Int64
}

func newExaminer(t *testing.T, latency time.Duration) *examiner {
	t.Helper()
	e := &examiner{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			fmt.Fprint(w, `{"data":[{"id":"fake"}]}`)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		e.asked.Add(1)
		select {
		case <-time.After(latency):
		case <-r.Context().Done():
			return
		}
		verdict := "yes"
		if strings.Contains(string(body), "Please") {
			verdict = "no"
		}
		sayAs(w, "fake", "verdict "+verdict, "stop")
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *examiner) requests() int { return int(e.asked.Load()) }

// wantTrials checks that trials.jsonl has each trial once, in the order of the schedule, and that
// the sums are those of its rows.
func wantTrials(t *testing.T, files map[string]string) {
	t.Helper()
	var sum record.Trials
	text := files[record.SummaryFile]
	if err := json.Unmarshal([]byte(text[:strings.LastIndexByte(text, '}')+1]), &sum); err != nil {
		t.Fatal(err)
	}
	type of struct {
		trials, refused int
		score           float64
	}
	by, seen := map[string]*of{}, map[string]bool{}
	for n, line := range lines(t, files[trials.TrialsFile]) {
		var f trials.Fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if seen[f.ID] || f.Index != uint64(n) || f.Score == nil || (f.Verdict == trials.Failed) != (f.Class == "refused") {
			t.Errorf("row %d: %s", n, line)
			continue
		}
		seen[f.ID] = true
		v := by[f.Variant]
		if v == nil {
			v = &of{}
			by[f.Variant] = v
		}
		v.trials++
		v.score += *f.Score
		if f.Verdict == trials.Failed {
			v.refused++
		}
	}
	for _, v := range sum.Variants {
		got := by[v.Name]
		if got == nil || v.Trials != got.trials || v.Trials != taskCount*2 || v.Failed["refused"] != got.refused ||
			v.Answered != got.trials-got.refused || v.Score == nil || *v.Score != got.score/float64(got.trials) ||
			v.StandardError == nil || v.ScoredTasks != taskCount {
			t.Errorf("%+v, want %+v", v, got)
		}
	}
	if len(sum.Variants) != 3 || sum.Tasks != taskCount {
		t.Errorf("the sums are %+v", sum)
	}
}

// wantTrialsGrid checks that the grid of the API has the scores of the run's files, and the means of its
// summary.
func (i *testInstallation) wantTrialsGrid(id identity.RunID, files map[string]string) {
	i.t.Helper()
	type cell struct{ task, variant string }
	want, got := map[cell][]string{}, map[cell][]string{}
	for line := range strings.Lines(files[trials.TrialsFile]) {
		var f trials.Fact
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			i.t.Fatal(err)
		}
		at := cell{f.Task, f.Variant}
		want[at] = append(want[at], fmt.Sprint(f.Index, f.Verdict, *f.Score))
	}
	var g diagnosis.TrialGrid
	for from := 0; ; from = *g.Next {
		i.request("GET", fmt.Sprintf("/v1/runs/%s/trials?after=%d", id, from), &g)
		for _, row := range g.Rows {
			for n, c := range row.Cells {
				at := cell{row.Task, g.Variants[n].Name}
				for _, tr := range c.Trials {
					got[at] = append(got[at], fmt.Sprint(tr.Item, tr.State, *tr.Score))
				}
			}
		}
		if g.Next == nil {
			break
		}
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) || g.Tasks != taskCount || g.Unread > 0 {
		i.t.Errorf("the grid of %d tasks has %v, want %v", g.Tasks, got, want)
	}
	for _, v := range g.Variants {
		if !v.Ended || v.Score == nil || v.Low == nil || v.Trials != 2*taskCount {
			i.t.Errorf("the variant %s is %+v", v.Name, v)
		}
	}
}

// wantTrialsReport checks the numbers of the report against those of the files.
func (i *testInstallation) wantTrialsReport(id identity.RunID) {
	i.t.Helper()
	var r struct {
		Variants []record.TrialVariant
		Pairs    []struct {
			Tasks int
			P     *float64
		}
		Passes []struct {
			All, Any []*float64
		}
	}
	out := do(i.t, 0, "report", "--dir", i.dir, "--json", string(id)).stdoutText()
	err := json.Unmarshal([]byte(out), &r)
	if err != nil || len(r.Variants) != 3 || len(r.Pairs) != 3 || len(r.Passes) != 2 {
		i.t.Fatalf("%s (%v)", out, err)
	}
	for _, p := range r.Pairs {
		if p.Tasks != taskCount || p.P == nil {
			i.t.Errorf("a pair is %+v", p)
		}
	}
	for v := range r.Variants {
		one, all, either := *r.Passes[0].All[v], *r.Passes[1].All[v], *r.Passes[1].Any[v]
		if math.Abs(one-*r.Variants[v].Score) > 1e-9 || all > one || either < one {
			i.t.Errorf("%s: pass^1 %v, pass^2 %v, pass@2 %v", r.Variants[v].Name, one, all, either)
		}
	}
}

// gatedServer counts what is in flight. It answers nothing until as many requests as it is to have
// at once have come.
type gatedServer struct {
	*httptest.Server
	atOnce int

	mu       sync.Mutex
	open     chan struct{} // closed when atOnce requests have come
	now      map[string]int
	most     map[string]int // in flight at once: of all (""), by variant, by variant and chain
	sessions map[string][]int
}

func newGatedServer(t *testing.T, atOnce int) *gatedServer {
	t.Helper()
	g := &gatedServer{atOnce: atOnce, open: make(chan struct{}), now: map[string]int{}, most: map[string]int{},
		sessions: map[string][]int{}}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

// ServeHTTP implements http.Handler.
func (g *gatedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"data":[{"id":"fake"}]}`)
		return
	}
	var q struct {
		Messages []struct{ Content string }
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &q) != nil || len(q.Messages) == 0 {
		http.Error(w, "no chat", http.StatusBadRequest)
		return
	}
	variant, prompt := "plain", q.Messages[len(q.Messages)-1].Content
	if len(q.Messages) == 2 {
		variant = "terse"
	} else if strings.HasPrefix(prompt, "Please") {
		variant = "asked"
	}
	task := 0
	if _, err := fmt.Sscanf(prompt[strings.Index(prompt, "case "):], "case %d", &task); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	names := []string{"", variant, fmt.Sprintf("%s s%d", variant, task%4)}
	g.enter(names, task)
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
	g.leave(names)
	sayAs(w, "fake", "verdict yes", "stop")
}

func (g *gatedServer) enter(names []string, task int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range names {
		g.now[n]++
		g.most[n] = max(g.most[n], g.now[n])
	}
	g.sessions[names[2]] = append(g.sessions[names[2]], task)
	if g.now[""] == g.atOnce && g.most[""] == g.atOnce {
		select {
		case <-g.open:
		default:
			close(g.open)
		}
	}
}

func (g *gatedServer) leave(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range names {
		g.now[n]--
	}
}

// S4-02, S4-03: a run with max_concurrency = 4 has four trials in flight at once, and never more;
// a variant has no more than its own limit.
func TestTrialsKeepTheirLimits(t *testing.T) {
	t.Parallel()
	g := newGatedServer(t, 4)
	i := install(t, g.URL, 0, patientHealth+"[worker]\nin_flight = 16\n")
	id := i.submit(tasksFile(t, strings.Replace(trialsConfig, "seed = 7\n", "seed = 7\nmax_concurrency = 4\n", 1)))
	i.await(id, run.Completed)
	if g.most[""] != 4 || g.most["asked"] > 3 || g.most["plain"] == 0 || g.most["terse"] == 0 {
		t.Errorf("in flight at once were %v", g.most)
	}
}

// S4-04, S4-35: of a chain, one trial of each variant is in flight, in the order of the tasks; other
// chains and variants go on meanwhile.
func TestTrialsOfAChainFollowEachOther(t *testing.T) {
	t.Parallel()
	g := newGatedServer(t, 8)
	i := install(t, g.URL, 0, patientHealth+"[worker]\nin_flight = 16\n")
	id := i.submit(tasksFile(t, strings.Replace(trialsConfig, "seed = 7\n", "seed = 7\nchain = \"session\"\n", 1)))
	i.await(id, run.Completed)
	for n := range 4 {
		for _, variant := range []string{"plain", "terse", "asked"} {
			chain := fmt.Sprintf("%s s%d", variant, n)
			tasks := g.sessions[chain]
			half := len(tasks) / 2 // the second replication begins again
			if g.most[chain] != 1 || len(tasks) != 10 || !slices.IsSorted(tasks[:half]) || !slices.IsSorted(tasks[half:]) {
				t.Errorf("chain %s: %d at once, tasks %v", chain, g.most[chain], tasks)
			}
		}
	}
}

// TestDemoTrialsComparesItsVariants runs the script behind `make demo-trials`.
func TestDemoTrialsComparesItsVariants(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "demo")
	p := shell(t, fmt.Sprintf("BIN=%s exec bash ../../scripts/run/trials.sh %s", binaries, folder))
	p.wantExit(0)
	out := p.stdoutText() + p.stderrText()
	for _, text := range []string{"completed: 301 of 600",
		"terse: pruned after 34 of 200 trials", "steps − terse", "pass^k", "report.html", "1.07 trials",
		"$0.000038"} {
		if !strings.Contains(out, text) {
			t.Errorf("the demo does not print %q:\n%s", text, out)
		}
	}
	if page := read(t, filepath.Join(folder, "report.html")); !strings.Contains(page, "Leaderboard") {
		t.Errorf("the page is %.200s", page)
	}
}

func TestFileWithALineThatIsNoTaskEndsTheTrials(t *testing.T) {
	t.Parallel()
	j := newJudgeServer(t, 0)
	i := install(t, j.URL, 0, smallShards)
	file := tasksFile(t, trialsConfig)
	write(t, file, read(t, file)+"no task\n{\"id\":\"q3\",\"prompt\":\"again\"}\n")
	s := i.await(i.submit(file), run.Failed)
	for _, want := range []string{"line 21: it is not valid JSON", `line 22: line 4 has the same id "q3"`,
		"no trial was begun"} {
		if !strings.Contains(s.Message, want) {
			t.Errorf("it says %q, want %q", s.Message, want)
		}
	}
	if j.requests() != 0 {
		t.Errorf("%d requests were sent", j.requests())
	}
}
