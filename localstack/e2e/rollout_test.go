package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/record"
	files "rollout/shared/rollout"
)

// sentinel is in the label of every ticket, and in no other part of it.
const sentinel = "sentinel-of-labels"

const (
	ticketCount = 60
	memberCount = 4 // of each ticket
	batchSize   = 16
)

// rolloutConfig is the config of the tests' rollouts.
const rolloutConfig = `schema_version = 1
kind = "rollout"
[rollout]
seed = 7
system = "{guidance}"
prompt = "Judge: {content}"
[[mission]]
name = "m"
scaffold = "You judge."
entries = ["Be right."]
[[decode]]
temperature = 0.8
samples = 3
[[decode]]
temperature = 0.0
seed = 5
[answer]
pattern = "verdict ([a-z-]+)"
[runner]
rollout_batch_size = 16
parallelism = 5
[limits]
grace = "500ms"
`

// ticketsFile writes tickets with their config beside them, and returns its path. Two of the
// lines are invalid.
func ticketsFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for n := range ticketCount {
		fmt.Fprintf(&b, "{\"group_id\":\"g%d\",\"mission\":\"m\",\"content\":\"case %d\",\"label\":\"%s\"}\n", n, n, sentinel)
		if n == 7 {
			fmt.Fprintf(&b, "no ticket\n{\"group_id\":\"g%d\",\"mission\":\"m\",\"content\":\"again\",\"label\":\"%s\"}\n", n,
				sentinel)
		}
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tickets.toml"), rolloutConfig)
	return write(t, filepath.Join(dir, "tickets.jsonl"), b.String())
}

// judgeServer answers every request with a verdict that its seed decides, and keeps what it
// is sent.
type judgeServer struct {
	*httptest.Server
	latency time.Duration

	mu           sync.Mutex
	bodies       []string
	atOnce, most int // requests in flight
}

func newJudgeServer(t *testing.T, latency time.Duration) *judgeServer {
	t.Helper()
	j := &judgeServer{latency: latency}
	j.Server = httptest.NewServer(j)
	t.Cleanup(j.Close)
	return j
}

// ServeHTTP implements http.Handler.
func (j *judgeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		fmt.Fprint(w, `{"data":[{"id":"fake"}]}`)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	var q struct {
		Seed     int64
		Messages []struct{ Content string }
	}
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	j.mu.Lock()
	j.bodies = append(j.bodies, fmt.Sprint(r.Header, r.URL, string(body)))
	j.atOnce++
	j.most = max(j.most, j.atOnce)
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		j.atOnce--
		j.mu.Unlock()
	}()
	select {
	case <-time.After(time.Duration(rand.Float64() * 2 * float64(j.latency))):
	case <-r.Context().Done():
		return
	}
	switch q.Seed % 7 {
	case 0:
		sayAs(w, "fake", "I cannot say.", "stop")
	case 1, 2:
		sayAs(w, "fake", "The verdict no.", "stop")
	case 3:
		http.Error(w, `{"error":{"message":"that is not nice","code":"content_filter"}}`, http.StatusBadRequest)
	default:
		sayAs(w, "fake", "verdict yes, or verdict "+map[bool]string{true: "yes", false: "no"}[q.Seed%2 == 0], "stop")
	}
}

// asked counts the requests from number from on, by what they ask.
func (j *judgeServer) asked(from int) map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]int{}
	for _, b := range j.bodies[from:] {
		out[b[strings.IndexByte(b, '{'):]]++
	}
	return out
}

// mostAtOnce returns how many requests were in flight at once.
func (j *judgeServer) mostAtOnce() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.most
}

func (j *judgeServer) requests() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.bodies)
}

// wantNoLabels checks that no request has any part of a label.
func (j *judgeServer) wantNoLabels(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.bodies {
		if strings.Contains(b, sentinel) {
			t.Fatalf("a request has the label: %s", b)
		}
	}
	if len(j.bodies) < ticketCount*memberCount {
		t.Errorf("only %d requests were checked", len(j.bodies))
	}
}

// serverOf matches the server in messages about failures.
var serverOf = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// rolloutFiles returns the files of an ended rollout but attempts.jsonl, those of its
// guidance too, without the times of rows and the addresses of servers. Of the summary, it
// has what the rollout came to.
func (i *testInstallation) rolloutFiles(id identity.RunID) map[string]string {
	i.t.Helper()
	out, folder := map[string]string{}, i.bucket("runs/"+string(id))
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == files.AttemptsFile {
			return err
		}
		text := read(i.t, path)
		if e.Name() == record.SummaryFile {
			var sum record.Summary
			if err := json.Unmarshal([]byte(text), &sum); err != nil {
				return err
			}
			text = string(record.Encode(sum.Rollout)) + sum.Phase
		}
		text = serverOf.ReplaceAllString(text, "http://server")
		name, err := filepath.Rel(folder, path)
		out[name] = scenarios.WithoutTimes(text)
		return err
	})
	if err != nil {
		i.t.Fatal(err)
	}
	return out
}

// wantWhole checks I1 over what was dispatched: trajectories and failures are the members of
// the tickets, each once, and the files agree.
func (i *testInstallation) wantWhole(id identity.RunID) (members int) {
	i.t.Helper()
	texts := i.rolloutFiles(id)
	seen := map[string]string{}
	refused := 0
	for _, name := range []string{files.TrajectoriesFile, files.FailuresFile} {
		for _, l := range lines(i.t, texts[name]) {
			var row struct {
				ID   string
				Step int
			}
			if err := json.Unmarshal([]byte(l), &row); err != nil {
				i.t.Fatal(err)
			}
			if row.ID == "" {
				refused++
				continue
			}
			if other, dup := seen[row.ID]; dup {
				i.t.Errorf("member %s is in %s and in %s", row.ID, other, name)
			}
			seen[row.ID] = name
		}
	}
	items := strings.Count(texts[record.CompletionsFile], "\n") + strings.Count(texts[record.ErrorsFile], "\n")
	tickets := strings.Count(texts[files.SelectionsFile], "\n")
	if len(seen) != items || items != tickets*memberCount || items > 0 && refused != 2 {
		i.t.Errorf("%d members of %d tickets have %d rows in completions and errors; %d lines are invalid",
			len(seen), tickets, items, refused)
	}
	return len(seen)
}

func wantSameFiles(t *testing.T, got, want map[string]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("there are %d files, want %d", len(got), len(want))
	}
	for name := range want {
		scenarios.WantSameLines(t, name, got[name], want[name])
	}
}

// undisturbedRollout runs the tickets with one worker, and returns the files.
func undisturbedRollout(t *testing.T) map[string]string {
	t.Helper()
	j := newJudgeServer(t, 0)
	i := install(t, j.URL, 0, smallShards)
	id := i.submit(ticketsFile(t))
	i.await(id, run.CompletedWithErrors)
	if n := i.wantWhole(id); n != ticketCount*memberCount {
		t.Fatalf("it has %d members", n)
	}
	j.wantNoLabels(t)
	texts := i.rolloutFiles(id)
	for _, name := range []string{record.CompletionsFile, record.SummaryFile, files.SelectionsFile, files.MetricsFile} {
		if texts[name] == "" {
			t.Fatalf("it has no %s", name)
		}
	}
	i.up.signal(15)
	i.up.wantExit(0)
	return texts
}

// S0-02, S0-18, S0-21, C43: the files of a rollout do not depend on how many workers answer
// it, nor on which of them are killed when. No label is in any request.
func TestRolloutHasTheSameFilesWhoeverAnswers(t *testing.T) {
	t.Parallel()
	want := undisturbedRollout(t)
	for _, workers := range []int{1, 2, 3} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			t.Parallel()
			j := newJudgeServer(t, 15*time.Millisecond)
			m := &processKiller{testInstallation: install(t, j.URL, workers, smallShards),
				rng: rand.New(rand.NewPCG(uint64(workers), 0)), killed: map[int]bool{}}
			id := m.submit(ticketsFile(t))
			for kill := range workers + 1 {
				until := j.requests() + 20 + m.rng.IntN(30)
				eventually(t, "the moment of the kill comes", func() bool { return j.requests() >= until || m.hasEnded(id) })
				if kill == 1 {
					m.up.kill()
					m.start()
					continue
				}
				m.killWorker(id)
			}
			m.awaitEnd(id)
			wantSameFiles(t, m.rolloutFiles(id), want)
			m.wantWhole(id)
			j.wantNoLabels(t)
		})
	}
}

// A rollout is paused and goes on, and others end early: whatever was dispatched is in the
// files, and those are whole.
func TestRolloutIsPausedStoppedAndExpires(t *testing.T) {
	t.Parallel()
	want := undisturbedRollout(t)
	some := func(j *judgeServer) func() bool { return func() bool { return j.requests() > 70 } }
	t.Run("pause", func(t *testing.T) {
		t.Parallel()
		j := newJudgeServer(t, 15*time.Millisecond)
		i := install(t, j.URL, 2, smallShards)
		id := i.submit(ticketsFile(t))
		eventually(t, "some are asked", some(j))
		i.control("pause", id)
		i.await(id, run.Paused, run.Interrupted)
		asked := j.requests()
		i.up.killGroup()
		i.start()
		if j.requests() != asked {
			t.Errorf("%d requests were sent while it was paused", j.requests()-asked)
		}
		i.control("resume", id)
		i.awaitEnd(id)
		wantSameFiles(t, i.rolloutFiles(id), want)
	})
	t.Run("stop", func(t *testing.T) {
		t.Parallel()
		j := newJudgeServer(t, 15*time.Millisecond)
		i := install(t, j.URL, 2, smallShards)
		id := i.submit(ticketsFile(t))
		eventually(t, "some are asked", some(j))
		i.control("stop", id)
		i.await(id, run.Stopped)
		if n := i.wantWhole(id); n == 0 || n == ticketCount*memberCount || n%(batchSize*memberCount) != 0 {
			t.Errorf("%d members were dispatched", n)
		}
	})
	t.Run("expiry", func(t *testing.T) {
		t.Parallel()
		j := newJudgeServer(t, 100*time.Millisecond)
		i := install(t, j.URL, 1, smallShards)
		file := ticketsFile(t)
		write(t, strings.TrimSuffix(file, "jsonl")+"toml", rolloutConfig+"deadline = \"4s\"\n")
		id := i.submit(file)
		i.await(id, run.Expired)
		i.wantWhole(id)
	})
}

// A rollout goes on in a copy of its folder; there, another file under its name is another
// run.
func TestMovedFolderContinuesItsRollouts(t *testing.T) {
	t.Parallel()
	want := undisturbedRollout(t)
	j := newJudgeServer(t, 15*time.Millisecond)
	i := install(t, j.URL, 0, smallShards)
	id := i.submit(ticketsFile(t))
	eventually(t, "some are asked", func() bool { return j.requests() > 70 })
	i.up.killGroup()
	moved := filepath.Join(t.TempDir(), "copy")
	copyFolder(t, i.dir, moved, true)
	i.dir = moved
	i.start()
	i.awaitEnd(id)
	wantSameFiles(t, i.rolloutFiles(id), want)
	all := i.runs()
	if len(all) != 1 {
		t.Errorf("there are %d runs", len(all))
	}
	i.up.signal(15)
	i.up.wantExit(0)
	write(t, i.bucket(all[0].Inputs[0]), "{\"group_id\":\"other\",\"content\":\"c\"}\n")
	i.start()
	eventually(t, "the changed file is a run", func() bool {
		all := i.runs()
		return len(all) == 2 &&
			all[0].Phase.Ended()
	})
}
