package command_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/input"
	"rollout/shared/record"
)

func TestPartsOfAFileAreCheckedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n{\"prompt\":\"ho\"}\n")
	for args, want := range map[string]string{
		"--sample 1":                                "a part of a file has 2 to 100,000 lines",
		"--limit -3":                                "a part of a file has 2 to 100,000 lines",
		"--sample 0":                                "a part of a file has 2 to 100,000 lines",
		"--sample 5 --limit 5":                      "use one of them",
		"--seed 4":                                  "--seed is that of --sample",
		"--sample 5 --dry-run":                      "--dry-run checks every line and asks none",
		"--sample 5 --set sampling.top_p=2":         "sampling.top_p",
		"--limit 5 --set kind=rollout":              "mission",
		"--sample 5 --set input.dialect=vertex":     "has no line that a run can ask",
		"--sample 5 --json --set shard.items=99999": "shard.items",
	} {
		r := f.rollout(append([]string{"submit", file}, strings.Fields(args)...)...)
		if r.code != 2 || !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
	if left, err := os.ReadDir(filepath.Join(f.dir, "bucket", "prompts")); err == nil && len(left) > 0 {
		t.Errorf("the bucket has %v", left)
	}
}

// startedPart is a submission of a part whose run is announced.
type startedPart struct {
	id    identity.RunID
	out   *syncBuffer
	errs  *syncBuffer
	ended chan int
}

// startPart submits a part of the file and waits for the id of its run.
func startPart(ctx context.Context, f fixture, file string, args ...string) startedPart {
	f.t.Helper()
	p := startedPart{out: newSyncBuffer(), errs: newSyncBuffer(), ended: make(chan int, 1)}
	line := append([]string{"submit", file, "--dir", f.dir}, args...)
	go func() {
		p.ended <- command.Main(ctx, line, command.Env{Out: p.out, Err: p.errs, Clock: clock.System{}, Getenv: noEnv})
	}()
	select {
	case <-p.out.first:
	case code := <-p.ended:
		f.t.Fatalf("exit code %d before the run's id: %s", code, p.errs)
	}
	p.id = identity.RunID(strings.TrimSpace(p.out.String()))
	return p
}

// What has the name of a part in the bucket is the user's: the part gets a number, and the object stays as it is, be it
// the input of a run, a file in another packing, or a config whose prompts are yet to come.
func TestAPartReplacesNothingInTheBucket(t *testing.T) {
	t.Parallel()
	for _, taken := range []string{"x-head.jsonl", "x-head.jsonl.zst", "x-head.toml"} {
		t.Run(taken, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.put("prompts/"+taken, "the user's")
			if taken == "x-head.jsonl" { // the input of a run that has ended, which a file of that name would replace
				id := runOf(t, f.dir, "local", "prompts/x-head.jsonl")
				f.addRun(id, "mine", time.Minute, run.Completed)
			}
			file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n{\"prompt\":\"ho\"}\n{\"prompt\":\"hu\"}\n")
			for _, name := range []string{"x-head-2", "x-head-3"} {
				ctx, stop := context.WithCancel(t.Context())
				p := startPart(ctx, f, file, "--limit", "2")
				stop()
				<-p.ended
				if want := runOf(t, f.dir, "local", "prompts/"+name+".jsonl"); p.id != want {
					t.Errorf("the run is %s, and that of %s is %s", p.id, name, want)
				}
				if !strings.Contains(p.errs.String(), "prompts/x-head.jsonl is in use: this part is prompts/"+name+".jsonl") {
					t.Errorf("stderr is %s", p.errs)
				}
				config, err := input.ReadObject(t.Context(), f.Bucket, "prompts/"+name+".toml", 1<<20)
				if err != nil || !strings.Contains(string(config), `"x-head"`) ||
					!strings.Contains(string(config), `dialect = "plain"`) {
					t.Errorf("the config of %s is %q, %v", name, config, err)
				}
			}
			if got, err := input.ReadObject(t.Context(), f.Bucket, "prompts/"+taken, 1<<20); string(got) != "the user's" {
				t.Errorf("it was replaced by %q, %v", got, err)
			}
		})
	}
}

// The command that a part prints can be copied, from whatever folder, and shows no key.
func TestTheCommandOfAPartIsQuotedAndHasNoKeys(t *testing.T) {
	t.Parallel()
	f := newFixtureIn(t, filepath.Join(t.TempDir(), "my runs"))
	file := f.file("x y.jsonl", "{\"id\":\"a\",\"prompt\":\"hi\"}\n{\"id\":\"b\",\"prompt\":\"ho\"}\n")
	p := startPart(t.Context(), f, file, "--limit", "2", "--set", "request.headers.X-Key=hidden",
		"--set", "sampling.max_tokens=3")
	f.put(record.OutputKey(p.id, record.CompletionsFile),
		"{\"id\":\"a\",\"completion\":\"1\"}\n{\"id\":\"b\",\"completion\":\"2\"}\n")
	f.put(record.OutputKey(p.id, record.ErrorsFile), "")
	f.put(record.OutputKey(p.id, record.SummaryFile),
		string(record.Encode(record.Summary{Schema: record.Schema, Run: p.id, Items: 2, Completed: 2})))
	f.addEndedRun(p.id, run.Completed)
	if code := <-p.ended; code != 0 {
		t.Errorf("exit code %d: %s", code, p.errs)
	}
	for _, want := range []string{"rollout submit '" + file + "' --set 'request.headers.X-Key=(left out)' " +
		"--set sampling.max_tokens=3 --dir '" + f.dir + "'\n", "the command has no values of [request]"} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("no %s in\n%s", want, p.out)
		}
	}
	if strings.Contains(p.out.String()+p.errs.String(), "hidden") {
		t.Errorf("a key is in\n%s%s", p.out, p.errs)
	}
}
