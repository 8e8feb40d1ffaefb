package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/functions/reclaim"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// Numbers of ended runs that `rollout status` is measured with.
const (
	fewEnded  = 10
	manyEnded = 100_000
)

// statusTries is how often each command is run; the fastest one counts.
const statusTries = 5

// endedRuns measures `rollout status` in an installation with few and with many ended
// runs. Their documents are those of an earlier version, which are entered into the index.
func endedRuns(ctx context.Context, l *runner) error {
	took := map[int]time.Duration{}
	for _, n := range []int{fewEnded, manyEnded} {
		in, err := l.newRunFolder(1, 300)
		if err != nil {
			return err
		}
		if err := writeEnded(ctx, in.dir, n); err != nil {
			return err
		}
		for try := range statusTries {
			began := time.Now()
			out, err := exec.CommandContext(ctx, l.program("rollout"), "status", "--dir", in.dir).CombinedOutput()
			if err != nil {
				return fmt.Errorf("rollout status: %w\n%s", err, tail(out))
			}
			if d := time.Since(began); try == 0 || d < took[n] {
				took[n] = d
			}
		}
		if err := in.remove(); err != nil {
			return err
		}
	}
	l.report.add("Status/ended=100000", "ms", float64(took[manyEnded])/float64(time.Millisecond))
	l.report.add("Status/ended=100000", "×ended=10", float64(took[manyEnded])/float64(took[fewEnded]))
	return nil
}

// endedWriters is how many runs are written at once, so that they share commits.
const endedWriters = 256

// writeEnded writes the documents of n ended runs, and has them entered into the index.
func writeEnded(ctx context.Context, dir string, n int) (err error) {
	in, closeAll, err := installation.OpenLocal(ctx, dir, installation.LocalOptions{Create: true, Source: "bench"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	began := time.Now().Add(-time.Duration(n) * time.Minute).UTC()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(endedWriters)
	for i := range n {
		group.Go(func() error {
			id := identity.RunID(fmt.Sprintf("01JD%022d", i))
			m := record.Manifest{Schema: record.Schema, Run: id, Name: fmt.Sprint("night-", i), Kind: "batch",
				CreatedAt: began.Add(time.Duration(i) * time.Minute), Pool: "default", ModelURI: "mock",
				Inputs: []record.Input{{Key: fmt.Sprintf("prompts/%d.jsonl", i), Version: "1", Size: 10}}}
			s := run.New(id)
			s.Phase, s.EndedAt = run.Completed, m.CreatedAt.Add(time.Second)
			_, err := host.Save(groupCtx, in.Ports.Docs, record.ManifestKey(id), m, "")
			if err == nil {
				_, err = host.Save(groupCtx, in.Ports.Docs, record.CoordinatorKey(id), s, "")
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return reclaim.New(in.Ports, host.Timings(in.Deployment.Health)).BuildIndex(ctx, 0)
}
