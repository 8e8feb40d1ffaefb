package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/localstack/subprocess"
	"rollout/shared/cloud"
	"rollout/shared/installation"
)

// runStatus is a run as its users see it.
type runStatus = status.Status

// upProcess is a running `rollout up`, with access to its installation.
type upProcess struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	view   *installation.Local
	close  func() error
}

// up starts `rollout up` over the installation. Its API is off unless the arguments
// set --listen.
func (l *runner) up(ctx context.Context, in *runFolder, args ...string) (*upProcess, error) {
	u := &upProcess{cmd: exec.CommandContext(ctx, l.program("rollout"),
		append([]string{"up", "--dir", in.dir, "--listen", "off"}, args...)...)}
	u.cmd.Stderr = &u.stderr
	var err error
	u.view, u.close, err = installation.OpenLocal(ctx, in.dir,
		installation.LocalOptions{Create: true, Source: "bench", Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return nil, err
	}
	if err := subprocess.Start(u.cmd); err != nil {
		return nil, errors.Join(err, u.close())
	}
	return u, nil
}

// poll is the time between two checks: short enough for the figures, long enough
// to cost nothing.
const poll = 10 * time.Millisecond

const patience = 20 * time.Minute // of every wait

// until waits until the status of the installation's run is good.
func (u *upProcess) until(ctx context.Context, good func(runStatus) bool) error {
	s := api.New(u.view.Ports, u.view.Deployment, cloud.OneMachine())
	return wait(ctx, func() (bool, error) {
		if err := u.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return false, fmt.Errorf("rollout up has ended: %w\n%s", err, tail(u.stderr.Bytes()))
		}
		all, err := s.List(ctx)
		if err != nil || len(all) == 0 {
			return false, err
		}
		return good(all[0]), nil
	})
}

// wait polls until done returns true or an error.
func wait(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stop drains `rollout up` and waits until it ends.
func (u *upProcess) stop() error {
	err := u.cmd.Process.Signal(syscall.SIGTERM)
	if err == nil {
		err = u.cmd.Wait()
	}
	return errors.Join(err, u.close())
}

// kill kills `rollout up` if it still runs.
func (u *upProcess) kill() { _ = u.cmd.Process.Kill() }

// peakMiB is the peak memory of the process so far.
func (u *upProcess) peakMiB() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", u.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(string(b)) {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "VmHWM:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb / 1024, err
		}
	}
	return 0, errors.New("/proc has no peak memory of the process")
}
