package shard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

// TestDocumentJSON pins the document's format.
func TestDocumentJSON(t *testing.T) {
	t.Parallel()
	d := New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 7)
	const first = `{"schema":1,"run":"01JD2ZQ4T5W0M1X9YB7R3K8CVE","shard":7,`
	checkJSON(t, d, first+`"state":"pending","attempt":0,"counts":{"ok":0}}`)
	d.State, d.Attempt, d.Worker, d.Items = Done, 2, "w", 5
	d.ClaimedAt = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	d.Checkpoint, d.Result, d.OutputLen = &Ref{"c", 1, "x"}, &Ref{"r", 2, "y"}, 1
	d.Sealed, d.Suspects, d.OnProbation = fault.Budget, interval.Of(interval.Range{Lo: 8, Hi: 10}), []int{9}
	d.Crashes, d.LastCrash, d.VanishedHolders = map[int]Crashes{9: {Alone: 1, Shared: 2}}, "s", 1
	d.Counts = Counts{OK: 1, Failed: 4, ByClass: map[string]int{"budget": 4},
		PromptTokens: 5, CompletionTokens: 6, WastedTokens: 7}
	checkJSON(t, d, first+`"state":"done","attempt":2,`+
		`"worker":"w","claimed_at":"2025-01-01T00:00:00Z","items":5,"checkpoint":{"key":"c","length":1,"digest":"x"},`+
		`"result":{"key":"r","length":2,"digest":"y"},"output_len":1,"sealed":"budget",`+
		`"counts":{"ok":1,"failed":4,"by_class":{"budget":4},"prompt_tokens":5,"completion_tokens":6,"wasted_tokens":7},`+
		`"suspects":[8,2],"solo":[9],"deaths":{"9":{"alone":1,"shared":2}},"last_death":"s","vanished":1}`)
}

func checkJSON(t *testing.T, d Doc, want string) {
	t.Helper()
	if b, err := json.Marshal(d); err != nil || string(b) != want {
		t.Errorf("got  %s (%v)\nwant %s", b, err, want)
	}
}

// TestFullestDocumentStaysWithin4KiB fills a document with every class, long keys,
// every seventh item of a part of the largest shard as a suspect, and as many
// accused items as possible.
func TestFullestDocumentStaysWithin4KiB(t *testing.T) {
	t.Parallel()
	d := New("01JD2ZQ4T5W0M1X9YB7R3K8CVE", 99_999_999)
	d.State, d.Attempt, d.Worker = Running, 1<<60, strings.Repeat("w", 64)
	key := "work/01JD2ZQ4T5W0M1X9YB7R3K8CVE/99999999/1152921504606846976-" + strings.Repeat("n", 26)
	d.Checkpoint = &Ref{key, 1 << 40, strings.Repeat("d", 64)}
	d.Counts.ByClass = map[string]int{}
	for _, c := range fault.Classes {
		d.Counts.ByClass[string(c)] = 256
	}
	h := Holder{d.Worker, d.Attempt}
	for n := 60000; n < 65536; n += 7 {
		d.Suspects.Add(n)
	}
	d, _ = d.AddSuspects(h, 65535)
	d, _ = d.StartProbation(h, d.NextProbation(512).Items)
	d, _ = d.RecordCrash(h, d.OnProbation, Crash{EngineStart: strings.Repeat("s", 200)})
	d.OnProbation, d.VanishedHolders = slices.Collect(maps.Keys(d.Crashes)), 9
	accused := len(d.Crashes)
	d.Crashes = map[int]Crashes{}
	for n := range accused {
		d.Crashes[65535-n] = Crashes{Alone: 1, Shared: 9}
	}
	for n := range d.OnProbation {
		d.OnProbation[n] = 65535 - n
	}
	if b, _ := json.Marshal(d); len(b) > 4<<10 {
		t.Errorf("the document has %d bytes", len(b))
	}
}
