package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rollout/functions/join"
	"rollout/shared/ca"
	"rollout/shared/clock"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/remote"
	"rollout/shared/retry"
)

// The load of join.
const (
	claims         = 2000
	joinedWorkers  = 200
	beatInterval   = 500 * time.Millisecond
	beatsPerWorker = 20
)

// joined measures what it costs a worker to be on another machine: the time of a claim over the
// network of this machine against one in the folder, and how late the heartbeats of 200 workers are,
// each with a connection of its own.
func joined(ctx context.Context, l *runner) error {
	dir := filepath.Join(l.dir, fmt.Sprintf("join-%d", time.Now().UnixNano()))
	in, closeAll, err := installation.OpenLocal(ctx, dir, installation.LocalOptions{Create: true})
	if err != nil {
		return err
	}
	defer closeAll()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := serveJoin(ctx, in)
	if err != nil {
		return err
	}
	first, closeFirst, err := s.join(ctx)
	if err != nil {
		return err
	}
	defer closeFirst()
	var local, remotely []time.Duration
	for n := range claims { // in turn, so that both meet the same machine
		a, err := claim(ctx, in.Ports.Docs, fmt.Sprintf("shard/local-%d", n))
		if err != nil {
			return err
		}
		b, err := claim(ctx, first, fmt.Sprintf("shard/remote-%d", n))
		if err != nil {
			return err
		}
		local, remotely = append(local, a), append(remotely, b)
	}
	slow, fast := quantile(remotely, 0.99), quantile(local, 0.99)
	l.report.add("Join", "p99-claim-µs", float64(slow.Microseconds()))
	l.report.add("Join", "p99-claim-in-the-folder-µs", float64(fast.Microseconds()))
	l.report.add("Join", "p99-claim×folder", float64(slow)/float64(fast))
	late, err := s.beats(ctx)
	if err != nil {
		return err
	}
	l.report.add(fmt.Sprintf("Join/workers=%d", joinedWorkers), "p99-heartbeat-late-ms",
		float64(quantile(late, 0.99))/float64(time.Millisecond))
	return nil
}

// joinServer is an installation that workers join.
type joinServer struct {
	address string
	dir     string // of the workers' certificates
	members *join.Members
}

func serveJoin(ctx context.Context, in *installation.Local) (*joinServer, error) {
	a, _, err := ca.Open(installation.TLSDir(in.Dir), time.Now())
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := join.New(join.Options{Ports: in.Ports, Deployment: in.Deployment, Authority: a})
	go func() { _ = server.Serve(ctx, l) }() // it ends with ctx
	return &joinServer{l.Addr().String(), filepath.Join(in.Dir, "workers"), join.NewMembers(in.Ports, a)}, nil
}

// join returns the documents of one more worker.
func (s *joinServer) join(ctx context.Context) (document.Store, func() error, error) {
	token, _, err := s.members.NewToken(ctx, time.Hour, "")
	if err != nil {
		return nil, nil, err
	}
	c, closeClient, err := remote.Join(ctx, remote.Options{Address: s.address,
		Dir: filepath.Join(s.dir, token.Secret.Reveal()), Token: token, Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	return document.Reliable(c.Documents(), retry.Policy{}), closeClient, nil
}

// claim claims a shard as a worker does: a shard whose message is the first has no document, so
// that the claim is one create. A conflict would tell the worker otherwise.
func claim(ctx context.Context, docs document.Store, key string) (time.Duration, error) {
	began := time.Now()
	_, err := docs.Create(ctx, key, []byte(`{"schema":1,"state":"running","worker":"bench"}`))
	return time.Since(began), err
}

// beats lets the workers write heartbeats, and returns how late each was there.
func (s *joinServer) beats(ctx context.Context) ([]time.Duration, error) {
	var mu sync.Mutex
	var late []time.Duration
	var failed error
	var all sync.WaitGroup
	for w := range joinedWorkers {
		docs, closeClient, err := s.join(ctx)
		if err != nil {
			return nil, err
		}
		defer closeClient()
		all.Go(func() {
			own, err := beat(ctx, docs, w)
			mu.Lock()
			defer mu.Unlock()
			late = append(late, own...)
			if err != nil {
				failed = err
			}
		})
	}
	all.Wait()
	return late, failed
}

func beat(ctx context.Context, docs document.Store, worker int) (late []time.Duration, err error) {
	tick := time.NewTicker(beatInterval)
	defer tick.Stop()
	key, rev := fmt.Sprintf("beat/bench-%d", worker), document.Revision("")
	for n := range beatsPerWorker {
		var due time.Time
		select {
		case <-ctx.Done():
			return late, ctx.Err()
		case due = <-tick.C:
		}
		rev, err = host.Save(ctx, docs, key, map[string]any{"schema": 1, "worker": key, "n": n}, rev)
		if err != nil {
			return late, err
		}
		late = append(late, time.Since(due))
	}
	return late, nil
}

// quantile returns a quantile of durations, which it sorts.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}
