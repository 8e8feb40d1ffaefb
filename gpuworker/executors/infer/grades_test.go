package infer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/grading"
	"rollout/shared/config"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// transport is a scoring service without a network: it scores each answer by its
// length, after it has called before.
type transport func(ctx context.Context) error

func (before transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := before(req.Context()); err != nil {
		return nil, err
	}
	var got struct{ Items []struct{ Answer string } }
	if err := json.NewDecoder(req.Body).Decode(&got); err != nil {
		return nil, err
	}
	var scores []int
	for _, it := range got.Items {
		scores = append(scores, len(it.Answer))
	}
	b, err := json.Marshal(map[string]any{"scores": scores})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(b))}, err
}

// takes is a service that takes d for each request.
func takes(d time.Duration) transport {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// scoredBy lets the worker use the service as "reward".
func scoredBy(t *testing.T, d *fixture, s transport) func(*infer.Config) {
	t.Helper()
	cfg := config.DefaultGraderService()
	cfg.URL, cfg.Batch, cfg.Timeout = "http://reward.test", 8, config.Duration(time.Minute)
	services, err := grading.Connect(t.Context(), map[string]config.GraderService{"reward": cfg},
		grading.Options{Log: d.Log, HTTPClient: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *infer.Config) { c.Graders = services }
}

// graded is a run of one shard with the graders.
func graded(graders ...config.Grade) record.Manifest {
	m := inputtest.Manifest(0)
	m.Config.Grades = graders
	return m
}

var (
	matches = config.Grade{Name: "correct", Kind: config.GradeRegex, Expected: "want"}
	reward  = config.Grade{Name: "reward", Kind: config.GradeHTTP, Service: "reward"}
)

// prompts are n lines whose answers are expected to contain the prompt.
func prompts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"prompt\":\"p%d\",\"want\":\"p%d\"}\n", i, i, i%3)
	}
	return b.String()
}

// checkScores checks that every row has the right score of "correct", and of
// "reward" the length of the answer or the cause.
func checkScores(t *testing.T, rows string, n int, cause grade.Cause) {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(rows, "\n"), "\n")
	if len(lines) != n {
		t.Fatalf("%d rows, want %d", len(lines), n)
	}
	for i, line := range lines {
		r, err := grade.ReadRow([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		var row struct {
			Completion string
			Want       string
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		want := 0.0
		if strings.Contains(row.Completion, row.Want) {
			want = 1
		}
		got := r.Scores["reward"]
		switch {
		case r.Scores["correct"].Score == nil || *r.Scores["correct"].Score != want:
			t.Errorf("row %d: %s, want %v of the grader correct", i, line, want)
		case cause != "" && (got.Score != nil || got.Cause != cause || r.Score != nil):
			t.Errorf("row %d: %s, want no reward with the cause %s", i, line, cause)
		case cause == "" && (got.Score == nil || *got.Score != float64(len(row.Completion))):
			t.Errorf("row %d: %s, want a reward of %d", i, line, len(row.Completion))
		}
	}
}

func TestRowsHaveScores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, graded(matches, reward), prompts(20), nil)
		d.work(time.Minute, scoredBy(t, d, takes(time.Second)))
		doc := d.shard()
		if doc.Result == nil {
			t.Fatalf("the shard has no result: %+v", doc)
		}
		checkScores(t, hosttest.Object(t, d.Ports, doc.Result.Key), 20, "")
	})
}

// TestFailedItemsAreNotGraded has an item whose request is refused, and a bad line.
func TestFailedItemsAreNotGraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := prompts(1) + `{"id":"no","prompt":"bad","want":"bad"}` + "\nnonsense\n"
		d := newFixture(t, graded(matches), file,
			map[string][]step{"bad": times(9, fails(fault.Invalid, fault.TooLong))})
		d.work(time.Minute)
		rows := hosttest.Object(t, d.Ports, d.shard().Result.Key)
		if n := strings.Count(rows, `"scores"`); n != 1 || strings.Count(rows, "\n") != 3 {
			t.Errorf("%d rows have scores, want only the answered one:\n%s", n, rows)
		}
	})
}

func TestAnswersThatWaitForScoresHoldNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{})
		d := newFixture(t, graded(matches, reward), prompts(32), nil)
		service := func(ctx context.Context) error { <-asked; return takes(0)(ctx) }
		d.work(time.Second, scoredBy(t, d, service))
		if n := len(d.engine.requests); n != 32 { // four times the worker's slots
			t.Errorf("%d requests while the scoring service hangs, want 32", n)
		}
		if doc := d.shard(); doc.State != shard.Running {
			t.Errorf("the shard is %s before it has its scores", doc.State)
		}
		close(asked)
		advance(time.Second)
		checkScores(t, hosttest.Object(t, d.Ports, d.shard().Result.Key), 32, "")
	})
}

// TestDrainKeepsAnswersWithoutScores drains a worker whose scoring service hangs.
func TestDrainKeepsAnswersWithoutScores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, graded(matches, reward), prompts(5), map[string][]step{`"p4"`: times(1, hangs(0, 0))})
		d.work(time.Second, scoredBy(t, d, takes(time.Hour)))
		d.worker.Drain("test")
		advance(10 * time.Second)
		doc := d.shard()
		if doc.State != shard.Pending || doc.Checkpoint == nil {
			t.Fatalf("the shard was not released with a checkpoint: %+v", doc)
		}
		rows, err := result.ReadCheckpoint(t.Context(), d.Blobs, *doc.Checkpoint, 5)
		if err != nil {
			t.Fatal(err)
		}
		var text []byte
		for _, r := range rows {
			text = append(text, r.Bytes...)
		}
		checkScores(t, string(text), 4, grade.Stopped)
	})
}

// TestDrainWaitsForScores drains a worker while answers wait for their scores, and
// nothing else is in flight.
func TestDrainWaitsForScores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, graded(matches, reward), prompts(5), nil)
		d.work(500*time.Millisecond, scoredBy(t, d, takes(time.Second)))
		d.worker.Drain("test")
		advance(10 * time.Second)
		doc := d.shard()
		if doc.Result == nil {
			t.Fatalf("the shard has no result: %+v", doc)
		}
		checkScores(t, hosttest.Object(t, d.Ports, doc.Result.Key), 5, "")
	})
}

// TestSuspectsAreAskedOnceWhileTheyAreGraded has an engine that crashes once while
// some items are in flight; these are asked again one by one.
func TestSuspectsAreAskedOnceWhileTheyAreGraded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crash := func(context.Context, func()) error {
			return fault.WithKind(fault.Unavailable, &engine.CrashError{Server: "s", Start: "1"}, "answer")
		}
		d := newFixture(t, graded(matches, reward), prompts(6), map[string][]step{`"p`: times(3, crash)})
		d.work(5*time.Minute, scoredBy(t, d, takes(10*time.Second)))
		doc := d.shard()
		if doc.Result == nil {
			t.Fatalf("the shard has no result: %+v", doc)
		}
		checkScores(t, hosttest.Object(t, d.Ports, doc.Result.Key), 6, "")
		if n := len(d.engine.requests); n != 6+3 {
			t.Errorf("%d requests, want one for each item and three that crashed", n)
		}
	})
}

// TestPureGradersGiveTheSameRows answers a run twice.
func TestPureGradersGiveTheSameRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all []string
		for range 2 {
			d := newFixture(t, graded(matches), prompts(40), nil)
			d.work(time.Minute)
			rows := hosttest.Object(t, d.Ports, d.shard().Result.Key)
			var kept []string
			for line := range strings.Lines(rows) {
				before, after, ok := strings.Cut(line, `"generated_at":"`)
				if !ok {
					t.Fatal(line)
				}
				kept = append(kept, before+after[strings.Index(after, `"`):])
			}
			all = append(all, strings.Join(kept, ""))
		}
		if !slices.Equal(all[:1], all[1:]) {
			t.Errorf("the rows are\n%s\nthen\n%s", all[0], all[1])
		}
	})
}
