package command_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"rollout/functions/diagnosis"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

func TestExplainNamesWhatBlocksARun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", 100*time.Second, run.Running)
	check(t, f.rollout("explain", "nightly"), 0,
		`run 01JD2ZQ4T5W0M1X9YB7R3K8CVE (nightly) running: 50 of 100 items (50%)
  - submitted at 2026-03-01T12:58:20Z from prompts/nightly.jsonl (), with the deployment's default config
  - planned: 100 items in 4 shards
  - sent to pool default: 4 shards; 2 are done, workers hold 0
why it is not done or not faster:
  1. no worker of pool default is alive
     → start `+"`rollout up --dir "+f.dir+"`"+`
what happens next:
  - it goes on when a worker comes; what is answered is kept
open shards (the first 2 of 2):
  - shard 2 waits to be sent
  - shard 3 waits to be sent
`)
	r := f.rollout("explain", "nightly", "--json")
	var x diagnosis.Explanation
	if err := json.Unmarshal([]byte(r.out), &x); err != nil || x.Run.Run != runA ||
		x.Causes[0].Code != diagnosis.NoWorker || x.OpenShards != 2 {
		t.Errorf("%+v, %v", x, err)
	}
}

func TestExplainFindsUnplannedItem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.put("prompts/x.jsonl", "{\"id\":\"p-16\",\"prompt\":\"a\"}\n{\"id\":\"p-17\",\"prompt\":7}\n")
	info, err := f.Bucket.Stat(t.Context(), "prompts/x.jsonl", "")
	if err != nil {
		t.Fatal(err)
	}
	f.save(record.ManifestKey(runA), record.Manifest{
		Schema: record.Schema, Run: runA, Name: "x", Dialect: "plain", CreatedAt: noon, ModelURI: "mock", Pool: "default",
		Inputs: []record.Input{{Key: "prompts/x.jsonl", Version: info.Version, Size: info.Size}},
	})
	r := f.rollout("explain", "x", "p-17")
	for _, want := range []string{"item 1 of run 01JD2ZQ4T5W0M1X9YB7R3K8CVE (x): not planned, will fail (invalid_line)\n",
		"  - item 1 is line 2 of prompts/x.jsonl, with the id \"p-17\"\n", "it is not a valid request: prompt is a number",
		"  next: it is sent to a worker after that\n"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("it lacks %q: %+v", want, r)
		}
	}
	check(t, f.rollout("explain", "x", "p-18"), 1, "",
		`no line of run 01JD2ZQ4T5W0M1X9YB7R3K8CVE has the id "p-18" (name the item by`)
	check(t, f.rollout("explain"), 2, "", "RUN is missing")
}

func TestExplainShowsMatchingEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "nightly", 100*time.Second, run.Running)
	events := f.file("events.jsonl", `{"event":"shard_claimed","run":"`+string(runA)+`","shard":2}
{"event":"sample_failed","run":"`+string(runA)+`","item":7}
{"event":"shard_claimed","run":"`+string(runB)+`","shard":2}
no JSON `+string(runA)+`
`)
	r := f.rollout("explain", "nightly", "--events-file", events)
	if want := "events in " + events + " (the last 1):\n  {\"event\":\"shard_claimed\",\"run\":\"" + string(runA) +
		"\",\"shard\":2}\n"; r.code != 0 || !strings.HasSuffix(r.out, want) {
		t.Errorf("it does not end in %q: %+v", want, r)
	}
}
