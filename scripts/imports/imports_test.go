package imports

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const root = "../.."

func TestPackagesFollowTheRules(t *testing.T) {
	t.Parallel()
	files, err := Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d Go files found in %s", len(files), root)
	}
	for _, violation := range Check(files) {
		t.Error(violation)
	}
}

func TestFilesContainNothingForbidden(t *testing.T) {
	t.Parallel()
	violations, err := CheckText(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

func TestScriptsNameExistingTests(t *testing.T) {
	t.Parallel()
	violations, err := CheckTestNames(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

func TestTopLevelFoldersAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	violations, err := UnknownFolders(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		t.Error(v)
	}
}

// A package that is linked through another one escapes the rules about
// imports, so that this test asks the toolchain.
func TestProgramsDoNotLinkForbiddenPackages(t *testing.T) {
	t.Parallel()
	for _, l := range Linked {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", l.Tags)
		list.Args = append(list.Args, strings.Fields(l.Programs)...)
		list.Dir = root
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("%v: %v", list, err)
		}
		linked := strings.Fields(string(out))
		if !slices.Contains(linked, "runtime") {
			t.Fatalf("%v: %d packages, without the runtime", list, len(linked))
		}
		for _, p := range linked {
			if matchAny(l.Never, p) {
				t.Errorf("%s must not link %s: find the import with go list -deps, and take the port instead", l.Programs, p)
			}
		}
	}
}

// Each line is a file, its source, and a part of the violation, or "" if the
// file follows the rules.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, src, want string }{
		{"events/a.go", `package events; import "encoding/json"`, ""},
		{"events/a.go", `package events; import "rollout/shared/fault"`, "events may not import shared/fault"},
		{"events/a.go", `package events; import "github.com/oklog/ulid/v2"`, "only the standard library"},
		{"events/a_test.go", `package events_test; import "rollout/events"`, ""},
		{"events/internal/schemagen/a.go", `package main; import ("rollout/events"; "github.com/invopop/jsonschema")`, ""},

		{"main.go", `package main`, "package . has no rule"},
		{"cmd/rollout/main.go", `package main`, "has no rule"},
		{"shared/a.go", `package shared`, "has no rule"},
		{"shared/novel/a.go", `package novel`, "has no rule"},
		{"out/generated/a.go", `package common`, ""},
		{"scripts/util/a.go", `package util`, "does not say what it is"},
		{"scripts/a/a.go", `package helpers`, "does not say what it is"},

		{"shared/config/a.go", `package config; import "rollout/events"`, "may not import events"},
		{"shared/config/a.go", `package config; import "rollout/shared/dialect"`, "may not import shared/dialect"},
		{"shared/host/a.go", `package host; import "rollout/events"`, ""},
		{"shared/host/a.go", `package host; import "rollout/functions/plan"`, "may not import functions/plan"},

		{"shared/core/run/a.go", `package run; import "rollout/shared/core/shard"`, ""},
		{"shared/core/run/a.go", `package run; import "rollout/shared/blob"`, "may not import shared/blob"},
		{"shared/core/run/a.go", `package run; import "os"`, "is pure"},
		{"shared/core/run/a.go", `package run; import "net/http"`, "is pure"},
		{"shared/core/run/a.go", `package run; import "math/rand/v2"`, "is pure"},
		{"shared/core/run/a.go", `package run; import "log/slog"`, "is pure"},
		{"shared/core/run/a_test.go", `package run; import "os"`, ""},
		{"shared/core/run/a.go", `package run; import "time"; var x = time.Second`, ""},
		{"shared/core/run/a.go", `package run; import "time"; func f() { g(time.Now) }`, "time.Now in the pure core"},
		{"shared/core/run/a.go", `package run; import t "time"; func f() { t.Sleep(1) }`, "time.Sleep in the pure core"},
		{"shared/core/run/a.go", `package run; import . "time"; func f() { Sleep(1) }`, "dot import"},
		{"shared/core/run/a_test.go", `package run; import "time"; func f() { time.Now() }`, ""},

		{"shared/cloud/a.go", `package cloud; import ("rollout/shared/blob"; "rollout/shared/config")`, ""},
		{"shared/cloud/a.go", `package cloud; import "rollout/shared/aws"`, "may not import shared/aws"},
		{"shared/cloud/a.go", `package cloud; import "rollout/shared/installation"`, "may not import shared/installation"},
		{"shared/aws/a.go", `package aws; import "rollout/shared/cloud"`, ""},
		{"shared/aws/a.go", `package aws; import "rollout/shared/embedded/sqlite"`, "take the port"},
		{"shared/aws/a.go", `package aws; import "rollout/shared/installation"`, "only programs open an installation"},
		{"shared/embedded/sqlite/a.go", `package sqlite; import "rollout/shared/embedded/internal/filesystem"`, ""},
		{"shared/embedded/sqlite/a.go", `package sqlite; import "rollout/shared/memory"`, "take the port"},
		{"shared/embedded/bucket/a.go", `package bucket; import "rollout/shared/embedded/sqlite"`, "may not import"},
		{"shared/installation/a.go", `package installation; import ("rollout/shared/aws"; "rollout/shared/cloud")`, ""},
		{"shared/installation/a.go", `package installation; import "rollout/functions/inprocess"`, "may not import"},

		{"functions/plan/a.go", `package plan; import "rollout/gpuworker/engine"`, "may not import gpuworker/engine"},
		{"functions/plan/a.go", `package plan; import "rollout/shared/embedded/sqlite"`, "take the port"},
		{"functions/plan/a.go", `package plan; import "rollout/shared/memory"`, "take the port"},
		{"functions/plan/a_test.go", `package plan; import "rollout/shared/memory"`, ""},
		{"functions/plan/a_test.go", `package plan; import "rollout/shared/host/hosttest"`, ""},
		{"functions/plan/a.go", `package plan; import "rollout/shared/host/hosttest"`, "only tests may import the suite"},
		{"shared/host/hosttest/a.go", `package hosttest; import "rollout/shared/memory"`, ""},
		{"shared/host/hosttest/a.go", `package hosttest; import "rollout/shared/aws"`, "take the port"},
		{"functions/plan/a_test.go", `package plan; import "rollout/shared/embedded/sqlite"`, "take the port"},
		{"functions/plan/a.go", `package plan; import "rollout/shared/installation"`, "opens its cloud's driver directly"},
		{"functions/aws/plan/main.go", `package main; import "rollout/shared/aws"`, ""},
		{"functions/aws/plan/main.go", `package main; import "rollout/shared/embedded/sqlite"`, "may not import"},
		{"functions/aws/plan/main.go", `package main; import "rollout/shared/installation"`, "may not import"},
		{"functions/inprocess/a.go", `package inprocess; import "rollout/functions/plan"`, ""},
		{"functions/inprocess/a.go", `package inprocess; import "rollout/shared/embedded/sqlite"`, "take the port"},
		{"functions/inprocess/a.go", `package inprocess; import "rollout/shared/installation"`, "only programs"},

		{"gpuworker/main.go", `package main; import "rollout/shared/embedded/machine"`, ""},
		{"gpuworker/cli/a.go", `package cli; import "rollout/shared/installation"`, ""},
		{"gpuworker/worker/a.go", `package worker; import "rollout/shared/installation"`, "only programs"},
		{"gpuworker/worker/a.go", `package worker; import "rollout/functions/submit"`, "may not import functions/submit"},
		{"gpuworker/worker/a.go", `package worker; import "rollout/shared/blob/blobtest"`, "only tests may import the suite"},
		{"gpuworker/worker/a_test.go", `package worker; import "rollout/shared/blob/blobtest"`, ""},
		{"gpuworker/worker/a.go", `package worker; import "C"`, "cgo"},

		{"scripts/rollout/main.go", `package main; import ("rollout/functions/inprocess"; "rollout/gpuworker/worker")`, ""},
		{"scripts/rollout/main.go", `package main; import "rollout/shared/installation"`, ""},
		{"scripts/rollout/main.go", `package main; import "rollout/infra/aws"`, "may not import infra/aws"},
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

// TestTasksAreAllAlike holds S4-23: no code branches on the name of a benchmark or on the id of a task.
func TestTasksAreAllAlike(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`if name == "SWE-bench" {`:                   "names the benchmark SWE-bench",
		`// as HumanEval does`:                       "names the benchmark HumanEval",
		`if strings.HasPrefix(t.Task, "django__") {`: "branches on a task",
		`case strings.Contains(of.Task.ID, "web"):`:  "branches on a task",
		`if task == "q1" {`:                          "branches on a task",
		`if t.Task != "" {`:                          "",
		`x := strings.TrimPrefix(key, "task.")`:      "",
		`parallelism := "a mode of work"`:            "",
	} {
		got, err := CheckText(fstest.MapFS{"shared/a/a.go": {Data: []byte(line)}, "shared/a/a_test.go": {Data: []byte(line)}})
		if text := strings.Join(got, "\n"); err != nil || (want == "") != (text == "") || !strings.Contains(text, want) ||
			len(got) > 1 {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
}

func TestCheckText(t *testing.T) {
	t.Parallel()
	note, address := "// TO"+"DO: later", "http://169."+"254.169."+"254/"
	long := "// " + strings.Repeat("ä", MaxColumns-3)
	named := "package a\nvar laws, flaws = 1, 2\nvar awsRegion string\nvar isAWS bool\nvar SetGCPercent, gcp, isGCP int"
	got, err := CheckText(fstest.MapFS{
		".ci/run":             {Data: []byte(note)},
		"a.go":                {Data: []byte("package a\n" + note)},
		"docs/a.md":           {Data: []byte("mastodon, " + address)},
		"examples/a.jsonl":    {Data: []byte(note)},
		"scripts/a/script.sh": {Data: []byte("FIX" + "MES is another word")},
		"scripts/a/a.go":      {Data: []byte("package a\n" + long + "\n" + long + "!")},
		"shared/a/a.md":       {Data: []byte(long + long + ", AWS")},
		"shared/a/b.go":       {Data: []byte(named)},
		"shared/a/b_test.go":  {Data: []byte("package a // aws")},
		"shared/aws/a.go":     {Data: []byte(address + " of AWS")},
		"shared/gcp/x/a.go":   {Data: []byte(address)},
		"testdata/a.go":       {Data: []byte(note)},
		"scripts/rollout/command/a.go": {Data: []byte(`package command // "%d shards" is a comment's second half
f("%d shards", n); g("%s of %s items", a, b); h("the line has %d bytes", n); i("shard %d is done", n)
j("%.0f", x)
k("%.4f", loss)
// l("%d items")`)},
	})
	want := []string{
		".ci/run:1: TO" + "DO: finish it, or file an issue",
		"a.go:2: TO" + "DO: finish it, or file an issue",
		"docs/a.md:1: a metadata address outside of the cloud drivers",
		"scripts/a/a.go:3: the line has 121 characters: break it at 120",
		`scripts/rollout/command/a.go:1: "%d shards" has a plural for one thing: use figures.Of or figures.OfMany`,
		`scripts/rollout/command/a.go:2: "%d shards" has a plural for one thing: use figures.Of or figures.OfMany`,
		"scripts/rollout/command/a.go:3: %.0f writes a number in a style of its own, and perhaps -0: use package figures",
		"shared/a/b.go:3: names a cloud in a neutral package: move it behind shared/cloud",
		"shared/a/b.go:4: names a cloud in a neutral package: move it behind shared/cloud",
		"shared/a/b.go:5: names a cloud in a neutral package: move it behind shared/cloud",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestCheckTestNames(t *testing.T) {
	t.Parallel()
	got, err := CheckTestNames(fstest.MapFS{
		"Makefile":  {Data: []byte("go test -run 'TestOne|TestTwo/x' -skip TestThree")},
		"a_test.go": {Data: []byte("package a\nfunc TestOne(t *testing.T) {}\nfunc TestTwoWays(t *testing.T) {}")},
	})
	want := []string{"Makefile: no test is named TestThree: use its present name"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestUnknownFolders(t *testing.T) {
	t.Parallel()
	got, err := UnknownFolders(fstest.MapFS{"go.mod": {}, "bin/x": {}, "events/a.go": {}, "pkg/a.go": {}, ".ci/run": {}})
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "pkg: ") {
		t.Errorf("got %q, %v; want only pkg", got, err)
	}
}
