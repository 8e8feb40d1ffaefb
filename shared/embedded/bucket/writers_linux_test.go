package bucket_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/shared/embedded/bucket"
)

// program is a process that keeps a file open and appends the lines that it is given.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines io.WriteCloser
	said  *bufio.Reader
}

// startProgram starts a program that has the file open for appending.
func startProgram(t *testing.T, path string) *program {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c",
		`exec 3>>"$1"; echo open; while read -r line; do echo "$line" >&3; echo written; done`, "sh", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{t, cmd, in, bufio.NewReader(out)}
	p.await()
	return p
}

func (p *program) await() {
	p.t.Helper()
	if _, err := p.said.ReadString('\n'); err != nil {
		p.t.Fatal(err)
	}
}

// append has the program append a line, and waits until it is in the file.
func (p *program) append(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.lines, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
	p.await()
}

// end lets the program close the file and end.
func (p *program) end() {
	p.t.Helper()
	if err := p.lines.Close(); err != nil {
		p.t.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}

// kill ends the program with SIGKILL.
func (p *program) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Error(err)
	}
	_ = p.cmd.Wait() // it was killed
}

// soon announces a file as soon as no process has it open.
var soon = bucket.WatchOptions{Quiet: time.Millisecond, Rescan: 5 * time.Millisecond}

func TestFileThatAProcessAppendsToIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, soon)
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	p := startProgram(t, filepath.Join(prompts, "x.jsonl"))
	for range 3 {
		p.append("{}")
		wantNothingBefore(t, b, prompts, announced)
	}
	p.end()
	wantNext(t, b, announced, "prompts/x.jsonl", 9)
	wantNothingBefore(t, b, prompts, announced)
}

func TestFileOfAKilledWriterIsAnnouncedAsItIs(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, soon)
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	p := startProgram(t, filepath.Join(prompts, "x.jsonl"))
	p.append(`{"prompt"`)
	wantNothingBefore(t, b, prompts, announced)
	p.kill()
	wantNext(t, b, announced, "prompts/x.jsonl", 10)
}

func TestRenamedFileThatAProcessStillWritesWaits(t *testing.T) {
	t.Parallel()
	b, prompts, announced := watch(t, soon)
	oldFile(t, filepath.Join(prompts, "first"), "first")
	wantNext(t, b, announced, "prompts/first", 5)
	part := filepath.Join(prompts, "x.jsonl.part")
	p := startProgram(t, part)
	p.append("{}")
	if err := os.Rename(part, strings.TrimSuffix(part, ".part")); err != nil {
		t.Fatal(err)
	}
	wantNothingBefore(t, b, prompts, announced)
	p.append("{}")
	p.end()
	wantNext(t, b, announced, "prompts/x.jsonl", 6)
}

func TestUnsettledSaysWhatAFileWaitsFor(t *testing.T) {
	t.Parallel()
	b, err := bucket.Open(t.TempDir(), bucket.Options{Settle: never})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	prompts := filepath.Join(b.Dir(), "prompts")
	oldFile(t, filepath.Join(prompts, "empty.jsonl"), "")
	want := func(name, text string) {
		t.Helper()
		why, err := b.Unsettled(t.Context(), "prompts/"+name)
		if err != nil || (why == "") != (text == "") || !strings.Contains(why, text) {
			t.Errorf("%s waits because %q, %v; want %q", name, why, err, text)
		}
	}
	x := filepath.Join(prompts, "x.jsonl")
	p := startProgram(t, x)
	p.append("{}")
	want("x.jsonl", "sh (process ")
	want("x.jsonl", ") has it open for writing: it becomes a run when that has closed it")
	p.end()
	want("x.jsonl", "it has just changed: it becomes a run when it has not changed for 1h0m0s")
	old := time.Now().Add(-2 * never)
	if err := os.Chtimes(x, old, old); err != nil {
		t.Fatal(err)
	}
	want("x.jsonl", "")
	writeFile(t, filepath.Join(prompts, "empty.jsonl"), "")
	want("empty.jsonl", "it is empty and was just made")
	if _, err := b.Unsettled(t.Context(), "prompts/gone.jsonl"); err == nil {
		t.Error("a file that is gone is settled")
	}
}
