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

// world is a fleet over fakes, within a bubble.
type world struct {
	t       *testing.T
	fleet   *balancer.Balancer
	servers []*fake
}

func bubble(t *testing.T, servers int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t}
		var members []balancer.Backend
		for n := range servers {
			s := newFake(string(rune('a' + n)))
			w.servers = append(w.servers, s)
			members = append(members, balancer.Backend{Name: s.name, Server: s})
		}
		w.fleet = balancer.New(balancer.Config{Servers: members, InFlight: 64})
		defer func() {
			if err := w.fleet.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := w.fleet.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(w)
	})
}

func (w *world) ask(prompt string) (string, error) {
	a, err := w.fleet.Answer(w.t.Context(), engine.Request{Body: []byte(prompt)}, func() {})
	return a.Text, err
}

// together asks so many at once and returns a function that waits for what
// became of them.
func (w *world) together(n int) func() []error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { _, errs[i] = w.ask(fmt.Sprint("prompt ", i)) })
	}
	synctest.Wait()
	return func() []error { all.Wait(); return errs }
}

func (w *world) state(n int) balancer.State { return w.fleet.ServerStatuses()[n].State }

func died(err error) *engine.CrashError {
	var d *engine.CrashError
	if errors.As(err, &d) {
		return d
	}
	return nil
}

func TestAFleetIsAnEngine(t *testing.T) {
	t.Parallel()
	over := func(cfg mock.Config) func(t *testing.T) engine.Engine {
		return func(*testing.T) engine.Engine {
			return balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: quiet{mock.New(cfg)}}, {Name: "b", Server: quiet{mock.New(cfg)}}}})
		}
	}
	enginetest.Run(t, enginetest.Subject{New: over(mock.Config{}), Stuck: over(mock.Config{Delay: time.Hour}), Model: "mock"})
}

// quiet is an engine that tells nothing of itself.
type quiet struct{ engine.Engine }

func (quiet) Metrics(context.Context) (engine.ServerMetrics, error) {
	return engine.UnknownMetrics(), nil
}

func TestRequestsGoToTheServerWithTheMostRoom(t *testing.T) {
	t.Parallel()
	bubble(t, 4, func(w *world) {
		for _, s := range w.servers {
			s.takes = time.Second
		}
		done := w.together(64)
		for _, s := range w.fleet.ServerStatuses() {
			if s.InFlight != 16 {
				t.Errorf("%s has %d of 64", s.Name, s.InFlight)
			}
		}
		if err := errors.Join(done()...); err != nil {
			t.Error(err)
		}
	})
}

func TestC20OneOfFourServersDiesAndTheOthersTakeItsRequests(t *testing.T) {
	t.Parallel()
	bubble(t, 4, func(w *world) {
		for _, s := range w.servers {
			s.takes = time.Second
		}
		done := w.together(64)
		w.servers[1].die()
		var dead int
		for _, err := range done() {
			if err == nil {
				continue
			}
			dead++
			if d := died(err); !fault.Is(err, fault.Unavailable) || d == nil || d.Server != "b" || d.Start != "1" || d.Solo {
				t.Errorf("%v: %+v", err, d)
			}
		}
		if dead != 16 || w.state(1) != balancer.Open && w.state(1) != balancer.HalfOpen {
			t.Errorf("%d requests were with a server that is %s", dead, w.state(1))
		}
		if looks := w.servers[1].looks; looks > 12 { // one inquiry for all, then one a wait
			t.Errorf("it was looked at %d times within a second", looks)
		}
		_, before := w.servers[1].questions()
		if err := errors.Join(w.together(64)()...); err != nil {
			t.Error(err)
		}
		if _, after := w.servers[1].questions(); after != before {
			t.Errorf("it got %d requests while it was away", after-before)
		}
		w.servers[1].start()
		time.Sleep(5 * time.Second)
		if err := errors.Join(w.together(64)()...); err != nil || w.state(1) != balancer.Closed {
			t.Errorf("back again: %v, %s", err, w.state(1))
		}
		if _, after := w.servers[1].questions(); after != before+16 {
			t.Errorf("it got %d requests when it was back", after-before)
		}
	})
}

func TestARequestThatNeverReachedItsServerDidNotKillIt(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		w.servers[0].die()
		if _, err := w.ask("x"); !fault.Is(err, fault.Unavailable) || died(err) != nil {
			t.Errorf("%v, %+v", err, died(err))
		}
		if _, err := w.ask("x"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("the reason is not told: %v", err)
		}
		if _, err := w.fleet.Ready(w.t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("ready: %v", err)
		}
		if _, asked := w.servers[0].questions(); asked != 1 {
			t.Errorf("a server that is away was asked %d times", asked)
		}
		w.servers[0].start()
		time.Sleep(3 * time.Second)
		if _, err := w.fleet.Ready(w.t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAServerThatIsBackBeforeAnybodyLooksDiedAllTheSame(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		w.servers[0].takes = time.Second
		done := w.together(3)
		w.servers[0].set(func() { w.servers[0].starts = 2 })
		w.servers[0].drop()
		for _, err := range done() {
			if d := died(err); d == nil || d.Start != "1" {
				t.Errorf("%v", err)
			}
		}
	})
}

// An answer that has arrived when its server dies is read to its end, which
// may be after the first connection broke.
func TestWhatADeadServerHadSaidIsNoSignThatItLives(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		s := w.servers[0]
		s.takes, s.refusal = time.Second, 5*time.Millisecond
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := w.ask("arrived"); err != nil {
				t.Error(err)
			}
		})
		done := w.together(3)
		s.die()
		for _, err := range done() {
			if d := died(err); d == nil || d.Start != "1" {
				t.Errorf("%v", err)
			}
		}
		all.Wait()
	})
}

func TestWhatADeadServerToldOfItselfIsNotTakenForNews(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		s := w.servers[0]
		s.takes, s.stall = 2*time.Second, time.Second
		before := w.together(1)
		time.Sleep(1200 * time.Millisecond) // the watch is told of the first start, and hears it late
		s.die()
		before()
		s.start()
		s.set(func() { s.takes = 0 })
		time.Sleep(500 * time.Millisecond)
		s.set(func() { s.takes = 2 * time.Second })
		after := w.together(1)
		time.Sleep(time.Second)
		s.drop()
		if err := after()[0]; !fault.Is(err, fault.Unavailable) || died(err) != nil {
			t.Errorf("%v", err)
		}
	})
}

func TestABrokenConnectionToAServerThatLivesOnIsNoDeath(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		w.servers[0].takes = time.Second
		done := w.together(3)
		w.servers[0].drop()
		for _, err := range done() {
			if !fault.Is(err, fault.Unavailable) || died(err) != nil {
				t.Errorf("%v", err)
			}
		}
		if w.state(0) != balancer.Closed {
			t.Errorf("the server is %s", w.state(0))
		}
	})
}

func TestAFaultOfOneRequestIsItsOwn(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		for range 20 {
			if _, err := w.ask("bad"); !fault.Is(err, fault.Corrupt) || fault.ClassOf(err) != fault.Engine {
				t.Fatalf("%v", err)
			}
		}
		if _, err := w.ask("good"); err != nil || w.state(0) != balancer.Closed {
			t.Errorf("%v, %s", err, w.state(0))
		}
	})
}

func TestC20AServerThatFailsForEverybodyBlamesNobody(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(w *world) {
		w.servers[0].fails = true
		failed := 0
		for n := range 100 {
			_, err := w.ask(fmt.Sprint("prompt ", n))
			if err == nil {
				continue
			}
			failed++
			if !fault.Is(err, fault.Unavailable) || died(err) != nil {
				t.Errorf("%v", err)
			}
		}
		if failed != 1 {
			t.Errorf("%d of 100 requests met the server that fails", failed)
		}
		w.servers[0].set(func() { w.servers[0].fails = false })
		time.Sleep(3 * time.Second)
		if w.state(0) != balancer.Closed {
			t.Errorf("it works again and is %s", w.state(0))
		}
	})
}

func TestC21AServerThatHangsGetsNoMoreRequests(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(w *world) {
		w.servers[0].hangs = true
		late := &fault.Error{Kind: fault.Corrupt, Class: fault.Timeout, Op: "no token came for 1m"}
		for range 2 {
			ctx, cancel := context.WithTimeoutCause(w.t.Context(), time.Minute, late)
			_, err := w.fleet.Answer(ctx, engine.Request{Body: []byte("x")}, func() {})
			if err != nil && !errors.Is(err, late) {
				t.Errorf("%v", err)
			}
			cancel()
			var hung *engine.HangError
			if errors.As(err, &hung) && !hung.ServerAtFault(w.t.Context()) {
				t.Error("a server that hangs is found to work")
			}
		}
		time.Sleep(12 * time.Second) // a question hangs, too
		if w.state(0) == balancer.Closed || w.state(1) != balancer.Closed {
			t.Errorf("the server that hangs is %s, the other one %s", w.state(0), w.state(1))
		}
		for range 10 {
			if got, err := w.ask("x"); err != nil || got != "b" {
				t.Errorf("%q, %v", got, err)
			}
		}
	})
}

func TestAServerWithMuchToDoIsNotTakenForOneThatHangs(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		w.servers[0].takes = 20 * time.Second // a question waits as long as all others
		done := w.together(8)
		w.servers[0].drop()
		for _, err := range done() {
			if !fault.Is(err, fault.Unavailable) || died(err) != nil {
				t.Errorf("%v", err)
			}
		}
		if w.state(0) != balancer.Closed {
			t.Errorf("the server is %s", w.state(0))
		}
	})
}

func TestARequestThatItsCallerGaveUpIsNobodysTrouble(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		w.servers[0].hangs = true
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, err := w.fleet.Answer(ctx, engine.Request{Body: []byte("x")}, func() {})
		if own, _ := w.servers[0].questions(); !fault.Is(err, fault.Canceled) || own != 0 || w.state(0) != balancer.Closed {
			t.Errorf("%v; the server was asked %d questions and is %s", err, own, w.state(0))
		}
	})
}

func TestWhatOneServerRefusesAnotherTakesAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(w *world) {
		w.servers[0].full = 30 * time.Second
		refused := 0
		for range 20 {
			if _, err := w.ask("x"); err != nil {
				refused++
				if !fault.Is(err, fault.Throttled) || fault.RetryAfter(err) != 0 {
					t.Errorf("%v, to come back after %s", err, fault.RetryAfter(err))
				}
			}
		}
		if refused != 1 {
			t.Errorf("%d of 20 met the full server", refused)
		}
	})
	bubble(t, 1, func(w *world) {
		w.servers[0].full = 30 * time.Second
		if _, err := w.ask("x"); fault.RetryAfter(err) != 30*time.Second {
			t.Errorf("the only server's hint is lost: %v", err)
		}
	})
}

func TestTheLimitIsWhatTheServersThatAnswerTake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newFake("a"), newFake("b")
		f := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: a}, {Name: "b", Server: b}}})
		defer f.Close()
		if f.Limit() != 2*balancer.DefaultStart {
			t.Errorf("%d at the start", f.Limit())
		}
		b.die()
		for range 2 {
			_, _ = f.Answer(t.Context(), engine.Request{}, func() {})
		}
		<-f.LimitChanges()
		if f.Limit() != balancer.DefaultStart {
			t.Errorf("%d without one of two", f.Limit())
		}
		b.start()
		<-f.LimitChanges()
		if f.Limit() != 2*balancer.DefaultStart {
			t.Errorf("%d when it is back", f.Limit())
		}
	})
}

func TestAnIdleServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		before := w.servers[0].looks
		time.Sleep(time.Hour)
		if got := w.servers[0].looks - before; got != 0 {
			t.Errorf("it was looked at %d times within an hour", got)
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	at := answers{}
	f := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: at}, {Name: "b", Server: at}, {Name: "c", Server: at}, {Name: "d", Server: at}}})
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

// answers is a server that answers at once.
type answers struct{ quiet }

func (answers) Answer(_ context.Context, _ engine.Request, progress func()) (engine.Answer, error) {
	progress()
	return engine.Answer{}, nil
}
func (answers) Close() error { return nil }
