package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var gigabytes = flag.Float64("gb", 5, "size of BenchmarkBigInput's prompts file, in 10^9 bytes")

// BenchmarkBigInput submits one large prompts file to a process of its own and
// tells how long after the rename its first shard is dispatched, how long the
// whole plan takes, and the most memory that the process ever had.
func BenchmarkBigInput(b *testing.B) {
	bin := filepath.Join(b.TempDir(), "rollout")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "rollout/scripts/rollout")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for b.Loop() {
		dir := b.TempDir()
		prompts := filepath.Join(dir, "bucket", "prompts")
		if err := os.MkdirAll(prompts, 0o755); err != nil {
			b.Fatal(err)
		}
		hidden := filepath.Join(prompts, ".big")
		writeBig(b, hidden, int64(*gigabytes*1e9))
		old := time.Now().Add(-time.Minute) // nobody is still writing it
		if err := os.Chtimes(hidden, old, old); err != nil {
			b.Fatal(err)
		}
		measureBig(b, bin, dir, hidden)
	}
}

// writeBig writes plain lines of about 1.2 KB.
func writeBig(b *testing.B, path string, size int64) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog and reads on ", 21)
	line := []byte{}
	for n, written := 0, int64(0); written < size; n++ {
		line = append(line[:0], `{"id":"r-`...)
		line = strconv.AppendInt(line, int64(n), 10)
		line = append(append(append(line, `","prompt":"`...), text...), '"', '}', '\n')
		written += int64(len(line))
		if _, err := w.Write(line); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// measureBig lets `up` take the file up until it is planned.
func measureBig(b *testing.B, bin, dir, hidden string) {
	up := exec.CommandContext(b.Context(), bin, "up", "--dir", dir, "--engine", "mock", "--listen", "off", "--log-format", "json")
	log, err := up.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := up.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(log)
	waitFor(b, lines, "rollout is up")
	renamed := time.Now()
	if err := os.Rename(hidden, filepath.Join(filepath.Dir(hidden), "big.jsonl")); err != nil {
		b.Fatal(err)
	}
	waitFor(b, lines, `"phase":"running"`)
	b.ReportMetric(float64(time.Since(renamed).Milliseconds()), "first-dispatch-ms")
	go func() { _, _ = io.Copy(io.Discard, lines) }() // keep the pipe empty
	for !planned(b, bin, dir) {
		time.Sleep(250 * time.Millisecond)
	}
	b.ReportMetric(time.Since(renamed).Seconds(), "plan-s")
	b.ReportMetric(peakMiB(b, up.Process.Pid), "peak-MiB")
	if err := up.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := up.Wait(); err != nil {
		b.Fatal(err)
	}
}

func waitFor(b *testing.B, r *bufio.Reader, word string) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			b.Fatalf("waiting for %q: %v", word, err)
		}
		if strings.Contains(line, word) {
			return
		}
	}
}

func planned(b *testing.B, bin, dir string) bool {
	out, err := exec.CommandContext(b.Context(), bin, "status", "--dir", dir, "--json").Output()
	if err != nil {
		b.Fatal(err)
	}
	var s struct{ Items struct{ Planned bool } }
	if err := json.Unmarshal(out, &s); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return s.Items.Planned
}

func peakMiB(b *testing.B, pid int) float64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		b.Fatal(err)
	}
	for l := range bytes.Lines(status) {
		if f := strings.Fields(string(l)); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1024
		}
	}
	b.Fatal("no VmHWM")
	return 0
}
