package imports

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../.."

func TestPackagesKeepToTheArrows(t *testing.T) {
	t.Parallel()
	files, err := Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d Go files found in %s", len(files), root)
	}
	for _, breach := range Check(files) {
		t.Error(breach)
	}
}

func TestNothingIsUnfinished(t *testing.T) {
	t.Parallel()
	breaches, err := ForbiddenWords(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, breach := range breaches {
		t.Error(breach)
	}
}

func TestTopLevelFoldersAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	strangers, err := UnknownFolders(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strangers {
		t.Error(s)
	}
}

// Each line is a file, its source, and a part of the breach that it must be,
// or "" if it must pass.
func TestCheckTellsGoodFromBad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, src, want string }{
		{"events/a.go", `package events; import "encoding/json"`, ""},
		{"events/a.go", `package events; import "rollout/shared/fault"`, "events may not import shared/fault"},
		{"events/a.go", `package events; import "github.com/oklog/ulid/v2"`, "standard library alone"},
		{"events/a_test.go", `package events_test; import "rollout/events"`, ""},
		{"events/internal/schemagen/a.go", `package main; import ("rollout/events"; "github.com/invopop/jsonschema")`, ""},
		{"shared/config/a.go", `package config; import "rollout/events"`, "may not import events"},
		{"shared/config/a.go", `package config; import "rollout/shared/dialect"`, "may not import shared/dialect"},
		{"shared/host/a.go", `package host; import "rollout/events"`, ""},
		{"shared/host/a.go", `package host; import "rollout/functions/plan"`, "may not import functions/plan"},
		{"shared/a.go", `package shared`, "has no rule"},
		{"shared/novel/a.go", `package novel`, "has no rule"},
		{"main.go", `package main`, "package . has no rule"},
		{"cmd/rollout/main.go", `package main`, "has no rule"},
		{"scripts/util/a.go", `package util`, "named after no thing"},
		{"scripts/a/a.go", `package helpers`, "named after no thing"},
		{"functions/plan/a.go", `package plan; import "rollout/gpuworker/engine"`, "may not import gpuworker/engine"},
		{"functions/plan/a.go", `package plan; import "rollout/shared/embedded"`, "may not name the driver"},
		{"functions/plan/a.go", `package plan; import "rollout/shared/memory"`, "may not name the driver"},
		{"functions/plan/a_test.go", `package plan; import "rollout/shared/memory"`, ""},
		{"functions/plan/a_test.go", `package plan; import "rollout/shared/embedded"`, "may not name the driver"},
		{"functions/aws/plan/main.go", `package main; import "rollout/shared/aws"`, ""},
		{"functions/inprocess/a.go", `package inprocess; import "rollout/shared/embedded"`, ""},
		{"shared/embedded/a.go", `package embedded; import "rollout/shared/embedded/lock"`, ""},
		{"shared/embedded/a.go", `package embedded; import "rollout/shared/memory"`, "may not name the driver"},
		{"gpuworker/main.go", `package main; import "rollout/shared/embedded"`, ""},
		{"gpuworker/worker/a.go", `package worker; import "rollout/functions/submit"`, "may not import functions/submit"},
		{"gpuworker/worker/a.go", `package worker; import "rollout/shared/blob/blobtest"`, "only tests may import the suite"},
		{"gpuworker/worker/a_test.go", `package worker; import "rollout/shared/blob/blobtest"`, ""},
		{"gpuworker/worker/a.go", `package worker; import "C"`, "cgo"},
		{"scripts/rollout/main.go", `package main; import ("rollout/functions/inprocess"; "rollout/gpuworker/worker"; "rollout/shared/embedded")`, ""},
		{"scripts/rollout/main.go", `package main; import "rollout/infra/aws"`, "may not import infra/aws"},
		{"shared/core/run/a.go", `package run; import "rollout/shared/core/shard"`, ""},
		{"shared/core/run/a.go", `package run; import "rollout/shared/blob"`, "may not import shared/blob"},
		{"shared/core/run/a.go", `package run; import "os"`, "is pure"},
		{"shared/core/run/a.go", `package run; import "net/http"`, "is pure"},
		{"shared/core/run/a.go", `package run; import "math/rand/v2"`, "is pure"},
		{"shared/core/run/a.go", `package run; import "log/slog"`, "is pure"},
		{"shared/core/run/a_test.go", `package run; import "os"`, ""},
		{"shared/core/run/a.go", `package run; import "time"; var x = time.Second`, ""},
		{"shared/core/run/a.go", `package run; import "time"; func f() { g(time.Now) }`, "time.Now in the pure engine"},
		{"shared/core/run/a.go", `package run; import t "time"; func f() { t.Sleep(1) }`, "time.Sleep in the pure engine"},
		{"shared/core/run/a.go", `package run; import . "time"; func f() { Sleep(1) }`, "dot import"},
		{"shared/core/run/a_test.go", `package run; import "time"; func f() { time.Now() }`, ""},
		{"out/generated/a.go", `package common`, ""},
	} {
		files, err := Load(fstest.MapFS{c.file: {Data: []byte(c.src)}})
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(Check(files), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s with %s: got %q, want %q", c.file, c.src, got, c.want)
		}
	}
}

func TestWordsFindsNotesAndAddresses(t *testing.T) {
	t.Parallel()
	note, address := "// TO"+"DO: later", "http://169."+"254.169."+"254/"
	got, err := ForbiddenWords(fstest.MapFS{
		"a.go":                {Data: []byte("package a\n" + note)},
		"docs/a.md":           {Data: []byte("mastodon, " + address)},
		"shared/aws/a.go":     {Data: []byte(address)},
		"shared/gcp/x/a.go":   {Data: []byte(address)},
		"testdata/a.go":       {Data: []byte(note)},
		"examples/a.jsonl":    {Data: []byte(note)},
		".ci/run":             {Data: []byte(note)},
		"scripts/a/script.sh": {Data: []byte("FIX" + "MES is another word")},
	})
	want := []string{".ci/run:1: TO" + "DO: finish it, or file it", "a.go:2: TO" + "DO: finish it, or file it",
		"docs/a.md:1: a metadata address outside of the cloud drivers"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestStrangersAreFolders(t *testing.T) {
	t.Parallel()
	got, err := UnknownFolders(fstest.MapFS{"go.mod": {}, "bin/x": {}, "events/a.go": {}, "pkg/a.go": {}, ".ci/run": {}})
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "pkg: ") {
		t.Errorf("got %q, %v; want pkg alone", got, err)
	}
}
