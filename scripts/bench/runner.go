package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"rollout/localstack/subprocess"
	"rollout/scripts/bench/prompts"
)

// runner makes runs and measures them.
type runner struct {
	options
	report *Report
	dir    string // of programs and installations; removed at the end
	log    io.Writer
}

// say reports progress.
func (l *runner) say(format string, args ...any) { fmt.Fprintf(l.log, "bench: "+format+"\n", args...) }

// note records in the report what could not be measured.
func (l *runner) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(l.report.Notes, text) {
		l.report.Notes = append(l.report.Notes, text)
	}
	l.say("%s", text)
}

// build builds the measured programs.
func (l *runner) build(ctx context.Context) error {
	for name, pkg := range map[string]string{"rollout": "rollout/scripts/rollout", "fakellm": "rollout/scripts/fakellm"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", l.program(name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, out)
		}
	}
	return nil
}

func (l *runner) program(name string) string { return filepath.Join(l.dir, name) }

// runFolder is an installation's folder with a prompts file that is not uploaded yet.
type runFolder struct {
	dir    string
	hidden string // the file, under a name that is not an upload
	lines  int
}

// newRunFolder makes a folder with a file of n lines.
func (l *runner) newRunFolder(n, size int) (*runFolder, error) {
	return l.newFolder(n, func(path string) error { return prompts.Write(path, n, size) })
}

// newFolder makes a folder with a file of n lines that write writes.
func (l *runner) newFolder(n int, write func(path string) error) (*runFolder, error) {
	dir, err := os.MkdirTemp(l.dir, "run-")
	if err != nil {
		return nil, err
	}
	in := &runFolder{dir: dir, hidden: filepath.Join(dir, "bucket", "prompts", ".p"), lines: n}
	if err := os.MkdirAll(filepath.Dir(in.hidden), 0o755); err != nil {
		return nil, err
	}
	if err := write(in.hidden); err != nil {
		return nil, err
	}
	old := time.Now().Add(-time.Minute) // an upload in progress has a newer time
	return in, os.Chtimes(in.hidden, old, old)
}

// reveal renames the file, so that it counts as uploaded.
func (in *runFolder) reveal() error {
	return os.Rename(in.hidden, filepath.Join(filepath.Dir(in.hidden), "p.jsonl"))
}

// remove deletes the folder.
func (in *runFolder) remove() error { return os.RemoveAll(in.dir) }

// usage is the time and memory of a process and its children.
type usage struct {
	wall, cpu time.Duration
	peakMiB   float64
}

// finish waits until a process ends, and returns its usage since start.
func finish(cmd *exec.Cmd, start time.Time, stderr *bytes.Buffer) (usage, error) {
	err := cmd.Wait()
	u := usage{wall: time.Since(start)}
	if s := cmd.ProcessState; s != nil {
		u.cpu = s.UserTime() + s.SystemTime()
		if r, ok := s.SysUsage().(*syscall.Rusage); ok {
			u.peakMiB = float64(r.Maxrss) / 1024
		}
	}
	if err != nil {
		return u, fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, tail(stderr.Bytes()))
	}
	return u, nil
}

// tail is the end of an output.
func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }

// runOnce answers the file with `rollout up --once` and checks that each line has a
// row.
func (l *runner) runOnce(ctx context.Context, in *runFolder, args ...string) (usage, error) {
	if err := in.reveal(); err != nil {
		return usage{}, err
	}
	cmd := exec.CommandContext(ctx, l.program("rollout"),
		append([]string{"up", "--dir", in.dir, "--once", "--listen", "off"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	if err := subprocess.Start(cmd); err != nil {
		return usage{}, err
	}
	u, err := finish(cmd, start, &stderr)
	if err != nil {
		return u, err
	}
	return u, in.complete()
}

// complete checks that the run answered each line.
func (in *runFolder) complete() error {
	found, err := filepath.Glob(filepath.Join(in.dir, "bucket", "runs", "*", "summary.json"))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the run has %d summaries, want 1", len(found))
	}
	b, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	var s struct{ Completed int }
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(filepath.Dir(found[0]), "completions.jsonl"))
	if err != nil {
		return err
	}
	rows, err := countLines(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if s.Completed != in.lines || rows != in.lines {
		return fmt.Errorf("%d of %d samples are completed, with %d rows", s.Completed, in.lines, rows)
	}
	return nil
}

func countLines(r io.Reader) (n int, err error) {
	buf := make([]byte, 1<<20)
	for {
		k, err := r.Read(buf)
		n += bytes.Count(buf[:k], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// perSample is a duration per sample, in µs.
func perSample(d time.Duration, n int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(n)
}
