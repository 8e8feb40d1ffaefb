package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"rollout/shared/core/run"
)

// copyFolder copies a folder with cp, with all that killed processes left in it. Its files get
// new inodes and, if touched is set, the modification time of now.
func copyFolder(t *testing.T, from, to string, touched bool) {
	t.Helper()
	options := "-Rp"
	if touched {
		options = "-R"
	}
	if out, err := exec.CommandContext(t.Context(), "cp", options, from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// once runs `up --once` over a folder to its end.
func once(t *testing.T, dir, engine string, code int) *process {
	t.Helper()
	return do(t, code, "up", "--once", "--dir", dir, "--engine", engine, "--listen", "off")
}

// A completed run is known again wherever its folder went, and nothing of it is asked.
func TestMovedFolderAsksNothingOfACompletedRunAgain(t *testing.T) {
	t.Parallel()
	s := serve(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bucket", "prompts", "x.jsonl"), simplePrompts(50))
	write(t, filepath.Join(dir, "bucket", "prompts", "packed.jsonl.gz"), gzipped(t, simplePrompts(20)))
	once(t, dir, s.url, 0)
	asked := s.requests()
	for name, move := range map[string]func(t *testing.T) (moved string){
		"copied with its times": func(t *testing.T) string {
			moved := filepath.Join(t.TempDir(), "copy")
			copyFolder(t, dir, moved, false)
			return moved
		},
		"copied without its times": func(t *testing.T) string {
			moved := filepath.Join(t.TempDir(), "copy")
			copyFolder(t, dir, moved, true)
			return moved
		},
		"restored from a backup": func(t *testing.T) string {
			backup, moved := filepath.Join(t.TempDir(), "backup"), t.TempDir()
			do(t, 0, "backup", backup, "--dir", dir)
			copyFolder(t, filepath.Join(dir, "bucket"), filepath.Join(moved, "bucket"), true)
			do(t, 0, "restore", backup, "--dir", moved)
			return moved
		},
	} {
		t.Run(name, func(t *testing.T) {
			moved := move(t)
			for range 2 { // the second time it need not compare
				once(t, moved, s.url, 0).wantStderr("nothing to answer")
			}
			if n := s.requests(); n != asked {
				t.Errorf("%d requests more", n-asked)
			}
			later := time.Now().Add(time.Minute)
			for _, file := range []string{"x.jsonl", "packed.jsonl.gz"} {
				if err := os.Chtimes(filepath.Join(moved, "bucket", "prompts", file), later, later); err != nil {
					t.Fatal(err)
				}
			}
			once(t, moved, s.url, 0).wantStderr("nothing to answer")
			write(t, filepath.Join(moved, "bucket", "prompts", "x.jsonl"), simplePrompts(49)+"{\"prompt\":\"other\"}\n")
			once(t, moved, s.url, 0).wantStderr("50 of 50 items answered")
			if n := s.requests(); n != asked+50 {
				t.Errorf("%d requests for another input of 50 lines", n-asked)
			}
			asked = s.requests()
		})
	}
}

// An open run goes on in a copy of its folder: its answers are kept, and the others asked.
func TestMovedFolderContinuesItsOpenRuns(t *testing.T) {
	t.Parallel()
	for name, touched := range map[string]bool{"with its times": false, "without its times": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveSlowly(t, 30*time.Millisecond)
			i := install(t, s.url, 0, smallShards)
			id := i.submit(promptsFile(t, simplePrompts(160)))
			eventually(t, "some answers are kept", func() bool { st, _ := i.show(id); return st.Items.Done > 30 })
			i.up.killGroup()
			before := s.requests()
			moved := filepath.Join(t.TempDir(), "copy")
			copyFolder(t, i.dir, moved, touched)
			i.dir = moved
			i.start()
			i.awaitEnd(id)
			if all := i.runs(); len(all) != 1 || all[0].Phase != run.Completed || all[0].Items.Done != 160 {
				t.Errorf("%d runs, the newest is %s with %d answers", len(all), all[0].Phase, all[0].Items.Done)
			}
			if n := s.requests(); n >= before+160 {
				t.Errorf("%d requests after the move: nothing was kept", n-before)
			}
		})
	}
}

// A run that paused because its input is gone goes on with the same bytes. They are no new
// run, whether the user resumes it before or after they are noticed.
func TestInputThatIsPutBackIsNoNewRun(t *testing.T) {
	t.Parallel()
	s := serveSlowly(t, 30*time.Millisecond)
	i := install(t, s.url, 0, smallShards)
	content := simplePrompts(400)
	file := filepath.Join(t.TempDir(), "x.jsonl")
	id := i.submit(write(t, file, content))
	eventually(t, "the run is under way", func() bool { return s.requests() > 10 })
	if err := os.Remove(i.bucket("prompts/x.jsonl")); err != nil {
		t.Fatal(err)
	}
	i.await(id, run.Paused, run.Interrupted)
	write(t, i.bucket("prompts/x.jsonl"), content)
	i.control("resume", id)
	i.awaitEnd(id)
	i.up.signal(15)
	i.up.wantExit(0)
	i.start()
	if all := i.runs(); len(all) != 1 || all[0].Phase != run.Completed || all[0].Items.Done != 400 {
		t.Errorf("%d runs, the newest is %s with %d answers", len(all), all[0].Phase, all[0].Items.Done)
	}
}
