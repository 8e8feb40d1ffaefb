package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// event is one line of an event stream.
type event map[string]any

// readEvents returns the events of a stream by name, and the names in the order of their first event.
func readEvents(t *testing.T, text string) (names []string, byName map[string][]event) {
	t.Helper()
	byName = map[string][]event{}
	for line := range strings.Lines(text) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		name, _ := e["event"].(string)
		if at, _ := e["time"].(string); name == "" || !strings.HasSuffix(at, "Z") {
			t.Errorf("an event needs its name and a time in UTC: %s", line)
		}
		if byName[name] == nil {
			names = append(names, name)
		}
		byName[name] = append(byName[name], e)
	}
	return names, byName
}

func TestEventsCoverARunFromUploadToEnd(t *testing.T) {
	t.Parallel()
	dir := newUploads(t, prompt+"\n"+`{"id":"b"}`)
	file := filepath.Join(t.TempDir(), "events.jsonl")
	r := rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off", "--events-file",
		file)
	text, err := os.ReadFile(file)
	if err != nil || r.out != "" {
		t.Fatalf("%v; standard output has %q", err, r.out)
	}
	_, got := readEvents(t, string(text))
	run, _ := got["run_submitted"][0]["run"].(string)
	for name, n := range map[string]int{
		"run_submitted": 1, "run_planned": 1, "run_ended": 1, "shard_claimed": 1, "shard_done": 1,
		"sample_completed": 1, "sample_failed": 1, "worker_registered": 1, "worker_draining": 1,
		"worker_deregistered": 1, "engine_started": 1,
	} {
		if len(got[name]) != n {
			t.Errorf("%d × %s, want %d", len(got[name]), name, n)
		}
	}
	for _, name := range []string{"run_planned", "run_phase", "run_ended", "shard_claimed", "shard_done",
		"sample_completed", "sample_failed"} {
		if len(got[name]) == 0 || got[name][0]["run"] != run {
			t.Errorf("%s is of another run: %v", name, got[name])
		}
	}
	if e := got["sample_failed"][0]; e["id"] != "b" || e["class"] != "invalid_line" {
		t.Errorf("the failed item: %v", e)
	}
	if strings.Contains(string(text), "Hello") {
		t.Errorf("events tell a prompt:\n%s", text)
	}

	r = rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off", "--events")
	if names, _ := readEvents(t, r.out); len(names) == 0 {
		t.Error("--events writes nothing to standard output")
	}
	check(t, rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--events", "--events-file",
		file), 2, "", "exclude each other")
	check(t, rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--events-file", dir), 2, "",
		"--events-file")
}
