package finalize_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/finalize"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// newGraded returns a stopped run of 6 shards of 2 items with the graders a and b.
// One shard has an error row, one is sealed with a checkpoint of one item, one
// without, and two were never sent.
func newGraded(t *testing.T) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.Manifest(2)
	m.Config.Grades = []config.Grade{{Name: "a", Kind: config.GradeExact}, {Name: "b", Kind: config.GradeHTTP}}
	inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 12))
	row := func(id string, scores ...grade.Score) []byte {
		members := grade.AppendMembers(nil, m.Config.Grades, [][]grade.Score{scores})
		return fmt.Appendf(nil, "{\"id\":%q,\"completion\":%q,%s}\n", id, strings.Repeat("x", 300), members)
	}
	none := grade.Missing
	d.commit(0, []result.Row{{Item: 0, Bytes: row("0", grade.Score{Value: 1}, grade.Score{Value: 0.25})},
		{Item: 1, Bytes: row("1", grade.Score{Value: 0}, none(grade.TimedOut))}})
	d.commit(1, []result.Row{{Item: 0, Class: fault.Refused, Bytes: []byte("e2\n")},
		{Item: 1, Bytes: row("3", none(grade.NoExpected), none(grade.TimedOut))}})
	d.seal(2, []result.Row{{Item: 1, Bytes: row("5", grade.Score{Value: 1}, grade.Score{Value: 0.5})}})
	d.seal(3, nil)
	d.save(run.Finalizing, 4)
	return d
}

func (d fixture) summary() (s record.Summary) {
	d.t.Helper()
	if err := input.ReadJSON(d.t.Context(), d.Blobs, record.OutputKey(id, record.SummaryFile), &s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

func ptr[T any](v T) *T { return &v }

// TestSummaryHasMeanScores writes the run in one stream, and in segments.
func TestSummaryHasMeanScores(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(d fixture){
		"stream": func(d fixture) {
			if err := d.finalize(); err != nil {
				t.Fatal(err)
			}
		},
		"segments": func(d fixture) {
			handleAll(t, d.Ports, inSegments(d.Ports, finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1, MaxShards: 1}))
		},
	} {
		d := newGraded(t)
		write(d)
		got := d.summary()
		if d := cmp.Diff(&record.MeanScore{Mean: ptr(0.6875), Scored: 2, Missing: 2}, got.Score); d != "" {
			t.Errorf("%s: score (-want +got)\n%s", name, d)
		}
		want := map[string]record.MeanScore{
			"a": {Mean: ptr(2.0 / 3), Scored: 3, Missing: 1, MissingByCause: map[grade.Cause]uint64{grade.NoExpected: 1}},
			"b": {Mean: ptr(0.375), Scored: 2, Missing: 2, MissingByCause: map[grade.Cause]uint64{grade.TimedOut: 2}},
		}
		if d := cmp.Diff(want, got.Scores); d != "" {
			t.Errorf("%s: scores (-want +got)\n%s", name, d)
		}
		if got.Completed != 4 || got.Failed != 8 {
			t.Errorf("%s: %d completed, %d failed, want 4 and 8", name, got.Completed, got.Failed)
		}
	}
}

func TestSummaryWithoutGradersHasNoScores(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	if text := d.file(record.SummaryFile); strings.Contains(text, "score") {
		t.Errorf("the summary is %s", text)
	}
}

// TestRowsWithoutScoresAreReported has a row in a graded run that has none.
func TestRowsWithoutScoresAreReported(t *testing.T) {
	t.Parallel()
	d := newGraded(t)
	d.commit(1, []result.Row{{Item: 0, Bytes: []byte("{}\n")}, {Item: 1, Bytes: []byte("{}\n")}})
	if err := d.finalize(); !fault.Is(err, fault.Corrupt) {
		t.Errorf("finalize returned %v, want Corrupt", err)
	}
}
