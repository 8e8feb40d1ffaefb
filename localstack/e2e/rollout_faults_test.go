package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/core/run"
	"rollout/shared/record"
	files "rollout/shared/rollout"
)

// TestLostAnswersAreAskedAgainAlone runs a rollout over a server that refuses one request
// in twenty as overloaded. Only what was refused is asked again, not the other answers of
// its ticket: a server sees at most 6 % more requests than there are answers.
func TestLostAnswersAreAskedAgainAlone(t *testing.T) {
	t.Parallel()
	const tickets, members = 150, 8
	s := serve(t, "--overload-every", "20", "--retry-after", "100ms", "--clerk")
	i := install(t, s.url, 2, "")
	dir := t.TempDir()
	config := strings.NewReplacer("samples = 4", "samples = 8", "[reflection]\nbatch_size = 16\ncandidates = 2\n", "",
		"[gate]\nshare = 0.4\nholdout_share = 0.15\ntickets = 80\n", "", "epochs = 3\n", "").
		Replace(read(t, filepath.Join("..", "..", "examples", "refunds.toml")))
	write(t, filepath.Join(dir, "refunds.toml"), config)
	all := strings.SplitAfter(read(t, filepath.Join("..", "..", "examples", "refunds.jsonl")), "\n")
	id := i.submit(write(t, filepath.Join(dir, "refunds.jsonl"), strings.Join(all[:tickets], "")))
	if end := i.awaitEnd(id); end.Phase != run.Completed {
		t.Errorf("it ended as %s", end.Phase)
	}
	if n := s.requests(); n < tickets*members || float64(n) > 1.06*tickets*members {
		t.Errorf("%d requests for %d answers", n, tickets*members)
	}
	rows := lines(t, read(t, i.bucket(record.OutputKey(id, files.SelectionsFile))))
	for _, l := range rows {
		var row struct {
			Members int
			Failed  map[string]int
		}
		if err := json.Unmarshal([]byte(l), &row); err != nil {
			t.Fatal(err)
		}
		if row.Members != members || len(row.Failed) > 0 {
			t.Errorf("a group is not complete: %s", l)
		}
	}
	if len(rows) != tickets {
		t.Errorf("%d tickets have a selection", len(rows))
	}
}
