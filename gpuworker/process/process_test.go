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
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
)

// full is a document store whose disk can be full, or ill in another way.
type full struct {
	document.Store
	is  atomic.Bool
	ill func(ctx context.Context) error // nil is full
}

func (f *full) trouble(ctx context.Context) error {
	if !f.is.Load() {
		return nil
	}
	if f.ill != nil {
		return f.ill(ctx)
	}
	return fault.New(fault.Exhausted, "the disk is full")
}

func (f *full) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if err := f.trouble(ctx); err != nil {
		return "", err
	}
	return f.Store.Create(ctx, key, value)
}

func (f *full) Replace(ctx context.Context, key string, value []byte, rev document.Revision) (document.Revision, error) {
	if err := f.trouble(ctx); err != nil {
		return "", err
	}
	return f.Store.Replace(ctx, key, value, rev)
}

func options(docs document.Store, leave <-chan string) process.Options {
	d := config.DefaultDeployment()
	d.Engine.URL, d.Pools = config.EngineMock, []config.Pool{{Name: "default", Model: "mock"}}
	c := clock.System{}
	return process.Options{Deployment: d, Pool: "default", Shutdown: leave, Ports: host.Ports{Blobs: memory.NewBucket(c), Docs: docs,
		Queues: memory.NewQueues(c), Clock: c, Log: slog.New(slog.DiscardHandler), Source: "test"}}
}

// run is process.Run, however it ends.
func run(ctx context.Context, o process.Options) error {
	_, err := process.Run(ctx, o)
	return err
}

// beats is how many workers have a heartbeat.
func beats(t *testing.T, docs document.Store) int {
	t.Helper()
	found, err := docs.List(t.Context(), "beat/", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}

func TestAWorkerOutlivesWhatCostItItsLease(t *testing.T) {
	t.Parallel()
	for name, ill := range map[string]func(context.Context) error{
		"a full disk":      nil,
		"a read-only disk": func(context.Context) error { return fault.New(fault.Denied, "the disk is read-only") },
		"a store that hangs, as when somebody holds its lock": func(ctx context.Context) error {
			<-ctx.Done()
			return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the store")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { outlives(t, &full{Store: memory.NewDocuments(), ill: ill}) })
		})
	}
}

func outlives(t *testing.T, docs *full) {
	leave := make(chan string, 1)
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context(), options(docs, leave)) }()
	wait := func(d time.Duration) {
		select {
		case err := <-ended:
			t.Fatalf("the worker ended: %v", err)
		case <-time.After(d):
		}
	}
	wait(2 * time.Second)
	docs.is.Store(true) // longer than a lease lasts: it starts anew, and can't register
	wait(30 * time.Second)
	docs.is.Store(false)
	wait(6 * time.Second)
	if n := beats(t, docs); n < 2 {
		t.Errorf("%d workers have registered, want the first and its successor", n)
	}
	leave <- "the test ends"
	if err := <-ended; err != nil {
		t.Errorf("asked to leave, it ended with %v", err)
	}
}

// skewed is a clock that somebody sets.
type skewed struct{ off atomic.Int64 }

func (c *skewed) Now() time.Time { return time.Now().Add(time.Duration(c.off.Load())) }

// A worker whose clock differs from the store's takes no work and says so; one
// that finds out later hands back what it has; both go on once the clock is
// right.
func TestAWorkerWhoseClockIsOffTakesNoWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := memory.NewDocuments()
		leave, ended := make(chan string, 1), make(chan error, 1)
		var c skewed
		var log bytes.Buffer
		o := options(docs, leave)
		o.Ports.Clock, o.Ports.Log = &c, slog.New(slog.NewTextHandler(&log, nil))
		c.off.Store(int64(-3 * time.Second))
		go func() { ended <- run(t.Context(), o) }()
		pass(20 * time.Second)
		if n := beats(t, docs); n != 0 || !strings.Contains(log.String(), "this machine's clock is 3s behind the store's") || !strings.Contains(log.String(), "NTP") {
			t.Errorf("%d workers have registered; the log says\n%s", n, log.String())
		}
		c.off.Store(int64(200 * time.Millisecond)) // within the budget
		pass(10 * time.Second)
		if n := beats(t, docs); n != 1 {
			t.Errorf("%d workers have registered, want one", n)
		}
		c.off.Store(int64(2 * time.Second)) // not long enough for it to fence itself
		pass(70 * time.Second)
		if !strings.Contains(log.String(), "its clock is off") || !strings.Contains(log.String(), "ahead of the store's") {
			t.Errorf("the log says\n%s", log.String())
		}
		c.off.Store(0)
		pass(10 * time.Second)
		if n := beats(t, docs); n != 2 {
			t.Errorf("%d workers have registered, want a second", n)
		}
		leave <- "the test ends"
		if err := <-ended; err != nil {
			t.Errorf("asked to leave, it ended with %v", err)
		}
	})
}

func TestAWorkerThatCannotStartAnewStillLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &full{Store: memory.NewDocuments()}
		leave := make(chan string, 1)
		ended := make(chan error, 1)
		go func() { ended <- run(t.Context(), options(docs, leave)) }()
		pass(2 * time.Second)
		docs.is.Store(true)
		pass(30 * time.Second)
		leave <- "the test ends"
		if err := <-ended; err != nil {
			t.Errorf("it holds nothing, and ended with %v", err)
		}
	})
}

func TestAWorkerThatCannotRegisterAtAllSaysSo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &full{Store: memory.NewDocuments()}
		docs.is.Store(true)
		if err := run(t.Context(), options(docs, nil)); !fault.Is(err, fault.Exhausted) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAHeartbeatTellsOfTheServers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	docs := memory.NewDocuments()
	leave := make(chan string, 1)
	o := options(docs, leave)
	o.Deployment.Engine = config.Engine{URLs: []string{server.URL + "/v1", server.URL + "/v2"}}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- run(ctx, o) }()
	for changes := docs.Watch(ctx, "beat/"); beats(t, docs) == 0; {
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
	if len(b.Load.Servers) != 2 || b.Load.Servers[0].Name != server.URL+"/v1" || b.Load.Servers[0].Waiting != -1 {
		t.Errorf("%+v", b.Load.Servers)
	}
	cancel()
	<-ended
}

// first is the key of the first heartbeat.
func first(t *testing.T, docs document.Store) string {
	t.Helper()
	found, err := docs.List(t.Context(), "beat/", "", 1)
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0].Key
}

// pass lets time pass, and everybody do what is due.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
