package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// backup begins a run, and backs the state up once some of it is answered.
func (i *testInstallation) backup(s llm, file string) (id identity.RunID, backup string) {
	i.t.Helper()
	backup = filepath.Join(i.t.TempDir(), "backup")
	id = i.submit(file)
	eventually(i.t, "a shard is done", func() bool {
		r, ok := i.show(id)
		return ok && r.Items.Done > 0
	})
	do(i.t, 0, "backup", "--dir", i.dir, backup)
	return id, backup
}

// A state that breaks while several processes use it ends everything at once,
// with its name and the remedy; so does one that is found broken at the start.
// One process alone may have in memory all that it reads, and finds it then.
// Restored from an older backup, the run comes to the undisturbed end.
func TestADamagedState(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveSlowly(t, 50*time.Millisecond)
			i := install(t, s.url, workers, smallBites)
			id, backup := i.backup(s, file)
			state := filepath.Join(i.dir, "state", "state.db")
			blank(t, state)
			blank(t, state+"-wal")
			wantDamaged := func(p *process) {
				t.Helper()
				p.wantExit(3)
				p.wantStderr(state, "rollout restore")
			}
			if workers == 0 {
				i.up.crash()
			} else {
				wantDamaged(i.up)
			}
			wantDamaged(launch(t, rollout, "up", "--dir", i.dir, "--engine", s.url, "--listen", "off"))
			wantDamaged(launch(t, gpuworker, "--dir", i.dir, "--engine", s.url))

			do(t, 0, "restore", "--dir", i.dir, backup).wantStderr("state.db.before-")
			i.start()
			i.await(id, run.CompletedWithErrors)
			wantSame(t, i.outcome(id), want)
		})
	}
}

// blank overwrites a file with nothing, in place.
func blank(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, info.Size()), 0); err != nil {
		t.Fatal(err)
	}
}

// A backup that is older than the run's end: what was done since is done
// again, and what that wrote is in nobody's way.
func TestARestoreOfAnOlderBackup(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 2, smallBites)
	id, backup := i.backup(s, file)
	i.ends(id)
	late := i.submit(write(t, filepath.Join(t.TempDir(), "late.jsonl"), simple(20)))
	i.ends(late)
	wantLate := i.outcome(late)
	do(t, 2, "restore", "--dir", i.dir, backup).wantStderr("already runs the installation")
	i.up.crash()

	do(t, 0, "restore", "--dir", i.dir, backup)
	i.start()
	for run, want := range map[identity.RunID]outcome{id: want, late: wantLate} {
		i.ends(run)
		wantSame(t, i.outcome(run), want)
	}
	if all := i.runs(); len(all) != 2 {
		t.Errorf("there are %d runs, want the two", len(all))
	}
}
