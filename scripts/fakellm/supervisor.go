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

// supervisor runs the server as a child process, and again whenever it dies, as
// the supervisor of a real server does:
//
//	     ┌──────────── the delay ◀──── died ◀────┐
//	     ▼                                       │
//	start a child ──it prints its URL──▶ up: serving ──any end──┘
//
// Every child listens where the first one did. While there is none,
// connections are refused. A child ends with this process, however this ends.
type supervisor struct {
	delay   time.Duration
	args    []string                       // the server's command line
	command func(args ...string) *exec.Cmd // runs this program
	stdout  io.Writer                      // the URL; from then on a JSON line for each event
	stderr  io.Writer
}

// event is what happened to the child.
type event struct {
	Event  string `json:"event"`  // died, started, or failed: it did not come up, as when its port is taken
	Deaths int    `json:"deaths"` // so far
	PID    int    `json:"pid"`
	Code   int    `json:"code"`     // of an end: the exit code, -1 if a signal ended it
	Alive  int64  `json:"alive_ms"` // of an end: after so many milliseconds
}

// run goes on until ctx ends. The first child must come up.
func (r *supervisor) run(ctx context.Context) error {
	listen, deaths := "", 0
	for {
		born, up := time.Now(), false
		end, err := r.child(ctx, listen, func(pid int, url string) {
			up = true
			if listen != "" {
				r.tell(event{Event: "started", Deaths: deaths, PID: pid})
				return
			}
			listen = strings.TrimPrefix(url, "http://")
			fmt.Fprintln(r.stdout, url)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case listen == "":
			return errors.New("the server does not start")
		}
		ended := event{Event: "failed", PID: end.Pid(), Code: end.ExitCode(), Alive: time.Since(born).Milliseconds()}
		if up {
			ended.Event = "died"
			deaths++
		}
		ended.Deaths = deaths
		r.tell(ended)
		select {
		case <-time.After(r.delay):
		case <-ctx.Done():
			return nil
		}
	}
}

// child runs a server to its end; up hears of its URL.
func (r *supervisor) child(ctx context.Context, listen string, up func(pid int, url string)) (*os.ProcessState, error) {
	args := append(slices.Clone(r.args), "--restart=0", "--attached")
	if listen != "" {
		args = append(args, "--listen="+listen)
	}
	c := r.command(args...)
	c.Stderr = r.stderr
	in, err := c.StdinPipe() // when it closes, by us or with us, the child ends
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
	_ = c.Wait() // how it ended is in its state
	return c.ProcessState, nil
}

func (r *supervisor) tell(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		fmt.Fprintln(r.stderr, "fakellm:", err)
		return
	}
	fmt.Fprintf(r.stdout, "%s\n", line)
}

// itself runs this program.
func itself() (func(args ...string) *exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return func(args ...string) *exec.Cmd { return exec.Command(path, args...) }, nil
}
