package infer_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/infer"
	corerun "rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// TestFaultsAreChargedOrRetried covers what an engine's faults do to the item "x",
// beside 60 items that are answered.
func TestFaultsAreChargedOrRetried(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script   []step
		class    fault.Class   // of the item's error row; "" for an output row
		requests int           // of the item
		least    time.Duration // from its first request to the last
	}{
		"no fault":                               {nil, "", 1, 0},
		"fault of the request":                   {times(9, fails(fault.Invalid, fault.TooLong)), fault.TooLong, 1, 0},
		"fault of the request, without a class":  {times(9, fails(fault.Invalid, "")), fault.Refused, 1, 0},
		"throttled for long, then answered":      {times(2, fails(fault.Throttled, "")), "", 3, 0},
		"throttled for ever":                     {times(99, fails(fault.Throttled, "")), fault.Engine, 4, 0},
		"one malformed answer":                   {times(1, fails(fault.Corrupt, fault.Engine)), "", 2, 0},
		"malformed answers":                      {times(9, fails(fault.Corrupt, fault.Engine)), fault.Engine, 4, 0},
		"unknown faults":                         {times(9, fails(fault.Internal, "")), fault.Engine, 4, 0},
		"denied":                                 {times(9, fails(fault.Denied, "")), fault.Engine, 4, 0},
		"refused with 403":                       {times(9, status(403)), fault.Refused, 4, 0},
		"refused with 408":                       {times(9, status(408)), fault.Refused, 4, 0},
		"connection breaks twice, engine ready":  {times(2, fails(fault.Unavailable, "")), "", 3, 0},
		"connection always breaks, engine ready": {times(20, fails(fault.Unavailable, "")), fault.Engine, 4, 0},
		"no progress":                            {times(9, hangs(0, 0)), fault.Timeout, 3, time.Minute},
		"no progress after some tokens":          {times(9, hangs(3, 20*time.Second)), fault.Timeout, 3, 3 * time.Minute},
		"long request with progress":             {times(1, slow(20, 20*time.Second)), "", 1, 0},
		"mixture": {[]step{fails(fault.Corrupt, fault.Engine), fails(fault.Unavailable, "")},
			"", 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lines := inputtest.Prompts(0, 60) + `{"id":"own","prompt":"x"}` + "\n"
				d := newFixture(t, inputtest.Manifest(0), lines, map[string][]step{`"x"`: c.script})
				d.work(20 * time.Minute)
				var got row
				for _, r := range d.rows() {
					if r.ID == "own" {
						got = r
					} else if r.Class != "" {
						t.Errorf("row %+v of an item that is not at fault", r)
					}
				}
				if got.Class != c.class || (got.Completion != nil) != (c.class == "") {
					t.Errorf("row %+v, want one of class %q", got, c.class)
				}
				var own []request
				others := map[string]int{}
				for _, r := range d.engine.requests {
					if strings.Contains(r.body, `"x"`) {
						own = append(own, r)
					} else {
						others[r.body]++
					}
				}
				if took := own[len(own)-1].at.Sub(own[0].at); len(own) != c.requests || took < c.least {
					t.Errorf("%d requests in %s, want %d in %s or more", len(own), took, c.requests, c.least)
				}
				for body, n := range others {
					if n > 1+c.requests || n > 1 && c.class == "" && c.requests == 1 {
						t.Errorf("%d requests of %s", n, body)
					}
				}
				if len(others) != 60 {
					t.Errorf("%d other items were asked, want 60", len(others))
				}
				want := infer.Item{Run: run, Item: 60, ID: "own", Class: c.class}
				if len(d.onItem) != 61 || !slices.Contains(d.onItem, want) {
					t.Errorf("OnItem got %v, want %v", d.onItem, want)
				}
			})
		})
	}
}

// status returns a step that a server refuses with that status.
func status(code int) step {
	return func(context.Context, func()) error {
		kind := fault.Denied
		if code == 408 || code == 429 {
			kind = fault.Throttled
		}
		err := &engine.StatusError{Status: code, Err: fault.New(kind, "status %d: no", code)}
		return fault.WithKind(kind, err, "ask")
	}
}

func TestRetryAfterIsLeastWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		busy := func(context.Context, func()) error {
			if time.Since(begun) < 7*time.Second {
				return &fault.Error{Kind: fault.Throttled, RetryAfter: 7 * time.Second}
			}
			return nil
		}
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 8), map[string][]step{"mock": times(99, busy)})
		d.work(time.Minute)
		again := 0
		for _, a := range d.engine.requests {
			wait := a.at.Sub(begun)
			if wait > time.Second && wait < 7*time.Second || wait > 8*time.Second {
				t.Errorf("asked again after %s, want 7 s", wait)
			}
			if wait >= 7*time.Second {
				again++
			}
		}
		if n := len(d.rows()); n != 8 || again != 8 {
			t.Errorf("%d rows after %d repetitions", n, again)
		}
	})
}

func TestShardIsReleasedWhenEngineRefusesEverythingForLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hint    time.Duration
		refused string      // a part of the requests that are refused
		state   shard.State // after 5 minutes
	}{
		"everything refused":                      {0, "mock", shard.Pending},
		"everything refused, hint of an hour":     {time.Hour, "mock", shard.Pending},
		"one prompt refused, others are answered": {0, `"0"`, shard.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				busy := func(context.Context, func()) error {
					return &fault.Error{Kind: fault.Throttled, RetryAfter: c.hint}
				}
				script := map[string][]step{c.refused: times(9999, busy)}
				d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 4), script)
				d.work(4*time.Minute + 50*time.Second)
				doc := d.shard()
				if c.state == shard.Pending && doc.State != shard.Running || c.state == shard.Done && doc.Counts.OK != 3 {
					t.Fatalf("before the limit the shard is %+v", doc)
				}
				advance(20 * time.Second)
				if doc := d.shard(); doc.State != c.state || c.state == shard.Pending && doc.Counts.Failed != 0 {
					t.Errorf("after the limit the shard is %+v", doc)
				}
				if n := len(d.engine.requests); n > 100 {
					t.Errorf("%d requests", n)
				}
			})
		})
	}
}

func TestHangIsChargedUnlessServerHangsForAll(t *testing.T) {
	t.Parallel()
	for server, class := range map[bool]fault.Class{true: "", false: fault.Timeout} {
		synctest.Test(t, func(t *testing.T) {
			silent := func(ctx context.Context, _ func()) error {
				<-ctx.Done()
				atFault := func(ctx context.Context) bool { return ctx.Err() == nil && server }
				return fault.WithKind(fault.Canceled, &engine.HangError{Err: ctx.Err(), ServerAtFault: atFault}, "answer")
			}
			d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), map[string][]step{"prompt": times(3, silent)})
			d.work(time.Hour)
			if got := d.rows(); len(got) != 1 || got[0].Class != class {
				t.Errorf("server at fault: %v; rows %+v", server, got)
			}
		})
	}
}

func TestRequestTimeoutIsFailureDespiteProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := map[string][]step{"prompt": times(9, slow(1000, time.Second))}
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), script)
		d.work(time.Hour, func(c *infer.Config) { c.RequestTimeout = time.Minute })
		got := d.rows()
		if len(got) != 1 || got[0].Class != fault.Timeout || len(d.engine.requests) != 3 {
			t.Errorf("rows %+v after %d requests", got, len(d.engine.requests))
		}
	})
}

func TestShardIsReleasedWithoutChargeWhenEngineStaysDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 2), nil)
		down := fault.New(fault.Unavailable, "connection refused")
		d.engine.script = map[string][]step{`"1"`: {func(context.Context, func()) error {
			d.engine.ready = func() error { return down }
			return down
		}}}
		d.work(5 * time.Second)
		if doc := d.shard(); doc.State != shard.Running {
			t.Fatalf("before the limit the shard is %+v", doc)
		}
		advance(20 * time.Second)
		doc := d.shard()
		if doc.State != shard.Pending || doc.Counts.OK != 1 || doc.Counts.Failed != 0 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

func TestRequestIsRetriedWhenEngineComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := map[string][]step{"prompt": times(1, fails(fault.Unavailable, ""))}
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 1), script)
		begun := time.Now()
		d.engine.ready = func() error {
			if since := time.Since(begun); since > 0 && since < 8*time.Second {
				return fault.New(fault.Unavailable, "restarting")
			}
			return nil
		}
		d.work(30 * time.Second)
		if doc := d.shard(); doc.State != shard.Done || doc.Attempt != 1 || doc.Counts.OK != 1 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

// A run of which no request is answered, for a cause that only a user can mend, asks to
// be paused after few requests. The shard is held until then, so that it is not sent
// again at once. After a resume, the same outcome is charged to the items.
func TestRunIsPausedWhenEveryRequestIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := map[string][]step{"mock": times(9999, status(401))}
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 50), script)
		d.work(9 * time.Second)
		refused := d.events()
		if len(refused) != 1 || refused[0].Outcome != "status_401" || !strings.Contains(refused[0].Reason, "no") {
			t.Fatalf("events %+v", refused)
		}
		if doc := d.shard(); doc.State != shard.Running {
			t.Fatalf("before the pause the shard is %+v", doc)
		}
		pause := record.Control{Schema: record.Schema, Sequence: 1, Desired: record.DesiredPause, Refused: refused[0].Outcome}
		hosttest.Save(t, d.Ports, record.ControlKey(run), pause)
		advance(2 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.Failed != 0 {
			t.Fatalf("after the pause the shard is %+v", doc)
		}
		if n := len(d.engine.requests); n > 20 {
			t.Errorf("%d requests, want at most 20", n)
		}
		pause.Sequence, pause.Desired = 2, record.DesiredRun
		hosttest.Save(t, d.Ports, record.ControlKey(run), pause)
		d.work(time.Minute)
		doc := d.shard()
		if doc.State != shard.Done || doc.Counts.Failed != 50 || doc.Counts.ByClass["refused"] != 50 {
			t.Errorf("after the resume the shard is %+v", doc)
		}
		if more := d.events(); len(more) > 0 {
			t.Errorf("after the resume: events %+v", more)
		}
	})
}

// A run that does not pause has answers elsewhere: the worker hands its shard back, and
// leaves it to others for a while. It charges no item, and goes on when its own server
// answers again.
func TestRefusedRunThatDoesNotPauseIsLeftToOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		bad := func(ctx context.Context, progress func()) error {
			if mended.Load() {
				return nil
			}
			return status(401)(ctx, progress)
		}
		d := newFixture(t, inputtest.Manifest(0), inputtest.Prompts(0, 50), map[string][]step{"mock": times(9999, bad)})
		d.work(9 * time.Second)
		if refused := d.events(); len(refused) != 1 {
			t.Fatalf("events %+v", refused)
		}
		state := corerun.New(run)
		state.Shards, state.NextShard, state.Counts = 1, 1, shard.Counts{OK: 7, PromptTokens: 7}
		hosttest.Save(t, d.Ports, record.CoordinatorKey(run), state)
		advance(12 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending || doc.Counts.Failed != 0 {
			t.Fatalf("after the run has not paused the shard is %+v", doc)
		}
		mended.Store(true)
		if err := d.Send(t.Context(), host.WorkQueue("default"), events.Work{Run: string(run), Pool: "default"}); err != nil {
			t.Fatal(err)
		}
		advance(20 * time.Second)
		if doc := d.shard(); doc.State != shard.Pending {
			t.Fatalf("the worker takes the shard back at once: %+v", doc)
		}
		advance(time.Minute)
		if doc := d.shard(); doc.State != shard.Done || doc.Counts.OK != 50 {
			t.Errorf("after its server was mended the shard is %+v", doc)
		}
	})
}

// events takes the RequestsRefused that were sent.
func (d *fixture) events() (out []events.RequestsRefused) {
	for {
		ms, err := d.Queues.Receive(d.t.Context(), host.CoordinateQueue, 10, time.Minute, 0)
		if err != nil {
			d.t.Fatal(err)
		}
		if len(ms) == 0 {
			return out
		}
		for _, m := range ms {
			if err := d.Queues.Ack(d.t.Context(), host.CoordinateQueue, []string{m.Receipt}); err != nil {
				d.t.Fatal(err)
			}
			if _, p, _ := events.Decode(m.Body); p != nil {
				if r, ok := p.(events.RequestsRefused); ok {
					out = append(out, r)
				}
			}
		}
	}
}
