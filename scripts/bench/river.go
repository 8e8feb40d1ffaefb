package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"rollout/localstack/subprocess"
)

// riverJobs is the number of jobs for a million samples. It is smaller, since River
// takes longer for each job and its rate does not depend on the number.
const riverJobs = 60_000

// river measures no-op jobs on River over Postgres, with the program of the nested
// module peers. Without a Postgres the report has a note.
func river(ctx context.Context, l *runner) error {
	program := l.program("peers")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", program, ".")
	build.Dir = filepath.Join("scripts", "bench", "peers")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the peers: %w\n%s", err, out)
	}
	dir, err := os.MkdirTemp(l.dir, "river-")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "-dir", dir, "-jobs", fmt.Sprint(max(1000, int(riverJobs*float64(l.n)/1e6))))
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := subprocess.Run(cmd); err != nil {
		l.note("River + Postgres was not measured: %v: %s", err, bytes.TrimSpace(tail(stderr.Bytes())))
		return nil
	}
	var r struct {
		JobsPerSecond float64 `json:"jobs_per_second"`
		CPUMicros     float64 `json:"cpu_micros_per_job"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return fmt.Errorf("the peers printed %q: %w", out.Bytes(), err)
	}
	l.report.add("River+Postgres", "jobs/s", r.JobsPerSecond)
	l.report.add("River+Postgres", "cpu-µs/job", r.CPUMicros)
	if ours, ok := l.report.value("Run/bytes=300", "samples/s"); ok {
		l.report.add("Run/bytes=300", "×River", ours/r.JobsPerSecond)
	}
	return nil
}
