package process_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/process"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/memory"
)

// faultyDocs is a document store whose writes can be made to fail.
type faultyDocs struct {
	document.Store
	failing atomic.Bool
	fault   func(ctx context.Context) error // nil: the disk is full
}

func (f *faultyDocs) writeFault(ctx context.Context) error {
	if !f.failing.Load() {
		return nil
	}
	if f.fault != nil {
		return f.fault(ctx)
	}
	return fault.New(fault.Exhausted, "the disk is full")
}

func (f *faultyDocs) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := f.writeFault(ctx); err != nil {
		return "", err
	}
	return f.Store.Create(ctx, key, value)
}

func (f *faultyDocs) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (
	document.Revision, error) {
	if err := f.writeFault(ctx); err != nil {
		return "", err
	}
	return f.Store.Replace(ctx, key, value, rev)
}

// options returns those of a worker with the mock engine over the documents.
func options(docs document.Store, shutdown <-chan string) process.Options {
	d := config.DefaultDeployment()
	d.Engine.URL, d.Pools = config.EngineMock, []config.Pool{{Name: "default", Model: "mock"}}
	p := hosttest.New()
	p.Docs = docs
	return process.Options{Deployment: d, Pool: "default", Shutdown: shutdown, Ports: p}
}

// run calls process.Run and drops the exit reason.
func run(ctx context.Context, o process.Options) error {
	_, err := process.Run(ctx, o)
	return err
}

// heartbeats returns how many workers have a heartbeat.
func heartbeats(t *testing.T, docs document.Store) int {
	t.Helper()
	found, err := docs.List(t.Context(), "beat/", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestProcessSurvivesLossOfLease(t *testing.T) {
	t.Parallel()
	for name, storeFault := range map[string]func(context.Context) error{
		"disk full":      nil,
		"disk read-only": func(context.Context) error { return fault.New(fault.Denied, "the disk is read-only") },
		"store hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the store")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				survivesLossOfLease(t, &faultyDocs{Store: memory.NewDocuments(), fault: storeFault})
			})
		})
	}
}

func survivesLossOfLease(t *testing.T, docs *faultyDocs) {
	shutdown := make(chan string, 1)
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), options(docs, shutdown)) }()
	wait := func(d time.Duration) {
		select {
		case err := <-ended:
			t.Fatalf("the worker ended: %v", err)
		case <-time.After(d):
		}
	}
	wait(2 * time.Second)
	docs.failing.Store(true) // longer than the lease: the next worker can't register
	wait(30 * time.Second)
	docs.failing.Store(false)
	wait(6 * time.Second)
	if n := heartbeats(t, docs); n < 2 {
		t.Errorf("%d workers have registered, want at least 2", n)
	}
	shutdown <- "the test ends"
	if err := <-ended; err != nil {
		t.Errorf("the drain ended with %v", err)
	}
}

// skewedClock is a clock with an offset that tests set.
type skewedClock struct{ off atomic.Int64 }

func (c *skewedClock) Now() time.Time { return time.Now().Add(time.Duration(c.off.Load())) }

// A worker whose clock differs from the store's takes no work and says so. If the
// clock goes wrong later, the worker drains. In both cases it continues when the
// clock is right.
func TestWorkerWithSkewedClockTakesNoWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := memory.NewDocuments()
		shutdown, ended := make(chan string, 1), make(chan error, 1)
		var c skewedClock
		var log bytes.Buffer
		o := options(docs, shutdown)
		o.Ports.Clock, o.Ports.Log = &c, slog.New(slog.NewTextHandler(&log, nil))
		c.off.Store(int64(-3 * time.Second))
		go func() { ended <- run(t.Context(), o) }()
		advance(20 * time.Second)
		const message = "this machine's clock is 3s behind the store's"
		if n := heartbeats(t, docs); n != 0 || !strings.Contains(log.String(), message) ||
			!strings.Contains(log.String(), "NTP") {
			t.Errorf("%d workers have registered; the log says\n%s", n, log.String())
		}
		c.off.Store(int64(200 * time.Millisecond)) // within the budget
		advance(10 * time.Second)
		if n := heartbeats(t, docs); n != 1 {
			t.Errorf("%d workers have registered, want one", n)
		}
		c.off.Store(int64(2 * time.Second)) // too short for the worker to fence itself
		advance(70 * time.Second)
		if !strings.Contains(log.String(), "the clock is off") || !strings.Contains(log.String(), "ahead of the store's") {
			t.Errorf("the log says\n%s", log.String())
		}
		c.off.Store(0)
		advance(10 * time.Second)
		if n := heartbeats(t, docs); n != 2 {
			t.Errorf("%d workers have registered, want a second", n)
		}
		shutdown <- "the test ends"
		if err := <-ended; err != nil {
			t.Errorf("the drain ended with %v", err)
		}
	})
}

func TestShutdownEndsWorkerThatCannotRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &faultyDocs{Store: memory.NewDocuments()}
		shutdown := make(chan string, 1)
		ended := make(chan error, 1)
		go func() { ended <- run(t.Context(), options(docs, shutdown)) }()
		advance(2 * time.Second)
		docs.failing.Store(true)
		advance(30 * time.Second)
		shutdown <- "the test ends"
		if err := <-ended; err != nil {
			t.Errorf("the drain without a registered worker ended with %v", err)
		}
	})
}

func TestWorkerThatCannotRegisterReturnsError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &faultyDocs{Store: memory.NewDocuments()}
		docs.failing.Store(true)
		if err := run(t.Context(), options(docs, nil)); !fault.Is(err, fault.Exhausted) {
			t.Errorf("got %v, want Exhausted", err)
		}
	})
}

func TestHeartbeatHasServers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	docs := memory.NewDocuments()
	shutdown := make(chan string, 1)
	o := options(docs, shutdown)
	o.Deployment.Engine = config.Engine{URLs: []string{server.URL + "/v1", server.URL + "/v2"}}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- run(ctx, o) }()
	for changes := docs.Watch(ctx, "beat/"); heartbeats(t, docs) == 0; {
		select {
		case <-changes:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	var b health.Heartbeat
	if _, _, err := host.Load(t.Context(), docs, first(t, docs), &b); err != nil {
		t.Fatal(err)
	}
	s := b.Load.Servers
	if len(s) != 2 || s[0].Name != server.URL+"/v1" || s[0].Waiting != -1 {
		t.Errorf("the servers in the heartbeat are %+v", s)
	}
	cancel()
	<-ended
}

// first returns the key of the first heartbeat.
func first(t *testing.T, docs document.Store) string {
	t.Helper()
	found, err := docs.List(t.Context(), "beat/", "", 1)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0].Key
}

// advance lets d pass and waits until everything due has happened.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
