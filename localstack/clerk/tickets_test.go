package clerk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"rollout/localstack/clerk"
)

// TestExamplesAreTheClerksTickets compares examples/refunds.jsonl with what the clerk can
// judge.
func TestExamplesAreTheClerksTickets(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../examples/refunds.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	n, verdicts := 0, map[string]int{}
	for line := range bytes.Lines(b) {
		var got struct {
			Group   string `json:"group_id"`
			Content string
			Label   string
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		content, label := clerk.Ticket(n)
		if n++; got.Content != content || got.Label != label || got.Group != fmt.Sprintf("r-%03d", n) {
			t.Errorf("ticket %d is %+v, want %q, %s", n, got, content, label)
		}
		verdicts[label]++
	}
	if n != 600 || verdicts[clerk.Refund] < 200 || verdicts[clerk.Refuse] < 200 {
		t.Errorf("%d tickets: %v", n, verdicts)
	}
}
