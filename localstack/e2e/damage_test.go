package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
)

// backup starts a run and backs up the state once a shard is done.
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

// Damage of the state ends every process that uses it, with an error that
// names the file and the remedy; so does damage found at the start. A single
// process may have all that it reads in memory: it finds the damage at its
// next start. After a restore of an older backup the run ends with the
// undisturbed bytes.
func TestDamagedStateEndsProcessesAndIsRestored(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveSlowly(t, 50*time.Millisecond)
			i := install(t, s.url, workers, smallShards)
			id, backup := i.backup(s, file)
			state := filepath.Join(i.dir, "state", "state.db")
			zeroFile(t, state)
			zeroFile(t, state+"-wal")
			wantDamaged := func(p *process) {
				t.Helper()
				p.wantExit(3)
				p.wantStderr(state, "rollout restore")
			}
			if workers == 0 {
				i.up.killGroup()
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

// zeroFile overwrites a file's bytes with zeros, in place.
func zeroFile(t *testing.T, path string) {
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

// The backup is older than the ends of two runs. After the restore both run
// again, and files written after the backup do not disturb them.
func TestRestoreOfAnOlderBackupRunsAgain(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 2, smallShards)
	id, backup := i.backup(s, file)
	i.awaitEnd(id)
	late := i.submit(write(t, filepath.Join(t.TempDir(), "late.jsonl"), simplePrompts(20)))
	i.awaitEnd(late)
	wantLate := i.outcome(late)
	do(t, 2, "restore", "--dir", i.dir, backup).wantStderr("already runs the installation")
	i.up.killGroup()

	do(t, 0, "restore", "--dir", i.dir, backup)
	i.start()
	for run, want := range map[identity.RunID]outcome{id: want, late: wantLate} {
		i.awaitEnd(run)
		wantSame(t, i.outcome(run), want)
	}
	if all := i.runs(); len(all) != 2 {
		t.Errorf("there are %d runs, want 2", len(all))
	}
}
