package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// planned is what plan --json prints, as far as tests read it.
type planned struct {
	Model, Config string
	Shards, Items int
	Settings      []struct{ Key, Value, From string }
	Ranges        []struct{ Shards, Items int }
}

func TestPlanShowsCutsAndWhereSettingsComeFrom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", strings.Repeat("{\"prompt\":\"hi\"}\n", 10))
	write(t, filepath.Join(filepath.Dir(file), "x.toml"),
		goodConfig+"[request.headers]\nX-Key = \"hidden\"\n[model]\nuri = \"m\"\n")
	args := []string{"plan", file, "--set", "shard.items=4", "--set", "sampling.max_tokens=9"}
	r := f.rollout(append(args, "--json")...)
	var got planned
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if got.Model != "m" || got.Shards != 3 || got.Items != 10 || len(got.Ranges) != 1 ||
		!strings.HasSuffix(got.Config, "x.toml") {
		t.Errorf("%+v", got)
	}
	from := map[string]string{}
	for _, s := range got.Settings {
		from[s.Key] = s.Value + " " + s.From
	}
	for key, want := range map[string]string{
		"shard.items": "4 --set", "sampling.max_tokens": "9 --set", "limits.failures": "3 default",
		"sampling.temperature": "0.5 " + got.Config, "model.uri": "\"m\" " + got.Config,
		"request.headers.X-Key": "*** " + got.Config,
	} {
		if from[key] != want {
			t.Errorf("%s is %q, want %q", key, from[key], want)
		}
	}
	r = f.rollout(args...)
	for _, want := range []string{"10 items in 3 shards of 1 range, 2 to 4 items each", "shard.items", "--set"} {
		if r.code != 0 || !strings.Contains(r.out, want) || strings.Contains(r.out, "hidden") {
			t.Errorf("%+v, want %q", r, want)
		}
	}
	if left, err := os.ReadDir(filepath.Join(f.dir, "bucket", "prompts")); err == nil && len(left) > 0 {
		t.Errorf("the bucket has %v", left)
	}
	for text, args := range map[string][]string{
		"and there is no file":          {"plan", "nightly", "--set", "shard.items=4"},
		"there is no run":               {"plan", "nightly"},
		"shard.items: must be between":  {"plan", file, "--set", "shard.items=-1"},
		"is not a cut of its file":      {"plan", example(t, "tickets")},
		"name a readable file of JSON":  {"plan", filepath.Join(t.TempDir(), "none.jsonl")},
		"rollout: FILE|RUN is missing ": {"plan"},
	} {
		if r := f.rollout(args...); r.code == 0 || !strings.Contains(r.err, text) {
			t.Errorf("%v: %+v, want %q", args, r, text)
		}
	}
}

// The plan of a run is that of its file, with the settings in its manifest.
func TestPlanOfARunIsThatOfItsFile(t *testing.T) {
	t.Parallel()
	dir := newUploads(t)
	folder := t.TempDir()
	file := filepath.Join(folder, "x.jsonl")
	write(t, file, strings.Repeat("{\"prompt\":\"hi\"}\n", 50))
	write(t, filepath.Join(folder, "x.toml"), "schema_version = 1\n[shard]\nitems = 7\n")
	var before, after planned
	r := rolloutNow(t.Context(), "plan", file, "--dir", dir, "--json")
	if err := json.Unmarshal([]byte(r.out), &before); err != nil || before.Shards != 8 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r := rolloutNow(t.Context(), "submit", file, "--dir", dir); r.code != 0 {
		t.Fatal(r.err)
	}
	up := rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off")
	r = rolloutNow(t.Context(), "plan", "x", "--dir", dir, "--json")
	if err := json.Unmarshal([]byte(r.out), &after); err != nil || up.code != 0 || after.Shards != 8 ||
		after.Items != 50 || len(after.Ranges) != 1 || after.Ranges[0].Shards != 8 || after.Config != "prompts/x.toml" {
		t.Errorf("%+v, %v, %+v", r, err, up)
	}
	r = rolloutNow(t.Context(), "plan", "x", "--dir", dir)
	if !strings.Contains(r.out, "50 items in 8 shards of 1 range") {
		t.Errorf("%+v", r)
	}
}
