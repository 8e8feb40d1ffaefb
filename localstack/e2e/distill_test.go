package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/record"
	files "rollout/shared/rollout"
)

// TestLearntAnswersTrainAModel runs a rollout that improves its guidance, and then both
// kinds of training on what it hands on.
func TestLearntAnswersTrainAModel(t *testing.T) {
	t.Parallel()
	s := serve(t, "--clerk")
	i := install(t, s.url, 1, "")
	id := i.submit(filepath.Join("..", "..", "examples", "refunds.jsonl"))
	i.awaitEnd(id)
	var sum record.Summary
	if err := json.Unmarshal([]byte(read(t, i.bucket(record.OutputKey(id, record.SummaryFile)))), &sum); err != nil {
		t.Fatal(err)
	}
	m := sum.Rollout.Missions["refunds"]
	if m.HoldoutAtStart == nil || m.Holdout == nil || *m.Holdout < *m.HoldoutAtStart+0.2 || !m.Gated || m.Promoted == 0 {
		t.Fatalf("the guidance is not better: %+v", m)
	}
	trained := newTrainingFixture(t)
	for kind, file := range map[string]string{"sft": files.DistillFile, "rm": files.PreferencesFile} {
		rows := read(t, i.bucket(record.OutputKey(id, file)))
		if strings.Count(rows, "\n") < 10 {
			t.Errorf("%s has %d rows", file, strings.Count(rows, "\n"))
		}
		trained.write(kind+".jsonl", rows)
		do(t, 0, "train", kind, "--config", trained.config(kind, "on-"+kind, 4, 0))
		if _, err := os.Stat(filepath.Join(trained.path("on-"+kind), "run-id")); err != nil {
			t.Errorf("the training on %s: %v", file, err)
		}
	}
}
