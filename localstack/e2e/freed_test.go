package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/record"
)

// results returns how many results and checkpoints of the run's shards are in the bucket.
func (i *testInstallation) results(id identity.RunID) (n int) {
	i.t.Helper()
	err := filepath.WalkDir(i.bucket(record.ShardObjectsDir(id)), func(_ string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // freed meanwhile
			return nil
		case err == nil && !e.IsDir():
			n++
		}
		return err
	})
	if err != nil {
		i.t.Error(err)
	}
	return n
}

func (i *testInstallation) has(key string) bool {
	_, err := os.Stat(i.bucket(key))
	return err == nil
}

// The results of a run that has ended are freed, also when all processes are killed while it
// ends or frees them. Retries, retries of those, show and results read its files instead.
func TestWorkFilesAreFreedThoughProcessesAreKilled(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(320))
	want := undisturbed(t, file)
	for name, moment := range map[string]func(i *testInstallation, id identity.RunID) bool{
		"when the files are written": func(i *testInstallation, id identity.RunID) bool {
			return i.has(record.OutputKey(id, record.CompletionsFile))
		},
		"when the summary is written": func(i *testInstallation, id identity.RunID) bool {
			return i.has(record.OutputKey(id, record.SummaryFile))
		},
		"when results are freed": func(i *testInstallation, id identity.RunID) bool {
			return i.has(record.OutputKey(id, record.SummaryFile)) && i.results(id) < want.Summary.Shards
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveSlowly(t, time.Millisecond)
			i := install(t, s.url, 0, smallShards)
			id := i.submit(file)
			eventually(t, name, func() bool { return moment(i, id) })
			i.up.killGroup()
			i.start()
			i.awaitEnd(id)
			wantSame(t, i.outcome(id), want)
			i.wantFreed(id)
			from := s.requests()
			parent := id
			for _, selection := range []string{"--all", "--class=invalid_line"} {
				child := i.retry(parent, selection)
				i.awaitEnd(child)
				wantSame(t, i.outcome(child), want)
				i.wantFreed(child)
				if selection == "--all" && s.requests() == from {
					t.Error("the retry of all items asked none")
				}
				parent = child
			}
			i.wantFreed(id)
			out := do(t, 1, "results", "--dir", i.dir, string(id)).stdoutText() // items failed
			if scenarios.WithoutTimes(out) != want.Completions {
				t.Error("results writes other rows than the run has")
			}
			first, _, _ := strings.Cut(want.Completions, "\n")
			shown := do(t, 0, "show", "--dir", i.dir, "--json", string(id), "#0").stdoutText()
			if !strings.Contains(scenarios.WithoutTimes(shown), first) {
				t.Errorf("show lacks the row %s:\n%s", first, shown)
			}
		})
	}
}

// retry starts a retry of an ended run.
func (i *testInstallation) retry(parent identity.RunID, selection string) identity.RunID {
	i.t.Helper()
	return identity.RunID(strings.TrimSpace(do(i.t, 0, "retry", "--dir", i.dir, string(parent), selection).stdoutText()))
}

// wantFreed waits until no result of the run's shards is left, and checks that the index is.
func (i *testInstallation) wantFreed(id identity.RunID) {
	i.t.Helper()
	eventually(i.t, "the results of run "+string(id)+" are freed", func() bool { return i.results(id) == 0 })
	if !i.has(record.FileEntriesKey(id)) {
		i.t.Errorf("the entries of run %s are gone", id)
	}
}

// A command that ends with its run frees the work files before it ends, unless the config
// keeps them, and says what is kept.
func TestOnceFreesBeforeItEnds(t *testing.T) {
	t.Parallel()
	for keep, texts := range map[string][]string{
		"index": {"kept", " of answers, ", " of index for show and retry, ",
			" of input in prompts/; the other work files are freed"},
		"all": {"kept", " of work files (storage.keep_work)"},
	} {
		t.Run(keep, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, filepath.Join(dir, "rollout.toml"), "schema_version = 1\n"+smallShards+
				"[storage]\nkeep_work = \""+keep+"\"\n")
			write(t, filepath.Join(dir, "bucket/prompts/x.jsonl"), simplePrompts(60))
			p := launch(t, rollout, "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off")
			p.wantExit(0)
			p.wantStderr(texts...)
			i := &testInstallation{t: t, dir: dir}
			runs, err := os.ReadDir(i.bucket("runs"))
			if err != nil || len(runs) != 1 {
				t.Fatalf("%v, %v", runs, err)
			}
			if n := i.results(identity.RunID(runs[0].Name())); (n > 0) != (keep == "all") {
				t.Errorf("%d results are left", n)
			}
		})
	}
}
