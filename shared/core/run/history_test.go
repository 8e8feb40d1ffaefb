package run_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/core/run"
	"rollout/shared/core/shard"
)

func TestHistoryCoversTheWholeLifeInFewPoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h run.History
		var p run.Point
		n := rapid.IntRange(1, 2000).Draw(t, "points")
		longest := rapid.IntRange(0, 1000).Draw(t, "seconds between")
		for range n {
			p.At += rapid.IntRange(0, longest).Draw(t, "seconds")
			p.Done += rapid.IntRange(0, 5000).Draw(t, "done")
			p.InFlight = rapid.IntRange(0, 4096).Draw(t, "in flight")
			p.Tokens += rapid.Int64Range(0, 1_000_000).Draw(t, "tokens")
			before := h
			h = h.With(p)
			if len(before.Points) > 0 && before.Points[len(before.Points)-1].At > h.Points[len(h.Points)-1].At {
				t.Fatal("a point was changed in the history before")
			}
		}
		if len(h.Points) > 120 || h.Points[len(h.Points)-1] != p {
			t.Fatalf("%d points, the last is %+v, want %+v", len(h.Points), h.Points[len(h.Points)-1], p)
		}
		for i, q := range h.Points[1:] {
			if q.At/h.Every <= h.Points[i].At/h.Every || q.Done < h.Points[i].Done {
				t.Fatalf("points %+v and %+v, one in %d s", h.Points[i], q, h.Every)
			}
		}
		if len(h.Points) < 60 && h.Every > 1 && p.At/h.Every > 60 && longest < h.Every/2 {
			t.Fatalf("%d points over %d s, one in %d s", len(h.Points), p.At, h.Every)
		}
		b, err := json.Marshal(h)
		if err != nil || len(b) > 3<<10 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		var again run.History
		if err := json.Unmarshal(b, &again); err != nil || cmp.Diff(h, again) != "" {
			t.Fatalf("%v, %s", err, cmp.Diff(h, again))
		}
	})
}

func TestADamagedHistoryIsEmpty(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"every":1,"points":"!"}`, `{"every":0,"points":"AAAA"}`, `{"every":1,"points":"gA"}`,
		`"x"`, `{"every":"x"}`} {
		h := run.History{Points: []run.Point{{At: 1}}}
		if err := json.Unmarshal([]byte(text), &h); err != nil || !h.IsZero() {
			t.Errorf("%s: %+v, %v", text, h, err)
		}
	}
}

// A step that has nothing else to save is not saved for its point: the counts of a step are.
func TestStepsRecordHowFarTheRunIs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := run.New("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	w := run.Observed{Shards: 2, Items: 4, Complete: true, Pool: 8, Workers: 1, InFlight: 7}
	s, _ = run.Step(s, w, run.Rules{}, nil, at)
	var done run.Event
	done.Kind, done.Shard, done.Counts.OK, done.Counts.CompletionTokens = run.ShardDone, 0, 2, 30
	s, _ = run.Step(s, w, run.Rules{}, []run.Event{done}, at.Add(5*time.Second))
	want := []run.Point{{InFlight: 7}, {At: 5, Done: 2, InFlight: 7, Tokens: 30}}
	if d := cmp.Diff(want, s.History.Points); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestTheHistoryOfAChildRunHasNoKeptRows(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	kept := shard.Counts{OK: 40, Failed: 3, Kept: 43, CompletionTokens: 900}
	w := run.Observed{Shards: 2, Items: 50, Pool: 8, Workers: 1, KeptCounts: kept}
	s, _ := run.Step(run.New("01JD2ZQ4T5W0M1X9YB7R3K8CVE"), w, run.Rules{}, nil, at)
	w.Complete = true
	s, _ = run.Step(s, w, run.Rules{}, nil, at.Add(5*time.Second))
	var done run.Event
	done.Kind, done.Shard, done.Counts.OK, done.Counts.CompletionTokens = run.ShardDone, 0, 2, 30
	s, _ = run.Step(s, w, run.Rules{}, []run.Event{done}, at.Add(9*time.Second))
	want := []run.Point{{}, {At: 5}, {At: 9, Done: 2, Tokens: 30}}
	if d := cmp.Diff(want, s.History.Points); d != "" || s.Counts.OK != 42 {
		t.Errorf("%d answers, points (-want +got):\n%s", s.Counts.OK, d)
	}
}
