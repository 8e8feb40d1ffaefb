package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/gpuworker/engine/enginetest"
	"rollout/gpuworker/engine/mock"
	"rollout/shared/fault"
)

// fixture has a balancer over fakes, in a synctest bubble.
type fixture struct {
	t        *testing.T
	balancer *balancer.Balancer
	servers  []*fake
}

// bubble runs a test with a balancer over so many servers, named a, b, …
func bubble(t *testing.T, servers int, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t}
		var backends []balancer.Backend
		for n := range servers {
			s := newFake(string(rune('a' + n)))
			f.servers = append(f.servers, s)
			backends = append(backends, balancer.Backend{Name: s.name, Server: s})
		}
		f.balancer = balancer.New(balancer.Config{Servers: backends, InFlight: 64})
		defer func() {
			if err := f.balancer.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := f.balancer.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(f)
	})
}

func (f *fixture) ask(prompt string) (string, error) {
	a, err := f.balancer.Answer(f.t.Context(), engine.Request{Body: []byte(prompt)}, func() {})
	return a.Text, err
}

// askMany sends so many requests at once and returns a function that waits for
// their errors.
func (f *fixture) askMany(n int) func() []error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { _, errs[i] = f.ask(fmt.Sprint("prompt ", i)) })
	}
	synctest.Wait()
	return func() []error { all.Wait(); return errs }
}

func (f *fixture) state(n int) balancer.State { return f.balancer.ServerStatuses()[n].State }

// crashOf returns the CrashError in the chain of err, or nil.
func crashOf(err error) *engine.CrashError {
	var d *engine.CrashError
	if errors.As(err, &d) {
		return d
	}
	return nil
}

func TestBalancerIsEngine(t *testing.T) {
	t.Parallel()
	over := func(cfg mock.Config) func(t *testing.T) engine.Engine {
		return func(*testing.T) engine.Engine {
			return balancer.New(balancer.Config{Servers: []balancer.Backend{
				{Name: "a", Server: noMetrics{mock.New(cfg)}}, {Name: "b", Server: noMetrics{mock.New(cfg)}}}})
		}
	}
	enginetest.Run(t, enginetest.Subject{
		New: over(mock.Config{}), Stuck: over(mock.Config{Delay: time.Hour}), Model: "mock"})
}

// noMetrics is an engine that reports no metrics.
type noMetrics struct{ engine.Engine }

func (noMetrics) Metrics(context.Context) (engine.ServerMetrics, error) {
	return engine.UnknownMetrics(), nil
}

func TestRequestsGoToServerWithMostRoom(t *testing.T) {
	t.Parallel()
	bubble(t, 4, func(f *fixture) {
		for _, s := range f.servers {
			s.takes = time.Second
		}
		done := f.askMany(64)
		for _, s := range f.balancer.ServerStatuses() {
			if s.InFlight != 16 {
				t.Errorf("%s has %d of 64 requests, want 16", s.Name, s.InFlight)
			}
		}
		if err := errors.Join(done()...); err != nil {
			t.Error(err)
		}
	})
}

func TestC20OthersTakeRequestsOfCrashedServer(t *testing.T) {
	t.Parallel()
	bubble(t, 4, func(f *fixture) {
		for _, s := range f.servers {
			s.takes = time.Second
		}
		done := f.askMany(64)
		f.servers[1].crash()
		var failed int
		for _, err := range done() {
			if err == nil {
				continue
			}
			failed++
			if d := crashOf(err); !fault.Is(err, fault.Unavailable) || d == nil || d.Server != "b" || d.Start != "1" || d.Solo {
				t.Errorf("%v: %+v", err, d)
			}
		}
		if failed != 16 || f.state(1) != balancer.Open && f.state(1) != balancer.HalfOpen {
			t.Errorf("%d requests failed, want 16; the crashed server is %s", failed, f.state(1))
		}
		if calls := f.servers[1].metricsCalls; calls > 12 { // one probe for all requests, then one after each wait
			t.Errorf("its metrics were fetched %d times within a second", calls)
		}
		_, before := f.servers[1].questions()
		if err := errors.Join(f.askMany(64)()...); err != nil {
			t.Error(err)
		}
		if _, after := f.servers[1].questions(); after != before {
			t.Errorf("it got %d requests while it was set aside", after-before)
		}
		f.servers[1].start()
		time.Sleep(5 * time.Second)
		if err := errors.Join(f.askMany(64)()...); err != nil || f.state(1) != balancer.Closed {
			t.Errorf("after its restart: %v, %s", err, f.state(1))
		}
		if _, after := f.servers[1].questions(); after != before+16 {
			t.Errorf("it got %d requests after its restart, want 16", after-before)
		}
	})
}

func TestRequestThatNeverReachedServerIsNoCrash(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		f.servers[0].crash()
		if _, err := f.ask("x"); !fault.Is(err, fault.Unavailable) || crashOf(err) != nil {
			t.Errorf("%v, %+v", err, crashOf(err))
		}
		if _, err := f.ask("x"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("the cause is missing: %v", err)
		}
		if _, err := f.balancer.Ready(f.t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("ready: %v", err)
		}
		if _, asked := f.servers[0].questions(); asked != 1 {
			t.Errorf("a server that is down got %d requests, want 1", asked)
		}
		f.servers[0].start()
		time.Sleep(3 * time.Second)
		if _, err := f.balancer.Ready(f.t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCrashIsFoundAfterQuickRestart(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		f.servers[0].takes = time.Second
		done := f.askMany(3)
		f.servers[0].set(func() { f.servers[0].starts = 2 })
		f.servers[0].breakConnections()
		for _, err := range done() {
			if d := crashOf(err); d == nil || d.Start != "1" {
				t.Errorf("%v", err)
			}
		}
	})
}

// An answer that has arrived when its server crashes is read to its end, which may
// be after another connection broke.
func TestAnswerReadAfterCrashIsNoSignOfLife(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		s := f.servers[0]
		s.takes, s.refusal = time.Second, 5*time.Millisecond
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := f.ask("arrived"); err != nil {
				t.Error(err)
			}
		})
		done := f.askMany(3)
		s.crash()
		for _, err := range done() {
			if d := crashOf(err); d == nil || d.Start != "1" {
				t.Errorf("%v", err)
			}
		}
		all.Wait()
	})
}

func TestLateMetricsOfCrashedServerAreIgnored(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		s := f.servers[0]
		s.takes, s.metricsDelay = 2*time.Second, time.Second
		before := f.askMany(1)
		time.Sleep(1200 * time.Millisecond) // the watch gets the metrics of the first start late
		s.crash()
		before()
		s.start()
		s.set(func() { s.takes = 0 })
		time.Sleep(500 * time.Millisecond)
		s.set(func() { s.takes = 2 * time.Second })
		after := f.askMany(1)
		time.Sleep(time.Second)
		s.breakConnections()
		if err := after()[0]; !fault.Is(err, fault.Unavailable) || crashOf(err) != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestBrokenConnectionToLivingServerIsNoCrash(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		f.servers[0].takes = time.Second
		done := f.askMany(3)
		f.servers[0].breakConnections()
		for _, err := range done() {
			if !fault.Is(err, fault.Unavailable) || crashOf(err) != nil {
				t.Errorf("%v", err)
			}
		}
		if f.state(0) != balancer.Closed {
			t.Errorf("the server is %s", f.state(0))
		}
	})
}

func TestFaultOfOneRequestIsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		for range 20 {
			if _, err := f.ask("bad"); !fault.Is(err, fault.Corrupt) || fault.ClassOf(err) != fault.Engine {
				t.Fatalf("%v", err)
			}
		}
		if _, err := f.ask("good"); err != nil || f.state(0) != balancer.Closed {
			t.Errorf("%v, %s", err, f.state(0))
		}
	})
}

func TestC20ServerThatFailsForAllIsSetAside(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(f *fixture) {
		f.servers[0].fails = true
		failed := 0
		for n := range 100 {
			_, err := f.ask(fmt.Sprint("prompt ", n))
			if err == nil {
				continue
			}
			failed++
			if !fault.Is(err, fault.Unavailable) || crashOf(err) != nil {
				t.Errorf("%v", err)
			}
		}
		if failed != 1 {
			t.Errorf("%d of 100 requests went to the failing server, want 1", failed)
		}
		f.servers[0].set(func() { f.servers[0].fails = false })
		time.Sleep(3 * time.Second)
		if f.state(0) != balancer.Closed {
			t.Errorf("after it works again it is %s", f.state(0))
		}
	})
}

func TestC21HangingServerIsSetAside(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(f *fixture) {
		f.servers[0].hangs = true
		late := &fault.Error{Kind: fault.Corrupt, Class: fault.Timeout, Op: "no token came for 1m"}
		for range 2 {
			ctx, cancel := context.WithTimeoutCause(f.t.Context(), time.Minute, late)
			_, err := f.balancer.Answer(ctx, engine.Request{Body: []byte("x")}, func() {})
			if err != nil && !errors.Is(err, late) {
				t.Errorf("%v", err)
			}
			cancel()
			var hung *engine.HangError
			if errors.As(err, &hung) && !hung.ServerAtFault(f.t.Context()) {
				t.Error("the probe of a hanging server says that it works")
			}
		}
		time.Sleep(12 * time.Second) // the probe's question hangs, too
		if f.state(0) == balancer.Closed || f.state(1) != balancer.Closed {
			t.Errorf("the hanging server is %s, the other one %s", f.state(0), f.state(1))
		}
		for range 10 {
			if got, err := f.ask("x"); err != nil || got != "b" {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}

func TestBusyServerIsNotTakenForHanging(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		f.servers[0].takes = 20 * time.Second // a question waits as long as a request
		done := f.askMany(8)
		f.servers[0].breakConnections()
		for _, err := range done() {
			if !fault.Is(err, fault.Unavailable) || crashOf(err) != nil {
				t.Errorf("%v", err)
			}
		}
		if f.state(0) != balancer.Closed {
			t.Errorf("the server is %s", f.state(0))
		}
	})
}

func TestCancelledRequestStartsNoProbe(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		f.servers[0].hangs = true
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
		defer cancel()
		_, err := f.balancer.Answer(ctx, engine.Request{Body: []byte("x")}, func() {})
		if own, _ := f.servers[0].questions(); !fault.Is(err, fault.Canceled) || own != 0 || f.state(0) != balancer.Closed {
			t.Errorf("%v; the server got %d questions and is %s", err, own, f.state(0))
		}
	})
}

func TestThrottledRequestHasNoHintIfOtherServerHasRoom(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(f *fixture) {
		f.servers[0].full = 30 * time.Second
		refused := 0
		for range 20 {
			if _, err := f.ask("x"); err != nil {
				refused++
				var says *engine.StatusError
				if !fault.Is(err, fault.Throttled) || fault.RetryAfter(err) != 0 || !errors.As(err, &says) || !says.Quota {
					t.Errorf("%v, retry after %s; the server says %+v", err, fault.RetryAfter(err), says)
				}
			}
		}
		if refused != 1 {
			t.Errorf("%d of 20 requests went to the full server, want 1", refused)
		}
	})
	bubble(t, 1, func(f *fixture) {
		f.servers[0].full = 30 * time.Second
		if _, err := f.ask("x"); fault.RetryAfter(err) != 30*time.Second {
			t.Errorf("the only server's hint is lost: %v", err)
		}
	})
}

func TestReadyWhileOneOfTwoServersIsBad(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(s *fake){
		"its key is wrong":    func(s *fake) { s.denies = true },
		"its metrics hang":    func(s *fake) { s.hangs = true },
		"it hangs":            func(s *fake) { s.readyHangs = true },
		"it can't be reached": func(s *fake) { s.crash() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(f *fixture) {
				spoil(f.servers[1])
				ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				if _, err := f.balancer.Ready(ctx); err != nil || time.Since(began) > 20*time.Second {
					t.Errorf("with one good server, after %s: %v", time.Since(began), err)
				}
			})
		})
	}
	bubble(t, 2, func(f *fixture) {
		f.servers[0].crash()
		f.servers[1].denies = true
		if _, err := f.balancer.Ready(f.t.Context()); !fault.Is(err, fault.Denied) {
			t.Errorf("without a good server: %v, want what only a user can mend", err)
		}
		f.servers[0].readyHangs = true // it would have held up the worker for ever
		if _, err := f.balancer.Ready(f.t.Context()); !fault.Is(err, fault.Denied) {
			t.Errorf("beside one that hangs: %v, want what only a user can mend", err)
		}
	})
	bubble(t, 1, func(f *fixture) {
		f.servers[0].readyHangs = true
		if _, err := f.balancer.Ready(f.t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a server that hangs: %v", err)
		}
	})
}

func TestRequestGoesToTheServerBehindTheLastOne(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(f *fixture) {
		for range 3 { // a comparison names its server; the item must not meet the same one each time
			a, err := f.balancer.Answer(f.t.Context(), engine.Request{Servers: []string{"b"}}, func() {})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.ask("x"); err != nil || got != "a" {
				t.Errorf("after a request to %s the next one goes to %q: %v", a.Server, got, err)
			}
		}
	})
}

func TestLimitIsSumOfWorkingServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, other := newFake("a"), newFake("b")
		b := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: one}, {Name: "b", Server: other}}})
		defer b.Close()
		if b.Limit() != 2*balancer.DefaultStart {
			t.Errorf("the limit at the start is %d", b.Limit())
		}
		other.crash()
		for range 2 {
			_, _ = b.Answer(t.Context(), engine.Request{}, func() {})
		}
		<-b.LimitChanges()
		if b.Limit() != balancer.DefaultStart {
			t.Errorf("the limit with one of two servers is %d", b.Limit())
		}
		other.start()
		<-b.LimitChanges()
		if b.Limit() != 2*balancer.DefaultStart {
			t.Errorf("the limit after the restart is %d", b.Limit())
		}
	})
}

func TestIdleServerIsNotPolled(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		before := f.servers[0].metricsCalls
		time.Sleep(time.Hour)
		if got := f.servers[0].metricsCalls - before; got != 0 {
			t.Errorf("its metrics were fetched %d times within an hour", got)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	s := instant{}
	f := balancer.New(balancer.Config{Servers: []balancer.Backend{
		{Name: "a", Server: s}, {Name: "b", Server: s}, {Name: "c", Server: s}, {Name: "d", Server: s}}})
	defer f.Close()
	r := engine.Request{Body: []byte(`{"model":"m"}`)}
	progress := func() {}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Answer(ctx, r, progress); err != nil {
			b.Fatal(err)
		}
	}
}

// instant is a server that answers at once.
type instant struct{ noMetrics }

func (instant) Answer(_ context.Context, _ engine.Request, progress func()) (engine.Answer, error) {
	progress()
	return engine.Answer{}, nil
}
func (instant) Close() error { return nil }
