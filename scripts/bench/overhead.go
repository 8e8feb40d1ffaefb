package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rollout/localstack/subprocess"
)

// Settings of the comparison with a plain loop.
const (
	overheadInFlight = 64
	overheadLatency  = 20 * time.Millisecond
	overheadSize     = 300
)

// overhead compares a run over an HTTP server with a latency of 20 ms with a loop
// that only posts the same requests and reads the answers. The difference is the
// cost of exactly-once answers, their order, and recovery after crashes.
func overhead(ctx context.Context, l *runner) error {
	n := max(1, l.n/10)
	server, err := l.fakellm(ctx, "-latency", overheadLatency.String())
	if err != nil {
		return err
	}
	defer server.end()
	in, err := l.newRunFolder(n, overheadSize)
	if err != nil {
		return err
	}
	loop, err := l.plainLoop(ctx, loopOptions{url: server.url + "/v1/completions", file: in.hidden, model: "fake",
		inFlight: overheadInFlight, whole: true})
	if err != nil {
		return err
	}
	l.report.add("HTTP/loop", "samples/s", float64(n)/loop.wall.Seconds())
	l.report.add("HTTP/loop", "cpu-µs/sample", perSample(loop.cpu, n))

	config := "schema_version = 1\n[worker]\nin_flight = " + strconv.Itoa(overheadInFlight) + "\n"
	if err := os.WriteFile(filepath.Join(in.dir, "rollout.toml"), []byte(config), 0o644); err != nil {
		return err
	}
	u, err := l.runOnce(ctx, in, "--engine", server.url+"/v1")
	if err != nil {
		return err
	}
	l.report.add("HTTP/rollout", "samples/s", float64(n)/u.wall.Seconds())
	l.report.add("HTTP/rollout", "cpu-µs/sample", perSample(u.cpu, n))
	l.report.add("HTTP/added", "time-%", 100*(u.wall.Seconds()/loop.wall.Seconds()-1))
	l.report.add("HTTP/added", "cpu-µs/sample", perSample(u.cpu-loop.cpu, n))
	return in.remove()
}

// plainLoop runs the loop in a process of this program, to measure its CPU time.
func (l *runner) plainLoop(ctx context.Context, o loopOptions) (usage, error) {
	self, err := os.Executable()
	if err != nil {
		return usage{}, err
	}
	cmd := exec.CommandContext(ctx, self, "loop", "--url", o.url, "--file", o.file, "--model", o.model,
		"--in-flight", strconv.Itoa(o.inFlight), fmt.Sprintf("--whole=%t", o.whole))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	if err := subprocess.Start(cmd); err != nil {
		return usage{}, err
	}
	return finish(cmd, start, &stderr)
}

// fakellm is a running inference server.
type fakellm struct {
	cmd *exec.Cmd
	url string // without a path
}

// fakellm starts an inference server on a free port.
func (l *runner) fakellm(ctx context.Context, args ...string) (*fakellm, error) {
	cmd := exec.CommandContext(ctx, l.program("fakellm"), args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := subprocess.Start(cmd); err != nil {
		return nil, err
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("fakellm printed no URL: %w", err)
	}
	return &fakellm{cmd, strings.TrimSpace(url)}, nil
}

// end kills the server.
func (f *fakellm) end() {
	_ = f.cmd.Process.Kill()
	_ = f.cmd.Wait() // it was killed
}
