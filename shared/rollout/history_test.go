package rollout

import (
	"fmt"
	"slices"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/record"
)

// stages is a script of a run: each text is a stage after the one before, with the step of mission a,
// the scores so far and their sum. A batch begins, goes on with more tickets or is asked again.
func stages(t *testing.T, words ...string) (out []Stage) {
	t.Helper()
	batch, step := -1, 0
	totals := Totals{}
	for n, w := range words {
		var kind string
		var guidance int
		_, _ = fmt.Sscanf(w, "%s %d %d %f", &kind, &guidance, &totals.Scored, &totals.Score)
		s := Stage{Schema: record.Schema, Input: 1 + n, Kind: Answering, Totals: totals}
		switch kind {
		case "batch":
			batch, step = batch+1, guidance
		case "more":
			s.Replaces = true
		case "again":
			s.Restarts = 1
		case "end":
			s.Kind = Ending
		default:
			s.Kind = Summarising
		}
		s.Batch, s.Guidance = batch, map[string]int{"a": step, "b": 0}
		out = append(out, s)
	}
	return out
}

func TestHistoryHasTheMeanScoreOfEachBatchThatIsOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stages []Stage
		want   string
	}{
		"nothing yet":              {nil, ""},
		"the first is open":        {stages(t, "batch 0 0 0"), ""},
		"without scores":           {stages(t, "batch 0 0 0", "end 0 0 0"), "0: - -; "},
		"over with the next":       {stages(t, "batch 0 0 0", "batch 0 4 2"), "0: 0.5 0.5; "},
		"over at the end":          {stages(t, "batch 0 0 0", "batch 0 4 2", "end 0 8 3"), "0: 0.5 0.5; 1: 0.25 0.5; "},
		"over with a reflection":   {stages(t, "batch 0 0 0", "reflect 0 4 1", "reflect 0 4 1"), "0: 0.25 0.25; "},
		"tickets in place of some": {stages(t, "batch 0 0 0", "more 0 2 2", "batch 0 4 2"), "0: 0.5 0.5; "},
		"tickets that are anew":    {stages(t, "batch 0 0 0", "again 0 0 0", "batch 0 4 3"), "0: 0.75 0.75; "},
		"another guidance": {stages(t, "batch 0 0 0", "batch 1 2 1", "batch 1 4 3", "end 0 6 4"),
			"0: 0.5 0.5; 1: 1 1 changed; 2: 0.5 1; "},
		"the first that is known":    {stages(t, "reflect 3 9 9", "batch 3 9 9", "batch 3 11 10"), "0: 0.5 0.5; "},
		"its begin is not known":     {stages(t, "more 0 0 0", "batch 0 4 2"), ""},
		"no score after some":        {stages(t, "batch 0 0 0", "batch 0 1 1", "batch 0 1 1"), "0: 1 1; 1: - 1; "},
		"a measure before the first": {stages(t, "reflect 0 0 0", "batch 0 0 0", "end 0 2 1"), "0: 0.5 0.5; "},
	} {
		got := ""
		figure := func(f *float64) string {
			if f == nil {
				return "-"
			}
			return fmt.Sprint(*f)
		}
		for _, b := range batchScores(c.stages) {
			got += fmt.Sprint(b.Batch, ": ", figure(b.Mean), " ", figure(b.Best))
			if b.Changed {
				got += " changed"
			}
			got += "; "
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A long run's history has its last batches and steps. What was deleted is left out, and what the
// summary knows stands for it.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{Missions: []config.Mission{{Name: "a"}, {Name: "b"}, {Name: "unknown"}}})
	const all = 90
	var words []string
	for n := range all {
		words = append(words, fmt.Sprintf("batch %d %d %d", n, 2*n, n), "reflect")
	}
	for _, s := range stages(t, words...) {
		_, err := s.save(t.Context(), f.blobs, testRun)
		f.check(err)
	}
	g, err := guidance.New("a", "Decide.", nil)
	f.check(err)
	for step := range all {
		f.put(guidanceKey(testRun, "a", step), string(g.Encode()))
		g.Step, g.From = step+1, g.ContentID().String()
	}
	first, err := guidance.New("b", "Decide.", nil)
	f.check(err)
	f.put(GuidanceKey(testRun, "b", 0), string(first.Encode())) // its work was deleted
	known := record.Rollout{Guidance: map[string]int{"b": 0},
		Missions: map[string]record.Mission{"b": {Scores: []*float64{ratio(1, 4)}}}}

	h, err := ReadHistory(t.Context(), f.blobs, f.m, 2*all, known)
	f.check(err)
	if n := len(h.Batches); n != maxBatches || h.Batches[0].Batch != all-maxBatches || h.Batches[n-1].Batch != all-1 {
		t.Errorf("the batches are %+v", h.Batches)
	}
	if i := slices.IndexFunc(h.Batches, func(b BatchScore) bool { return !b.Changed }); i >= 0 {
		t.Errorf("batch %d has the guidance of the one before", h.Batches[i].Batch)
	}
	n := len(h.Revisions)
	if n != maxRevisions/2+1 || h.Revisions[0].Step != all-maxRevisions/2 || h.Revisions[n-1].Mission != "b" {
		t.Fatalf("there are %d revisions: %+v", n, h.Revisions)
	}
	if r := h.Revisions[n-1]; r.Mean == nil || *r.Mean != 0.25 || r.At.IsZero() {
		t.Errorf("the last is %+v", r)
	}

	h, err = ReadHistory(t.Context(), f.blobs, f.m, -1, known) // no stage is left
	f.check(err)
	if len(h.Batches) != 0 || len(h.Revisions) != 1 || h.Revisions[0].Mission != "b" {
		t.Errorf("without stages: %+v", h)
	}
	f.m.Run = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"
	h, err = ReadHistory(t.Context(), f.blobs, f.m, 7, known) // nothing is left
	if f.check(err); len(h.Batches)+len(h.Revisions) > 0 {
		t.Errorf("without objects: %+v", h)
	}
}
