package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"rollout/localstack/subprocess"
)

// supervisor runs the server as a child process and restarts it whenever it dies,
// as the supervisor of a real server does:
//
//	     ┌──────────── the delay ◀──── died ◀────┐
//	     ▼                                       │
//	start a child ──it prints its URL──▶ up: serving ──any end──┘
//
// Each child listens on the address of the first one. Between two children,
// connections are refused. A child ends with this process, whatever ends it.
type supervisor struct {
	delay   time.Duration
	args    []string                       // the server's command line
	command func(args ...string) *exec.Cmd // runs this program
	stdout  io.Writer                      // gets the URL, then a JSON line for each event
	stderr  io.Writer
}

// event is an event of the child.
type event struct {
	Event  string `json:"event"`  // died, started, or failed: it did not start, such as when its port is taken
	Deaths int    `json:"deaths"` // so far
	PID    int    `json:"pid"`
	Code   int    `json:"code"`     // of died and failed: the exit code, -1 if a signal ended it
	Alive  int64  `json:"alive_ms"` // of died and failed: the time since its start
}

// run runs children until ctx ends. It fails if the first child does not start.
func (s *supervisor) run(ctx context.Context) error {
	listen, deaths := "", 0
	for {
		startedAt, up := time.Now(), false
		end, err := s.child(ctx, listen, func(pid int, url string) {
			up = true
			if listen != "" {
				s.print(event{Event: "started", Deaths: deaths, PID: pid})
				return
			}
			listen = strings.TrimPrefix(url, "http://")
			fmt.Fprintln(s.stdout, url)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case listen == "":
			return errors.New("the server does not start")
		}
		ended := event{Event: "failed", PID: end.Pid(), Code: end.ExitCode(), Alive: time.Since(startedAt).Milliseconds()}
		if up {
			ended.Event = "died"
			deaths++
		}
		ended.Deaths = deaths
		s.print(ended)
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// child runs a server until it ends, and calls up with its URL.
func (s *supervisor) child(ctx context.Context, listen string, up func(pid int, url string)) (*os.ProcessState, error) {
	args := append(slices.Clone(s.args), "--restart=0", "--attached")
	if listen != "" {
		args = append(args, "--listen="+listen)
	}
	c := s.command(args...)
	c.Stderr = s.stderr
	in, err := c.StdinPipe() // the child ends when it is closed, also by the end of this process
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := subprocess.Start(c); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = in.Close() })
	defer stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); err == nil {
		up(c.Process.Pid, strings.TrimSuffix(line, "\n"))
	}
	_ = c.Wait() // the state has the exit code
	return c.ProcessState, nil
}

// print prints an event.
func (s *supervisor) print(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		fmt.Fprintln(s.stderr, "fakellm:", err)
		return
	}
	fmt.Fprintf(s.stdout, "%s\n", line)
}

// thisProgram returns commands that run this program.
func thisProgram() (func(args ...string) *exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return func(args ...string) *exec.Cmd { return exec.Command(path, args...) }, nil
}
