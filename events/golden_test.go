package events_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"rollout/events"
)

// Golden files are messages that may still wait in a queue. They are added with
// -add and never changed.
var add = flag.Bool("add", false, "write golden files that do not exist yet, and their checksums")

const (
	goldens = "testdata/v1"
	sums    = goldens + "/SHA256SUMS"
	run     = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
)

var sent = time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)

// golden lists the payload of every file: one with all fields set, and, where they
// differ, one with only the required fields.
var golden = map[string]events.Payload{
	"object_created": events.ObjectCreated{Bucket: "local", Key: "prompts/夜 & day.jsonl",
		Version: "12-5-1700000000000000000", Size: 5},
	"object_created_found": events.ObjectCreated{Bucket: "local", Key: "prompts/a.jsonl",
		Version: "12-5-1700000000000000000", Size: 5, Found: "kept"},
	"run_submitted": events.RunSubmitted{Run: run},
	"retry_requested": events.RetryRequested{Run: run, Parent: run,
		Only: []string{"failed"}, Items: []int{3, 2}},
	"retry_with_settings": events.RetryRequested{Run: run, Parent: run,
		FinishReasons: []string{"length"}, Set: []string{"sampling.max_tokens=800"}},
	"retry_amends": events.RetryRequested{Run: run, Parent: run, Amend: &events.Amend{Replications: 5,
		Variants: `[{"name":"terse"}]`, Tasks: "more.jsonl"}},
	"batch_requested": events.BatchRequested{Run: run},
	"plan_range":      events.PlanRange{Run: run, Range: 3, Input: 1, Offset: 64 << 20, Limit: 128 << 20},
	"plan_advanced":   events.PlanAdvanced{Run: run},
	"work": events.Work{Run: run, Shard: 7, Generation: 2, Range: 3, Row: 4, Pool: "small", Term: 5,
		Sequence: 6},
	"work_bare":      events.Work{Run: run, Pool: "small"},
	"work_allowance": events.Work{Run: run, Shard: 7, Pool: "small", Allowance: 1 << 40},
	"shard_done": events.ShardDone{Run: run, Shard: 7, Attempt: 2, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF",
		Counts: events.Counts{OK: 254, Failed: 2, ByClass: map[string]int{"too_long": 1, "refused": 1},
			PromptTokens: 1 << 40, CompletionTokens: 9, WastedTokens: 1},
		Digest: strings.Repeat("0a", 32), Term: 5, Sequence: 6},
	"shard_done_bare": events.ShardDone{Run: run},
	"shard_done_machines": events.ShardDone{Run: run, Shard: 7, Attempt: 2, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF",
		Counts: events.Counts{OK: 256, Machines: map[string]events.MachineUse{
			"g6.xlarge/spot": {Busy: 1 << 40, Boot: 5, Idle: 6, NanoUSD: 7}}}},
	"shard_lost": events.ShardLost{Run: run, Shard: 7, Generation: 2, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF",
		Reason: "worker is dead since 12:00:00"},
	"shard_lost_bare": events.ShardLost{Run: run, Shard: 7},
	"released":        events.ShardReleased{Run: run, Shard: 7, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF", Attempt: 2},
	"released_used_up": events.ShardReleased{Run: run, Shard: 7, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF", Attempt: 2,
		Allowance: 1000, Spent: 1004},
	"released_used_up_dollars": events.ShardReleased{Run: run, Shard: 7, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF",
		Attempt: 2, AllowanceMicroUSD: 250_000, Spent: 1004, SpentMicroUSD: 250_310},
	"work_allowance_dollars": events.Work{Run: run, Shard: 7, Range: 1, Row: 2, Pool: "small",
		Allowance: 1000, AllowanceMicroUSD: 250_000},
	"shard_done_dollars": events.ShardDone{Run: run, Shard: 7, Attempt: 1, Worker: "01JD2ZQ4T5W0M1X9YB7R3K8CVF",
		Counts: events.Counts{OK: 3, PromptTokens: 30, TokenNanoUSD: 45_000}},
	"item_failed":      events.ItemFailed{Run: run, Shard: 7},
	"input_missing":    events.InputMissing{Run: run, Shard: 7, Reason: "prompts/a.jsonl is gone"},
	"model_missing":    events.ModelMissing{Run: run, Shard: 7, Reason: "the worker has another revision"},
	"input_changed":    events.InputChanged{Run: run, Shard: 7, Reason: "prompts/a.jsonl has other bytes from item 1792"},
	"requests_refused": events.RequestsRefused{Run: run, Shard: 7, Reason: "status 401: wrong key", Outcome: "status_401"},
	"requests_refused_control": events.RequestsRefused{Run: run, Shard: 7, Reason: "status 401: wrong key",
		Outcome: "status_401", Control: new(uint64)},
	"ring":             events.Wakeup{Run: run, Reason: "deadline"},
	"ring_bare":        events.Wakeup{Run: run},
	"control_changed":  events.ControlChanged{Run: run, Sequence: 1<<64 - 1},
	"finalize":         events.Finalize{Run: run},
	"finalize_segment": events.FinalizeSegment{Run: run, From: 7, To: 2055},
	"finalized":        events.Finalized{Run: run, Phase: "completed_with_errors"},
	"finalized_unsaid": events.Finalized{Run: run},
	"run_completed": events.RunCompleted{RunOutcome: events.RunOutcome{Run: run, Name: "nightly",
		Phase: "completed_with_errors", Items: 3, Completed: 2, Failed: 1, FailedByClass: map[string]int{"refused": 1},
		PromptTokens: 30, CompletionTokens: 20, CostUSD: 0.25, Seconds: 1.5, Summary: "runs/" + run + "/summary.json"}},
	"run_completed_bare": events.RunCompleted{RunOutcome: events.RunOutcome{Run: run, Phase: "completed"}},
	"run_failed": events.RunFailed{RunOutcome: events.RunOutcome{Run: run, Name: "nightly", Phase: "expired",
		Message: "the deadline is over"}},
	"run_stopped":      events.RunStopped{RunOutcome: events.RunOutcome{Run: run, Phase: "stopped"}},
	"run_paused":       events.RunPaused{Run: run, Name: "nightly", Phase: "paused", Reason: "status 401: wrong key"},
	"budget_low":       events.BudgetLow{Run: run, Name: "nightly", Budget: "tokens", Used: 801, Limit: 1000},
	"capacity_missing": events.CapacityMissing{PoolProblem: events.PoolProblem{Pool: "small", Reason: "none is free"}},
	"quota_reached":    events.QuotaReached{PoolProblem: events.PoolProblem{Pool: "small", Reason: "0 vCPUs"}},
	"launch_failed":    events.LaunchFailed{PoolProblem: events.PoolProblem{Pool: "small", Reason: "no such image"}},
	"boot_failed":      events.BootFailed{PoolProblem: events.PoolProblem{Pool: "small", Reason: "the engine ended"}},
	"notify_test":      events.NotifyTest{Text: "a test"},
}

func meta() events.Meta {
	return events.Meta{ID: "01JD2ZQ4T5W0M1X9YB7R3K8CVG", Source: "rollout/test", Subject: run, Time: sent, Hops: 2,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Term: 5}
}

func TestGoldenEventsDecodeAndEncodeToTheSameBytes(t *testing.T) {
	t.Parallel()
	for name, want := range golden {
		file := filepath.Join(goldens, name+".json")
		if _, err := os.Stat(file); *add && os.IsNotExist(err) {
			addGolden(t, file, want)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%v: go test ./events -add writes it", err)
			continue
		}
		b = []byte(strings.TrimSuffix(string(b), "\n"))
		e, got, err := events.Decode(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: decoded to %+v, %v; want %+v", name, got, err, want)
			continue
		}
		if e.Meta != meta() {
			t.Errorf("%s: meta is %+v, want %+v", name, e.Meta, meta())
		}
		again, err := events.Encode(got, e.Meta)
		if err != nil || string(again) != string(b) {
			t.Errorf("%s: encoded to\n%s, %v; want\n%s", name, again, err, b)
		}
	}
}

func TestEveryPayloadHasAGoldenEvent(t *testing.T) {
	t.Parallel()
	have := map[events.Type]bool{}
	for _, p := range golden {
		have[p.EventType()] = true
	}
	for _, p := range events.Payloads() {
		if !have[p.EventType()] {
			t.Errorf("%T (%s) has no golden event", p, p.EventType())
		}
	}
}

func TestGoldenFilesNeverChange(t *testing.T) {
	t.Parallel()
	if *add {
		return // TestGoldenEventsDecodeAndEncodeToTheSameBytes writes them
	}
	list, err := os.ReadFile(sums)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = true
		b, err := os.ReadFile(filepath.Join(goldens, name))
		if err != nil {
			t.Errorf("a golden file is missing: %v", err)
		} else if got := checksum(b); got != want {
			t.Errorf("%s has changed: restore it, and add a new file or a new version of the payload", name)
		}
	}
	files, err := filepath.Glob(goldens + "/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !listed[name] {
			t.Errorf("%s is not in %s", name, sums)
		}
		if _, ok := golden[strings.TrimSuffix(name, ".json")]; !ok {
			t.Errorf("no test decodes %s", name)
		}
	}
}

func addGolden(t *testing.T, file string, p events.Payload) {
	t.Helper()
	b, err := events.Encode(p, meta())
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(sums, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s  %s\n", checksum(b), filepath.Base(file)); err != nil {
		t.Fatal(err)
	}
}

func checksum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
