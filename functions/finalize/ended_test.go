package finalize_test

import (
	"context"
	"testing"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/core/run"
	"rollout/shared/input"
	"rollout/shared/record"
)

// The hook gets the summary that users read, and again when finalize is repeated after a crash.
func TestEndIsReportedAfterTheSummaryIsWritten(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var got []record.Summary
	f := finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), finalize.Options{
		OnEnded: func(_ context.Context, m record.Manifest, sum record.Summary) {
			if m.Run != id || !d.exists(record.SummaryFile) {
				t.Errorf("the end of run %s is reported before it has a summary", m.Run)
			}
			got = append(got, sum)
		}})
	d.save(run.Ending, 3)
	if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil || len(got) != 0 {
		t.Fatalf("a run that goes on is reported %d times, %v", len(got), err)
	}
	d.save(run.Finalizing, 4)
	for range 2 {
		if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 2 || got[0].Phase != "stopped" || got[1].Items != got[0].Items || got[1].Phase != got[0].Phase {
		t.Errorf("reported %+v", got)
	}
}
