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

// runOf returns the id that submit must print for the object.
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

func TestSubmitPrintsTheRunID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
	r := f.rollout("submit", file)
	check(t, r, 0, string(runOf(t, f.dir, "local", "prompts/x.jsonl"))+"\n")
}

// A file that is submitted again before it is a run is a run of its own, with the config of the first. Its object does
// not replace the first one, which would then never become a run.
func TestFilesOfOneNameAreRunsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for name, initialized := range map[string]bool{"before up": false, "beside up": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, sources := t.TempDir(), t.TempDir()
			if initialized {
				dir = newFixture(t).dir
			}
			first, second := filepath.Join(sources, "x.jsonl"), filepath.Join(sources, "again", "x.jsonl")
			if err := os.Mkdir(filepath.Dir(second), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, first, "{\"prompt\":\"1\"}\n")
			write(t, filepath.Join(sources, "x.toml"), goodConfig)
			write(t, second, "{\"prompt\":\"2\"}\n")
			ids := map[string]bool{}
			for n, file := range []string{first, second, second} {
				key := []string{"prompts/x.jsonl", "prompts/x-2.jsonl", "prompts/x-3.jsonl"}[n]
				want := []string{"", "prompts/x.jsonl is not a run yet: this one is prompts/x-2.jsonl",
					"prompts/x.jsonl is not a run yet: this one is prompts/x-3.jsonl"}[n]
				r := rollout(t.Context(), "submit", file, "--dir", dir)
				check(t, r, 0, string(runOf(t, dir, "local", key))+"\n", want)
				ids[r.out] = true
				cfg, err := os.ReadFile(filepath.Join(dir, "bucket", strings.TrimSuffix(key, ".jsonl")+".toml"))
				if err != nil || string(cfg) != goodConfig {
					t.Errorf("the config of %s is %q, %v", key, cfg, err)
				}
			}
			if len(ids) != 3 {
				t.Errorf("the ids are %v", ids)
			}
		})
	}
}

func TestSubmitBeforeUpSaysWhenTheRunStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "x.jsonl")
	write(t, file, "{}\n")
	write(t, filepath.Join(dir, "rollout.toml"), "schema_version = 1\nbucket = \"mine\"\n")
	r := rollout(t.Context(), "submit", file, "--dir", dir)
	check(t, r, 0, string(runOf(t, dir, "mine", "prompts/x.jsonl"))+"\n",
		"the run will start when you start `rollout up --dir "+dir+"`")
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

func TestSubmitStoresTheConfigFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string // in the folder of x.jsonl
		args  []string
		want  string // prompts/x.toml
	}{
		"the adjacent file": {map[string]string{"x.toml": goodConfig}, nil, goodConfig},
		"--config": {map[string]string{"x.toml": "nonsense", "c.toml": goodConfig},
			[]string{"--config", "c.toml"}, goodConfig},
		"no config":                     {nil, nil, ""},
		"an installation's config only": {map[string]string{"rollout.toml": "an installation's"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t)
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

func TestSubmitRefusesInvalidFilesBeforeCopying(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		config     string            // of --config
		objects    map[string]string // in the bucket before
		want       string
	}{
		"another extension": {"x.csv", "a,b\n", "", nil,
			"convert it to JSON lines with `rollout convert x.csv x.jsonl`"},
		"a hidden file":                  {".x.jsonl", "{}\n", "", nil, "begins with a dot"},
		"UTF-16":                         {"x.jsonl", "\xff\xfe{\x00}\x00", "", nil, "UTF-16LE"},
		"compressed, without extension":  {"x.jsonl", "\x1f\x8b\x08\x00\x00", "", nil, "end its name in .jsonl.gz"},
		"not compressed, with extension": {"x.jsonl.gz", "{}\n", "", nil, "is not compressed as its name says"},
		"a bad config": {"x.jsonl", "{}\n", "schema_version = 1\n[sampling]\ntop_q = 1\ntop_p = 7\n", nil,
			"c.toml:3: sampling.top_q"},
		"a config without version": {"x.jsonl", "{}\n", "[sampling]\n", nil, "schema_version"},
		"a bad config in the bucket": {"x.jsonl", "{}\n", "", map[string]string{"prompts/x.toml": "oops"},
			"prompts/x.toml:1"},
		"a bad default in the bucket": {"x.jsonl", "{}\n", "", map[string]string{"prompts/rollout.toml": "oops"},
			"prompts/rollout.toml:1"},
		"a config for all files": {"rollout.jsonl", "{}\n", goodConfig, nil, "applies to every file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for key, text := range c.objects {
				f.put(key, text)
			}
			args := []string{"submit", f.file(c.file, c.text), "--dir", f.dir}
			if c.config != "" {
				args = append(args, "--config", f.file("c.toml", c.config))
			}
			check(t, rollout(t.Context(), args...), 2, "", c.want)
			objects, err := f.Bucket.List(t.Context(), record.PromptsPrefix, "", 10)
			if err != nil || len(objects) != len(c.objects) {
				t.Errorf("the bucket has %v (%v)", objects, err)
			}
		})
	}
}

func TestSubmitReportsAllConfigProblems(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cfg := f.file("c.toml", "schema_version = 1\n[sampling]\ntop_q = 1\ntop_p = 7\n")
	r := f.rollout("submit", f.file("x.jsonl", "{}\n"), "--config", cfg)
	check(t, r, 2, "", "c.toml:3: sampling.top_q", "c.toml:4: sampling.top_p")
}

func TestSubmitRefusesMissingFilesAndFolders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	check(t, f.rollout("submit", filepath.Join(f.dir, "none.jsonl")), 2, "", "none.jsonl: no such file")
	check(t, f.rollout("submit", f.dir), 2, "", f.dir+" is not a regular file")
	check(t, f.rollout("submit", f.file("x.jsonl", "{}\n"), "--config", "none.toml"), 2, "", "none.toml: no such file")
}

func TestSubmitRefusesFilesInTheBucket(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.put("prompts/x.jsonl", "{}\n")
	inside := filepath.Join(installation.BucketDir(f.dir), "prompts", "x.jsonl")
	link := filepath.Join(t.TempDir(), "y.jsonl")
	if err := os.Symlink(inside, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{inside, link} {
		check(t, f.rollout("submit", path), 2, "", path+" is in the bucket already")
	}
	f.put("runs/"+string(runA)+"/completions.jsonl", "{}\n")
	output := filepath.Join(installation.BucketDir(f.dir), "runs", string(runA), "completions.jsonl")
	if r := f.rollout("submit", output); r.code != 0 {
		t.Errorf("a run's output is an input like any other: %+v", r)
	}
}

func TestSubmitDoesNotReplaceAnInputInUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runA, "x", time.Minute, run.Running)
	f.save(record.OpenRunKey(runA), record.OpenRun{Schema: record.Schema, Run: runA, At: noon})
	file := f.file("x.jsonl", "{}\n")
	check(t, f.rollout("submit", file), 1, "", "run "+string(runA)+" still reads prompts/x.jsonl")
	if _, err := os.Stat(filepath.Join(installation.BucketDir(f.dir), "prompts", "x.jsonl")); !os.IsNotExist(err) {
		t.Errorf("it was copied (%v)", err)
	}
	f.addRun(runA, "x", time.Minute, run.Completed)
	if r := f.rollout("submit", file); r.code != 0 {
		t.Errorf("the run has ended: %+v", r)
	}
}

func TestSubmitWaitReturnsTheRunsExitCode(t *testing.T) {
	t.Parallel()
	for phase, code := range map[run.Phase]int{run.Completed: 0, run.CompletedWithErrors: 1, run.Stopped: 1,
		run.Failed: 1} {
		t.Run(string(phase), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			file := f.file("x.jsonl", "{}\n")
			out, errs := newSyncBuffer(), newSyncBuffer()
			ended := make(chan int, 1)
			go func() {
				ended <- command.Main(context.WithoutCancel(t.Context()), []string{"submit", file, "--wait", "--dir", f.dir},
					command.Env{Out: out, Err: errs, Clock: clock.System{}, Getenv: noEnv})
			}()
			select { // play `up`, once the id is printed
			case <-out.first:
			case got := <-ended:
				t.Fatalf("exit code %d before anything was printed: %s", got, errs)
			}
			id := identity.RunID(strings.TrimSpace(out.String()))
			f.put(record.OutputKey(id, record.CompletionsFile), "{\"id\":\"a\",\"completion\":\"Hello there\"}\n")
			f.addEndedRun(id, phase)
			if got := <-ended; got != code {
				t.Errorf("exit code %d, want %d; stderr: %s", got, code, errs)
			}
			if out.String() != string(id)+"\n" {
				t.Errorf("stdout has more than the id, which scripts read:\n%s", out)
			}
			for _, want := range []string{"first completions:\n  a  Hello there\n",
				"completions " + filepath.Join(f.dir, "bucket", "runs", string(id))} {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("stderr lacks %q:\n%s", want, errs)
				}
			}
			if failed := strings.Contains(errs.String(), "rollout: run "+string(id)); failed != (code != 0) {
				t.Errorf("stderr:\n%s", errs)
			}
		})
	}
}

func TestSubmitWaitNotesCommandsThatCanBeCopied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{}\n")
	out, errs := newSyncBuffer(), newSyncBuffer()
	ended := make(chan int, 1)
	go func() {
		ended <- command.Main(context.WithoutCancel(t.Context()), []string{"submit", file, "--wait", "--dir", f.dir},
			command.Env{Out: out, Err: errs, Clock: clock.System{}, Getenv: noEnv})
	}()
	<-out.first
	id := identity.RunID(strings.TrimSpace(out.String()))
	f.addRun(id, "x", time.Minute, run.Paused)
	<-errs.first // the paused run is shown, and its note with it
	f.end(id, run.Completed)
	<-ended
	if want := "`rollout resume " + string(id) + " --dir " + f.dir + "`"; !strings.Contains(errs.String(), want) {
		t.Errorf("stderr lacks %q:\n%s", want, errs)
	}
}

// addEndedRun stores a run of one item that ended in that phase.
func (f fixture) addEndedRun(id identity.RunID, p run.Phase) {
	f.t.Helper()
	st := run.New(id)
	st.Phase, st.Items, st.Shards, st.Complete, st.EndedAt = p, 1, 1, true, noon
	st.Counts.OK = 1
	if p != run.Completed {
		st.Counts.OK, st.Counts.Failed = 0, 1
	}
	f.save(record.CoordinatorKey(id), st)
	f.save(record.ManifestKey(id), record.Manifest{Schema: record.Schema, Run: id, Name: "x", CreatedAt: noon,
		Pool: "default", Dialect: "plain"})
}
