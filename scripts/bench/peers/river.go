package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// The settings with which River is fastest here.
const (
	workers     = 64
	insertBatch = 5000
)

// noop is a job that does nothing.
type noop struct{ N int }

func (noop) Kind() string { return "noop" }

// worker works on the jobs.
type worker struct {
	river.WorkerDefaults[noop]
}

func (*worker) Work(context.Context, *river.Job[noop]) error { return nil }

// riverRun inserts the jobs and works on them until all are completed in the
// database. It returns the time that this took.
func riverRun(ctx context.Context, url string, jobs int) (time.Duration, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return 0, err
	}
	cfg.MaxConns = 32
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return 0, err
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	ws := river.NewWorkers()
	river.AddWorker(ws, &worker{})
	client, err := river.NewClient(riverpgxv5.New(pool),
		&river.Config{Workers: ws, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	if err := insert(ctx, client, jobs); err != nil {
		return 0, err
	}
	if err := completed(ctx, pool, jobs); err != nil {
		return 0, err
	}
	spent := time.Since(start)
	return spent, client.Stop(ctx)
}

// insert inserts the jobs in batches.
func insert(ctx context.Context, client *river.Client[pgx.Tx], jobs int) error {
	for first := 0; first < jobs; first += insertBatch {
		batch := make([]river.InsertManyParams, 0, insertBatch)
		for n := first; n < min(jobs, first+insertBatch); n++ {
			batch = append(batch, river.InsertManyParams{Args: noop{n}})
		}
		if _, err := client.InsertManyFast(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// completed waits until all jobs are completed in the database.
func completed(ctx context.Context, pool *pgxpool.Pool, jobs int) error {
	for {
		var done int
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&done); err != nil {
			return err
		}
		if done >= jobs {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d jobs are completed: %w", done, jobs, ctx.Err())
		}
	}
}
