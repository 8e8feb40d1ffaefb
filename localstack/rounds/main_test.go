package rounds_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"rollout/functions/inprocess"
	"rollout/gpuworker/engine/mock"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/worker"
	"rollout/localstack/rounds"
	"rollout/localstack/subprocess"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/kind"
)

// The environment of a process of the system. The test program is that process, if
// the variable of its role is set.
const (
	roleVariable   = "ROUNDS_ROLE" // functions or worker
	folderVariable = "ROUNDS_FOLDER"
	nameVariable   = "ROUNDS_NAME"
	poolVariable   = "ROUNDS_POOL" // of a worker
	dieVariable    = "ROUNDS_DIE"  // the number of the call that kills the process; 0 for none
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		subprocess.EndWithGoTest()
		os.Exit(m.Run())
	}
	if err := serve(role); err != nil {
		fmt.Fprintln(os.Stderr, "rounds:", err)
		os.Exit(1)
	}
}

// count is how many rounds every run of these tests has. The pool judges answers the
// one in the middle.
const (
	count  = 3
	judged = 2
	judges = "judges"
)

func kinds() kind.Table { return kind.Table{}.With(rounds.WithJudge(count, judged)) }

// deployment has short timings, so that the death of a worker is noticed soon.
func deployment() config.Deployment {
	d := config.DefaultDeployment()
	d.Pools = []config.Pool{{Name: "default", Model: "mock"}, {Name: judges, Model: rounds.JudgeModel}}
	d.Health = config.Health{Interval: config.Duration(200 * time.Millisecond),
		SelfFence: config.Duration(1500 * time.Millisecond), FailureTimeout: config.Duration(2 * time.Second),
		SkewBudget: config.Duration(100 * time.Millisecond)}
	return d
}

// serve runs a process of the system until it is killed.
func serve(role string) error {
	ctx := context.Background()
	name := os.Getenv(nameVariable)
	l, closeAll, err := installation.OpenLocal(ctx, os.Getenv(folderVariable),
		installation.LocalOptions{Create: true, Source: name, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer closeAll()
	dieAt, err := strconv.Atoi(os.Getenv(dieVariable))
	if err != nil {
		return err
	}
	p, d := rounds.Mortal(l.Ports, dieAt, die), deployment()
	if role == "functions" {
		return inprocess.New(p, inprocess.Config{Deployment: d, Kinds: kinds()}).Run(ctx)
	}
	exec := infer.New(infer.Config{Engine: mock.New(mock.Config{Delay: 5 * time.Millisecond}), Clock: p.Clock, Log: p.Log,
		ProgressTimeout: time.Minute, MaxOutage: time.Minute})
	return worker.New(p, worker.Config{ID: name, Pool: os.Getenv(poolVariable), Timings: host.Timings(d.Health),
		InFlight: 4, CheckpointInterval: 50 * time.Millisecond, Drain: time.Second, Grace: time.Second, Kinds: kinds()},
		input.NewIndex(p.Blobs, p.Docs), exec).Run(ctx)
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal comes
}
