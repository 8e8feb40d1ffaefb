package shard

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rollout/shared/fault"
)

// The field names are the document's format.
func TestDocumentJSON(t *testing.T) {
	t.Parallel()
	d := New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7)
	checkJSON(t, d, `{"schema":1,"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","shard":7,"state":"pending","attempt":0,"counts":{"ok":0}}`)
	d.State, d.Attempt, d.Term, d.Sequence, d.Worker, d.Items = Done, 2, 3, 4, "w", 5
	d.ClaimedAt = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	d.Checkpoint, d.Result, d.OutputLen = &Ref{"c", 1, "x"}, &Ref{"r", 2, "y"}, 1
	d.Sealed, d.Suspects = fault.Budget, map[int]int{9: 1}
	d.Counts = Counts{OK: 1, Failed: 4, ByClass: map[string]int{"budget": 4}, PromptTokens: 5, CompletionTokens: 6, WastedTokens: 7}
	checkJSON(t, d, `{"schema":1,"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","shard":7,"state":"done","attempt":2,"term":3,"sequence":4,`+
		`"worker":"w","claimed_at":"2025-01-01T00:00:00Z","items":5,"checkpoint":{"key":"c","length":1,"digest":"x"},`+
		`"result":{"key":"r","length":2,"digest":"y"},"output_len":1,"sealed":"budget",`+
		`"counts":{"ok":1,"failed":4,"by_class":{"budget":4},"prompt_tokens":5,"completion_tokens":6,"wasted_tokens":7},"suspects":{"9":1}}`)
}

func checkJSON(t *testing.T, d Doc, want string) {
	t.Helper()
	if b, err := json.Marshal(d); err != nil || string(b) != want {
		t.Errorf("got  %s (%v)\nwant %s", b, err, want)
	}
}

// The fullest document stays within 4 KiB: 256 suspects, every class, long
// keys.
func TestDocumentSize(t *testing.T) {
	t.Parallel()
	d := New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 99_999_999)
	d.State, d.Attempt, d.Worker = Running, 1<<60, strings.Repeat("w", 64)
	d.Checkpoint = &Ref{"work/01JD2ZQ4T5W0M1X9YB7R3K8CVE/99999999/1152921504606846976-" + strings.Repeat("n", 26), 1 << 40, strings.Repeat("d", 64)}
	d.Counts.ByClass = map[string]int{}
	for _, c := range fault.Classes {
		d.Counts.ByClass[string(c)] = 256
	}
	d.Suspects = map[int]int{}
	for n := range 256 {
		d.Suspects[n] = 2
	}
	if b, _ := json.Marshal(d); len(b) > 4<<10 {
		t.Errorf("%d bytes", len(b))
	}
}
