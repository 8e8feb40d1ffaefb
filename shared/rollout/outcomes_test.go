package rollout

import (
	"context"
	"io"
	"slices"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// unreadable is a bucket whose object of that key cannot be read now.
type unreadable struct {
	blob.Store
	key string
}

func (u unreadable) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == u.key {
		return nil, blob.Info{}, fault.New(fault.Unavailable, "try again")
	}
	return u.Store.Get(ctx, key, o)
}

// TestOutcomesEndWithTheErrorOfAnObject reads a run of three batches, of which one object
// after the other cannot be read: no answer may be left out silently.
func TestOutcomesEndWithTheErrorOfAnObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{Runner: &config.Runner{RolloutBatchSize: 1}}, ticketLine("a", ""), ticketLine("b", ""),
		ticketLine("c", ""))
	want, stages := f.run(3, func(int, string) answer { return answer{text: "yes"} })
	keys := []string{record.OutputKey(testRun, record.CompletionsFile), record.OutputKey(testRun, record.ErrorsFile)}
	for _, s := range stages {
		keys = append(keys, record.AppendedKey(testRun, s.Input), stageKey(testRun, s.Input))
	}
	for _, key := range append(keys, "") {
		var got []Outcome
		var failed error
		for o, err := range Outcomes(t.Context(), unreadable{f.blobs, key}, f.m, 3) {
			if failed != nil {
				t.Fatalf("it goes on after an error of %s", key)
			}
			if failed = err; err == nil {
				got = append(got, o)
			}
		}
		if key != "" && !fault.Is(failed, fault.Unavailable) || key == "" && (failed != nil || len(got) != 3) {
			t.Errorf("without %q: %d outcomes, %v", key, len(got), failed)
		}
		for n, o := range got {
			if !slices.Equal(o.Line, []byte(want[n].Line)) {
				t.Errorf("outcome %d is of %s", n, o.Line)
			}
		}
	}
	for _, err := range Outcomes(t.Context(), f.blobs, f.m, 4) {
		if err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("an answer that no stage asked for: %v", err)
		}
	}
}
