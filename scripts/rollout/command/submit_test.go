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
	"rollout/shared/embedded/bucket"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/record"
)

const goodConfig = "schema_version = 1\n[sampling]\ntemperature = 0.5\n"

// runOf is the id that submit must have printed for the object.
func runOf(t *testing.T, dir, bucketName, key string) identity.RunID {
	t.Helper()
	b, err := bucket.Open(installation.BucketDir(dir), bucket.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	info, err := b.Stat(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	return identity.UploadRun(bucketName, key, info.Version)
}

func TestSubmitPrintsTheRunThatTheUploadIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	file := b.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
	r := rollout(t.Context(), "submit", file, "--dir", b.dir)
	check(t, r, 0, string(runOf(t, b.dir, "local", "prompts/x.jsonl"))+"\n")
	again := rollout(t.Context(), "submit", file, "--dir", b.dir)
	if again.code != 0 || again.out == r.out {
		t.Errorf("submitting it again is a run of its own, got %+v", again)
	}
}

func TestSubmitBeforeUpSaysWhenTheRunBegins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "x.jsonl")
	write(t, file, "{}\n")
	write(t, filepath.Join(dir, "rollout.toml"), "schema_version = 1\nbucket = \"mine\"\n")
	r := rollout(t.Context(), "submit", file, "--dir", dir)
	check(t, r, 0, string(runOf(t, dir, "mine", "prompts/x.jsonl"))+"\n", "the run will start when you start `rollout up --dir "+dir+"`")
	check(t, rollout(t.Context(), "submit", file, "--wait", "--dir", dir), 1, "", "there is no rollout state in "+dir)
	missing := filepath.Join(dir, "typo")
	check(t, rollout(t.Context(), "submit", file, "--dir", missing), 1, "", "there is no folder "+missing)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSubmitPutsTheConfigFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string // in the folder of x.jsonl
		args  []string
		want  string // prompts/x.toml
	}{
		"the file beside":           {map[string]string{"x.toml": goodConfig}, nil, goodConfig},
		"the given file":            {map[string]string{"x.toml": "nonsense", "c.toml": goodConfig}, []string{"--config", "c.toml"}, goodConfig},
		"none":                      {nil, nil, ""},
		"none, and rollout.toml is": {map[string]string{"rollout.toml": "an installation's"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			folder := t.TempDir()
			write(t, filepath.Join(folder, "x.jsonl"), "{}\n")
			for f, text := range c.files {
				write(t, filepath.Join(folder, f), text)
			}
			args := []string{"submit", filepath.Join(folder, "x.jsonl"), "--dir", b.dir}
			for i, a := range c.args {
				if i == 1 {
					a = filepath.Join(folder, a)
				}
				args = append(args, a)
			}
			if r := rollout(t.Context(), args...); r.code != 0 {
				t.Fatalf("%+v", r)
			}
			got, err := input.ReadObject(t.Context(), b.Bucket, "prompts/x.toml", 1<<20)
			if string(got) != c.want || err != nil && c.want != "" {
				t.Errorf("prompts/x.toml is %q, want %q (%v)", got, c.want, err)
			}
		})
	}
}

func TestSubmitRefusesEarlyAndCopiesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		config     string // given
		there      map[string]string
		want       string
	}{
		"not JSON lines by name":       {"x.csv", "a,b\n", "", nil, "end its name in .jsonl, .jsonl.gz or .jsonl.zst"},
		"hidden":                       {".x.jsonl", "{}\n", "", nil, "begins with a dot"},
		"UTF-16":                       {"x.jsonl", "\xff\xfe{\x00}\x00", "", nil, "UTF-16LE"},
		"packed, but not by name":      {"x.jsonl", "\x1f\x8b\x08\x00\x00", "", nil, "end its name in .jsonl.gz"},
		"packed by name alone":         {"x.jsonl.gz", "{}\n", "", nil, "is not compressed as its name says"},
		"a bad config":                 {"x.jsonl", "{}\n", "schema_version = 1\n[sampling]\ntop_q = 1\ntop_p = 7\n", nil, "c.toml:3: sampling.top_q"},
		"a config without version":     {"x.jsonl", "{}\n", "[sampling]\n", nil, "schema_version"},
		"a bad config in the bucket":   {"x.jsonl", "{}\n", "", map[string]string{"prompts/x.toml": "oops"}, "prompts/x.toml:1"},
		"a bad default in the bucket":  {"x.jsonl", "{}\n", "", map[string]string{"prompts/rollout.toml": "oops"}, "prompts/rollout.toml:1"},
		"a config that would be all's": {"rollout.jsonl", "{}\n", goodConfig, nil, "applies to every file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for key, text := range c.there {
				b.put(key, text)
			}
			args := []string{"submit", b.file(c.file, c.text), "--dir", b.dir}
			if c.config != "" {
				args = append(args, "--config", b.file("c.toml", c.config))
			}
			check(t, rollout(t.Context(), args...), 2, "", c.want)
			objects, err := b.Bucket.List(t.Context(), "", "", 10)
			if err != nil || len(objects) != len(c.there) {
				t.Errorf("the bucket has %v (%v)", objects, err)
			}
		})
	}
}

func TestSubmitReportsEveryProblemOfAConfig(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := b.file("c.toml", "schema_version = 1\n[sampling]\ntop_q = 1\ntop_p = 7\n")
	r := rollout(t.Context(), "submit", b.file("x.jsonl", "{}\n"), "--config", cfg, "--dir", b.dir)
	check(t, r, 2, "", "c.toml:3: sampling.top_q", "c.toml:4: sampling.top_p")
}

func TestSubmitRefusesWhatIsNoFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	check(t, rollout(t.Context(), "submit", filepath.Join(b.dir, "none.jsonl"), "--dir", b.dir), 2, "", "none.jsonl: no such file")
	check(t, rollout(t.Context(), "submit", b.dir, "--dir", b.dir), 2, "", b.dir+" is not a regular file")
	check(t, rollout(t.Context(), "submit", b.file("x.jsonl", "{}\n"), "--config", "none.toml", "--dir", b.dir), 2, "", "none.toml: no such file")
}

func TestSubmitRefusesWhatIsInTheBucketAlready(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put("prompts/x.jsonl", "{}\n")
	inside := filepath.Join(installation.BucketDir(b.dir), "prompts", "x.jsonl")
	link := filepath.Join(t.TempDir(), "y.jsonl")
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{inside, link} {
		check(t, rollout(t.Context(), "submit", path, "--dir", b.dir), 2, "", path+" is in the bucket already")
	}
	b.put("runs/"+string(runA)+"/completions.jsonl", "{}\n")
	output := filepath.Join(installation.BucketDir(b.dir), "runs", string(runA), "completions.jsonl")
	if r := rollout(t.Context(), "submit", output, "--dir", b.dir); r.code != 0 {
		t.Errorf("a run's output is an input like any other: %+v", r)
	}
}

func TestSubmitDoesNotReplaceAnInputInUse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.has(runA, "x", time.Minute, run.Running)
	file := b.file("x.jsonl", "{}\n")
	check(t, rollout(t.Context(), "submit", file, "--dir", b.dir), 1, "", "run "+string(runA)+" still reads prompts/x.jsonl")
	if _, err := os.Stat(filepath.Join(installation.BucketDir(b.dir), "prompts", "x.jsonl")); !os.IsNotExist(err) {
		t.Errorf("it was copied (%v)", err)
	}
	b.has(runA, "x", time.Minute, run.Completed)
	if r := rollout(t.Context(), "submit", file, "--dir", b.dir); r.code != 0 {
		t.Errorf("the run has ended: %+v", r)
	}
}

func TestSubmitAndWaitEndsWithTheRunsExitCode(t *testing.T) {
	t.Parallel()
	for phase, code := range map[run.Phase]int{run.Completed: 0, run.CompletedWithErrors: 1, run.Stopped: 1, run.Failed: 1} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			file := b.file("x.jsonl", "{}\n")
			out, errs := newSyncBuffer(), newSyncBuffer()
			ended := make(chan int, 1)
			go func() {
				ended <- command.Main(context.WithoutCancel(t.Context()), []string{"submit", file, "--wait", "--dir", b.dir},
					command.Env{Out: out, Err: errs, Clock: clock.System{}, Getenv: func(string) string { return "" }})
			}()
			select { // play `up`, once the id is printed
			case <-out.first:
			case got := <-ended:
				t.Fatalf("exit code %d before anything was printed: %s", got, errs)
			}
			id := identity.RunID(strings.TrimSpace(out.String()))
			b.put(record.OutputKey(id, record.CompletionsFile), "{\"id\":\"a\",\"completion\":\"Hello there\"}\n")
			b.ends(id, phase)
			if got := <-ended; got != code {
				t.Errorf("exit code %d, want %d; stderr: %s", got, code, errs)
			}
			if out.String() != string(id)+"\n" {
				t.Errorf("stdout has more than the id, which scripts read:\n%s", out)
			}
			for _, want := range []string{"first completions:\n  a  Hello there\n", "completions " + filepath.Join(b.dir, "bucket", "runs", string(id))} {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("stderr lacks %q:\n%s", want, errs)
				}
			}
			if said := strings.Contains(errs.String(), "rollout: run "+string(id)); said != (code != 0) {
				t.Errorf("stderr:\n%s", errs)
			}
		})
	}
}

// ends puts a run of one item there that has ended in the phase.
func (b bench) ends(id identity.RunID, p run.Phase) {
	b.t.Helper()
	st := run.New(id)
	st.Phase, st.Items, st.Shards, st.Complete, st.EndedAt = p, 1, 1, true, noon
	st.Counts.OK = 1
	if p != run.Completed {
		st.Counts.OK, st.Counts.Failed = 0, 1
	}
	b.save(record.CoordinatorKey(id), st)
	b.save(record.ManifestKey(id), record.Manifest{Schema: record.Schema, Run: id, Name: "x", CreatedAt: noon, Pool: "default"})
}
