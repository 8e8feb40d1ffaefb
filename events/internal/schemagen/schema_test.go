package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const folder = "../../schema"

func TestSchemaFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	want, err := schemas("rollout/events/internal/schemagen", "../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range want {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s differs from the structs (%v): run go generate ./events", name, err)
		}
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if want[f.Name()] == nil {
			t.Errorf("%s does not describe an event of this version: remove it", f.Name())
		}
	}
}

func TestSchemasAcceptEveryGoldenEvent(t *testing.T) {
	t.Parallel()
	c := jsonschema.NewCompiler()
	files, err := filepath.Glob("../../testdata/v1/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	envelope, err := c.Compile(filepath.Join(folder, "envelope.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		event := parse(t, b)
		if err := envelope.Validate(event); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		payload, err := c.Compile(filepath.Join(folder, event["type"].(string)+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := payload.Validate(event["data"]); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestSchemasReject(t *testing.T) {
	t.Parallel()
	const run = `"run": "01JD2ZQ4T5W0M1X9YB7R3K8CVE"`
	for _, c := range []struct{ name, file, data, want string }{
		{"no shard", "rollout.shard.done.v1.json", `{` + run + `, "attempt": 1, "counts": {"ok": 1}}`, "shard"},
		{"a negative shard", "rollout.shard.work.v1.json",
			`{` + run + `, "shard": -1, "generation": 0, "range": 0, "row": 0, "pool": "p"}`, "minimum"},
		{"not a run id", "rollout.run.finalize.v1.json", `{"run": "../../etc"}`, "pattern"},
		{"text for a number", "rollout.control.changed.v1.json", `{` + run + `, "sequence": "1"}`, "integer"},
	} {
		s, err := jsonschema.NewCompiler().Compile(filepath.Join(folder, c.file))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Validate(any(parse(t, []byte(c.data))))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error that names %q", c.name, err, c.want)
		}
	}
}

func TestSchemasAllowFieldsOfLaterVersions(t *testing.T) {
	t.Parallel()
	files, err := schemas("rollout/events/internal/schemagen", "../..")
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(files))
	for name, b := range files {
		names = append(names, name)
		if bytes.Contains(b, []byte(`"additionalProperties": false`)) {
			t.Errorf("%s rejects unknown fields", name)
		}
	}
	if !slices.Contains(names, "rollout.shard.done.v1.json") {
		t.Errorf("ShardDone has no schema among %v", names)
	}
}

func parse(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
