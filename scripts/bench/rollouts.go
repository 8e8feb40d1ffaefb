package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Settings of the rollouts that are measured.
const (
	rolloutMembers = 4 // answers of a ticket
	rolloutConfig  = `schema_version = 1
kind = "rollout"
[[mission]]
name = "m"
scaffold = "You judge cases."
entries = ["Be right."]
[[decode]]
samples = 4
[answer]
pattern = "#([0-9a-f])"
[runner]
rollout_batch_size = 1024
`
)

// rollouts measures a run of tickets with the mock engine: the CPU time and the memory of
// the process of the coordinator, which plans the batches, selects, and writes the files.
// The answers come from another process.
func rollouts(ctx context.Context, l *runner) error {
	tickets := max(1, l.n/10)
	in, err := l.newFolder(tickets*rolloutMembers, func(path string) error { return writeTickets(path, tickets) })
	if err != nil {
		return err
	}
	config := filepath.Join(filepath.Dir(in.hidden), "p.toml")
	if err := os.WriteFile(config, []byte(rolloutConfig), 0o644); err != nil {
		return err
	}
	up, err := l.up(ctx, in, "--engine", "mock", "--workers", "1")
	if err != nil {
		return err
	}
	defer up.kill()
	start := time.Now()
	if err := in.reveal(); err != nil {
		return err
	}
	if err := up.until(ctx, func(s runStatus) bool { return s.Phase.Ended() }); err != nil {
		return err
	}
	l.report.add("Rollout", "answers/s", float64(in.lines)/time.Since(start).Seconds())
	cpu, err := up.cpu()
	if err != nil {
		return err
	}
	l.report.add("Rollout", "coordinator-cpu-µs/answer", perSample(cpu, in.lines))
	peak, err := up.peakMiB()
	if err != nil {
		return err
	}
	l.report.add("Rollout", "peak-MiB", peak)
	return errors.Join(in.complete(), up.stop(), in.remove())
}

// writeTickets writes n tickets of about 300 bytes.
func writeTickets(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	filler := strings.Repeat("some facts of the case, ", 9)
	for i := range n {
		if _, err = fmt.Fprintf(b, "{\"group_id\":\"g%d\",\"content\":\"case %d: %s\",\"label\":\"%x\"}\n", i, i, filler,
			i%16); err != nil {
			break
		}
	}
	return errors.Join(err, b.Flush(), f.Close())
}

// ticksPerSecond is the unit of CPU times in /proc, on every Linux that Go knows.
const ticksPerSecond = 100

// cpu is the CPU time of the process so far, without that of its children.
func (u *upProcess) cpu() (time.Duration, error) { return cpuOf(u.cmd.Process.Pid) }

// cpuOf is the CPU time of a process so far, without that of its children.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, fields, _ := strings.Cut(string(b), ") ") // the name before it may have spaces
	f := strings.Fields(fields)
	if len(f) < 13 {
		return 0, errors.New("/proc has no CPU time of the process")
	}
	var ticks int64
	for _, s := range f[11:13] { // of the user and of the system
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}
