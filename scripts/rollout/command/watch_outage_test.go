package command

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/api"
	"rollout/shared/clock"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// flakyDocs is a document store whose List fails as long as reason is set.
type flakyDocs struct {
	document.Store
	reason *atomic.Pointer[fault.Error]
}

func (f flakyDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if err := f.reason.Load(); err != nil {
		return nil, err
	}
	return f.Store.List(ctx, prefix, after, limit)
}

// A watch reports a network outage once, continues, and sees the end of the run. Permanent errors end it.
func TestWatchSurvivesNetworkOutage(t *testing.T) {
	t.Parallel()
	const id = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	for name, c := range map[string]struct {
		first, later fault.Kind // of requests, initially and during each outage; 0 is none
		reports      int        // lines about outages
		want         fault.Kind // of the result; 0 is success
	}{
		"two outages":                 {0, fault.Unavailable, 2, 0},
		"throttled twice":             {0, fault.Throttled, 2, 0},
		"credentials expire":          {0, fault.Denied, 0, fault.Denied},
		"an outage at the first look": {fault.Unavailable, 0, 0, fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var reason atomic.Pointer[fault.Error]
				p := host.Ports{
					Blobs:  memory.NewBucket(clock.System{}),
					Docs:   flakyDocs{memory.NewDocuments(), &reason},
					Queues: memory.NewQueues(clock.System{}),
					Clock:  clock.System{},
					Log:    slog.New(slog.DiscardHandler),
					Source: "cli",
				}
				save := func(key string, v any) {
					if _, err := host.Update(t.Context(), p.Docs, key,
						func(any, bool) (any, bool, error) { return v, true, nil }); err != nil {
						t.Fatal(err)
					}
				}
				state := run.New(id)
				state.Phase = run.Running
				save(record.ManifestKey(id), record.Manifest{Schema: record.Schema, Run: id, Name: "x", Pool: "default"})
				save(record.CoordinatorKey(id), state)
				fails := func(k fault.Kind) {
					reason.Store(nil)
					if k != 0 {
						reason.Store(&fault.Error{Kind: k, Op: "no answer"})
					}
				}
				var out, errs bytes.Buffer
				w := newWatcher(&statusView{Env: &Env{Out: &out, Err: &errs, Clock: clock.System{}},
					service: api.New(p, config.DefaultDeployment(), cloud.OneMachine()), json: true})
				done := make(chan error, 1)
				fails(c.first)
				go func() { done <- w.watch(t.Context(), time.Second) }()
				for range 2 {
					time.Sleep(5 * time.Second)
					fails(c.later)
					time.Sleep(time.Minute)
					fails(0)
				}
				state.Phase, state.Complete, state.Items, state.Counts.OK = run.Completed, true, 1, 1
				save(record.CoordinatorKey(id), state)
				err := <-done
				if c.want == 0 && err != nil || c.want != 0 && !fault.Is(err, c.want) ||
					strings.Count(errs.String(), "no answer") != c.reports {
					t.Errorf("it returned %v and wrote %q", err, errs.String())
				}
				if c.want == 0 && !strings.Contains(out.String(), `"phase":"completed"`) {
					t.Errorf("the end was not seen:\n%s", out.String())
				}
			})
		})
	}
}

func TestWatchWaitsForTheFirstRunOnlyOnATerminal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ drawing, json, ends bool }{
		"a terminal": {drawing: true},
		"a pipe":     {ends: true},
		"JSON":       {json: true, ends: true},
	} {
		var out bytes.Buffer
		w := newWatcher(&statusView{Env: &Env{Out: &out, Err: &out, Clock: clock.System{},
			Getenv: func(string) string { return "" }}, json: c.json})
		w.drawing = c.drawing
		done, err := w.show(api.Overview{})
		if done != c.ends || err != nil || strings.Contains(out.String(), "no runs yet") != c.drawing {
			t.Errorf("%s: it ends: %v, %v\n%s", name, done, err, &out)
		}
	}
}
