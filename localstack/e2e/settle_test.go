package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/core/run"
)

// quickSettle is a config in which a file is complete soon after its last change.
const quickSettle = smallShards + "[input]\nsettle = \"200ms\"\n"

// A program that writes a file slowly, and rests longer than the settle time between two
// lines, makes one run of all lines. The status names the program meanwhile.
func TestSlowWriterMakesOneRun(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, quickSettle)
	path := i.bucket("prompts/slow.jsonl")
	writer := shell(t, `for n in 1 2 3 4 5; do echo "{\"prompt\":\"$n\"}"; sleep 0.7; done > "`+path+`"`)
	eventually(t, "the status says what the file waits for", func() bool {
		p := do(t, 0, "status", "--dir", i.dir)
		out := strings.Join(strings.Fields(p.stdoutText()+p.stderrText()), " ")
		return strings.Contains(out, "prompts/slow.jsonl: ") && strings.Contains(out, "has it open for writing")
	})
	writer.wantExit(0)
	s := i.onlyRunOf("slow.jsonl")
	if s.Phase != run.Completed || s.Items.Done != 5 {
		t.Errorf("the run is %s with %d answers, want completed with 5", s.Phase, s.Items.Done)
	}
}

// A program that is killed in the middle of its file leaves a run of what is there, and one
// that renames its file into place makes a run of the whole.
func TestKilledWriterAndRenamedFileAreRuns(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, quickSettle)
	killed := i.bucket("prompts/killed.jsonl")
	writer := shell(t, `exec 3> "`+killed+`"; printf '{"prompt":"a"}\n{"prompt":"b"}\n{"pro' >&3; sleep 600`)
	eventually(t, "the file has bytes", func() bool {
		info, err := os.Stat(killed)
		return err == nil && info.Size() > 0
	})
	part := write(t, i.bucket("prompts/whole.jsonl.part"), "{\"prompt\":\"a\"}\n")
	if err := os.Rename(part, strings.TrimSuffix(part, ".part")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(filepath.Dir(part), "never.jsonl.tmp"), "{\"prompt\":\"a\"}\n")
	if s := i.onlyRunOf("whole.jsonl"); s.Phase != run.Completed || s.Items.Done != 1 {
		t.Errorf("the run of the renamed file is %s with %d answers", s.Phase, s.Items.Done)
	}
	if n := len(i.runs()); n != 1 {
		t.Errorf("%d runs while a program writes the other file", n)
	}
	writer.killGroup()
	if s := i.onlyRunOf("killed.jsonl"); s.Phase != run.CompletedWithErrors || s.Items.Done != 2 || s.Items.Failed != 1 {
		t.Errorf("the run of the killed program is %s with %d answers, %d failed", s.Phase, s.Items.Done, s.Items.Failed)
	}
	p := do(t, 0, "status", "--dir", i.dir)
	if out := p.stdoutText() + p.stderrText(); strings.Contains(out, "never.jsonl") {
		t.Errorf("the status names a partial file:\n%s", out)
	}
}
