package command_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/scripts/rollout/batch"
)

func TestSubmitDryRunShowsTheRequestsAndCopiesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\",\"id\":\"a\",\"tag\":1}\n{\"prompt\":\"ho\",\"id\":\"b\"}\n")
	args := []string{"submit", file, "--dry-run", "--set", "model.uri=m", "--set", "sampling.max_tokens=7"}
	r := f.rollout(args...)
	if r.code != 0 || r.out != "dry-run OK: model=m inputs=2\n" {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{
		"goes to     /completions\n", "gets back   tag (1 of 2)\n", `"prompt":"ho"`, `"max_tokens":7`,
	} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in\n%s", want, r.err)
		}
	}
	var report batch.Report
	r = f.rollout(append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 0 || report.Items != 2 ||
		report.Sent["max_tokens"] != 2 || len(report.Requests) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "bucket", "prompts", "x.jsonl")); err == nil {
		t.Error("the prompts were copied")
	}
}

func TestSubmitDryRunExitsWith1IfLinesAreBadAnd2IfTheConfigIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\",\"id\":\"a\"}\n{\"prompt\":\"ho\",\"id\":\"a\"}\n{\"prompt\":1}\n")
	model := []string{"--dry-run", "--set", "model.uri=m"}
	r := f.rollout(append([]string{"submit", file}, model...)...)
	if r.code != 1 || r.out != "dry-run: model=m inputs=3 bad=2\n" ||
		!strings.Contains(r.err, `x.jsonl:2: the id "a" is that of an earlier line`) {
		t.Errorf("%+v", r)
	}
	if r := f.rollout("submit", file, "--dry-run", "--set", "sampling.top_p=2"); r.code != 2 {
		t.Errorf("a wrong setting: %+v", r)
	}
	if r := f.rollout("submit", file, "--dry-run", "--set", "kind=rollout"); r.code != 2 {
		t.Errorf("a rollout without missions: %+v", r)
	}
}

// modelServer lists models, and answers nothing else.
func modelServer(t *testing.T, models ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		var data []string
		for _, m := range models {
			data = append(data, fmt.Sprintf(`{"id":%q}`, m))
		}
		_, _ = fmt.Fprintf(w, `{"data":[%s]}`, strings.Join(data, ","))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

// A dry run asks each server of the pool for its models. One that lacks the model is a failure; one that does not
// answer is told.
func TestDryRunAsksServersForTheModel(t *testing.T) {
	t.Parallel()
	good, other := modelServer(t, "m", "n"), modelServer(t, "x")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct {
		engine string
		code   int
		want   []string
	}{
		"all have it": {fmt.Sprintf("url = %q", good), 0, []string{"lists m, n"}},
		"one does not": {fmt.Sprintf("urls = [%q, %q]", good, other), 1,
			[]string{"lacks the model m: it lists x", "1 of 2 servers"}},
		"by another name": {fmt.Sprintf("url = %q\nbody_model = {m = \"x\"}", other), 0, []string{"lists x"}},
		"a similar name": {fmt.Sprintf("url = %q", modelServer(t, "m-72b")), 0,
			[]string{"warning ", "lists m-72b, which may be another model than m"}},
		"one is down": {fmt.Sprintf("urls = [%q, %q]", good, gone.URL), 0,
			[]string{"did not tell its models", "lists m, n"}},
		"none is named": {"", 0, []string{"the config names no server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			write(t, filepath.Join(f.dir, "rollout.toml"),
				"schema_version = 1\n[engine]\n"+c.engine+"\n[[pool]]\nname = \"p\"\nmodel = \"m\"\n")
			file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
			r := f.rollout("submit", file, "--dry-run")
			for _, want := range c.want {
				if r.code != c.code || !strings.Contains(r.err, want) {
					t.Errorf("%+v, want %q", r, want)
				}
			}
			r = f.rollout("submit", file, "--dry-run", "--json")
			var report struct {
				Items   int
				Servers []struct{ Lacks bool }
			}
			if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != c.code || report.Items != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// The servers of the other roles' pools are asked for the models of those roles.
func TestDryRunAsksTheServersOfAllRoles(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	write(t, filepath.Join(f.dir, "rollout.toml"), fmt.Sprintf("schema_version = 1\n[engine]\nurl = %q\n"+
		"[engines.judges]\nurl = %q\n[[pool]]\nname = \"p\"\nmodel = \"m\"\n"+
		"[[pool]]\nname = \"j\"\nmodel = \"judge\"\nengine = \"judges\"\n", modelServer(t, "m"), modelServer(t, "x")))
	file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
	args := []string{"submit", file, "--dry-run", "--set", "model.uri=m"}
	if r := f.rollout(args...); r.code != 0 || strings.Contains(r.err, "judge") {
		t.Errorf("without a judge: %+v", r)
	}
	r := f.rollout(append(args, "--set",
		`grade=[{name="g",kind="judge",model="judge",prompt="is {answer} good?",range=[0,1]}]`)...)
	for _, want := range []string{"lists m\n", "lacks the model judge: it lists x",
		`1 of 2 servers do not list the model "judge"`} {
		if r.code != 1 || !strings.Contains(r.err, want) {
			t.Errorf("%+v, want %q", r, want)
		}
	}
}

// The pool of a run is that which submitting it finds.
func TestDryRunPlanAndPartsFindTheRunsPoolAsSubmitDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	write(t, filepath.Join(f.dir, "rollout.toml"), "schema_version = 1\n[engine]\nurl = \"mock\"\n"+
		"[[pool]]\nname = \"large\"\nmodel = \"l\"\n"+
		"[[pool]]\nname = \"default\"\nmodel = \"m\"\nrevision = \"one\"\n")
	file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
	check(t, f.rollout("submit", file, "--dry-run"), 0, "dry-run OK: model=m inputs=1\n", "no server is asked")
	if r := f.rollout("plan", file); r.code != 0 || !strings.Contains(r.out, "batch, model m\n") {
		t.Errorf("%+v", r)
	}
	for setting, want := range map[string]string{
		"model.revision=two": "the pool default serves the revision one of m, not two",
		"model.uri=other":    "no pool serves the model other",
	} {
		for _, args := range [][]string{{"submit", file, "--dry-run"}, {"submit", file, "--limit", "2"}, {"plan", file}} {
			check(t, f.rollout(append(args, "--set", setting)...), 2, "", want)
		}
	}
}

// A dry run finds graders that the run could not have, and judges whose model no pool serves.
func TestDryRunChecksGraders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	write(t, filepath.Join(f.dir, "rollout.toml"),
		"schema_version = 1\n[engine]\nurl = \"mock\"\n[[pool]]\nname = \"p\"\nmodel = \"m\"\n")
	file := f.file("x.jsonl", "{\"prompt\":\"hi\",\"answer\":\"1\"}\n")
	for grade, want := range map[string]string{
		`{name="g",kind="http",service="none"}`:                                        "none",
		`{name="g",kind="judge",model="other",prompt="is {answer} good?",range=[0,1]}`: "no pool serves the model other",
		`{name="g",kind="exact",expected="answer"}`:                                    "",
	} {
		r := f.rollout("submit", file, "--dry-run", "--set", "grade=["+grade+"]")
		if (r.code == 0) != (want == "") || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", grade, r, want)
		}
	}
}

// example returns the path of a copy of an example, with its config beside it.
func example(t *testing.T, name string) string {
	t.Helper()
	folder := t.TempDir()
	for _, ext := range []string{".toml", ".jsonl"} {
		b, err := os.ReadFile(filepath.Join("../../../examples", name+ext))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, name+ext), string(b))
	}
	return filepath.Join(folder, name+".jsonl")
}

func TestDryRunOfARolloutChecksEveryTicketAndShowsTheFirstRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := example(t, "tickets")
	r := f.rollout("submit", file, "--dry-run")
	if r.code != 0 || !strings.HasPrefix(r.out, "dry-run OK: kind=rollout model=") ||
		!strings.Contains(r.out, "tickets=60") || !strings.Contains(r.err, "first") || !strings.Contains(r.err, "POST /") {
		t.Fatalf("%+v", r)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(b)+"{\"no\":\"ticket\"}\n")
	r = f.rollout("submit", file, "--dry-run", "--json")
	var report batch.RolloutReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 1 || report.Tickets != 60 ||
		report.Refused != 1 || len(report.RefusedAt) != 1 || report.RefusedAt[0].Line != 61 || len(report.Requests) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	if r := f.rollout("submit", example(t, "refunds"), "--dry-run", "--set", "reflection.model=other"); r.code != 0 {
		t.Errorf("a rollout with a second model: %+v", r)
	}
	r = f.rollout("submit", file, "--dry-run", "--set", "grade=[{name=\"g\",kind=\"http\",service=\"none\"}]")
	if r.code != 2 {
		t.Errorf("a grader without its service: %+v", r)
	}
	if left, err := os.ReadDir(filepath.Join(f.dir, "bucket", "prompts")); err == nil && len(left) > 0 {
		t.Errorf("the bucket has %v", left)
	}
}

// A line may be a ticket, and its request one that the engine must not get.
func TestDryRunOfARolloutCountsRequestsThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := example(t, "tickets")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, `{"group_id":"o-0","mission":"refunds","messages":[{"role":"user","content":[`+
		`{"type":"image_embeds","image_embeds":"gASV"}]}]}`+"\n"+string(b))
	args := []string{"submit", file, "--dry-run", "--set", "runner.rollout_batch_size=100"}
	r := f.rollout(args...)
	if r.code != 1 || !strings.HasSuffix(r.out, " tickets=61 bad=0 bad_requests=5\n") ||
		!strings.Contains(r.err, "warning: a request of "+file+": ") ||
		!strings.Contains(r.err, "5 of the first 305 requests are invalid") {
		t.Errorf("%+v", r)
	}
	var report batch.RolloutReport
	r = f.rollout(append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 1 || report.Bad != 5 || report.Refused != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDryRunOfTrialsChecksEveryTaskAndRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := example(t, "trials")
	r := f.rollout("submit", file, "--dry-run")
	if r.code != 0 || !strings.HasPrefix(r.out, "dry-run OK: kind=trials model=") ||
		!strings.HasSuffix(r.out, " tasks=40 trials=600\n") || !strings.Contains(r.err, "plain, terse, steps") ||
		!strings.Contains(r.err, "looks       ") {
		t.Fatalf("%+v", r)
	}
	r = f.rollout("submit", file, "--dry-run", "--json")
	var report batch.TrialsReport
	err := json.Unmarshal([]byte(r.out), &report)
	if err != nil || r.code != 0 || report.Tasks != 40 || report.Items != 600 || report.Replications != 5 ||
		len(report.Variants) != 3 || len(report.Graders) != 1 || report.Sent["seed"] != 600 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := len(report.Looks); n == 0 || !slices.IsSorted(report.Looks) || report.Looks[n-1] >= 600 {
		t.Errorf("the looks are after %v trials", report.Looks)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(b)+"{\"id\":\"add-1\",\"topic\":\"sums\",\"prompt\":\"again\"}\n")
	if r := f.rollout("submit", file, "--dry-run"); r.code != 2 ||
		!strings.Contains(r.err, `line 41: line 1 has the same id "add-1"`) {
		t.Errorf("%+v", r)
	}
}

func TestDryRunOfATrainingChecksEveryRow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	folder := t.TempDir()
	write(t, filepath.Join(folder, "x.toml"), `schema_version = 1
kind = "train"
[algorithm.sft]
base_model = "rollout/tiny"
minibatch_size = 2
optimizer = { kind = "adamw", lr = 0.001 }
budget = { max_steps = 3 }
`)
	file := filepath.Join(folder, "x.jsonl")
	row := "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]}\n"
	write(t, file, row+row)
	if r := f.rollout("submit", file, "--dry-run"); r.code != 0 ||
		r.out != "dry-run OK: kind=train algorithm=sft model=rollout/tiny rows=2\n" {
		t.Errorf("%+v", r)
	}
	write(t, file, row+"{\"messages\":7}\n")
	if r := f.rollout("submit", file, "--dry-run"); r.code != 2 || !strings.Contains(r.err, "x.jsonl") {
		t.Errorf("a bad row: %+v", r)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(row + row)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	write(t, file+".gz", packed.String())
	if r := f.rollout("submit", file+".gz", "--dry-run"); r.code != 0 || !strings.HasSuffix(r.out, " rows=2\n") {
		t.Errorf("packed: %+v", r)
	}
	write(t, file+".gz", packed.String()[:packed.Len()-9])
	if r := f.rollout("submit", file+".gz", "--dry-run"); r.code != 2 || !strings.Contains(r.err, "x.jsonl.gz") {
		t.Errorf("packed, and cut short: %+v", r)
	}
}
