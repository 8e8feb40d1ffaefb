package balancer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/shared/fault"
)

func (f *fixture) askExclusively(prompt string) (string, error) {
	a, err := f.balancer.Answer(f.t.Context(), engine.Request{Body: []byte(prompt), Exclusive: true}, func() {})
	return a.Text, err
}

func TestExclusiveRequestGetsIdleServer(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(f *fixture) {
		f.servers[0].other = 3 // requests of another worker
		for range 4 {
			if got, err := f.askExclusively("x"); err != nil || got != "b" {
				t.Errorf("%q, %v", got, err)
			}
		}
		f.servers[1].other = 1
		go func() {
			time.Sleep(5 * time.Second)
			f.servers[0].set(func() { f.servers[0].other = 0 })
		}()
		if got, err := f.askExclusively("y"); err != nil || got != "a" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestServerWithExclusiveRequestGetsNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(f *fixture) {
		f.servers[0].takes = time.Second
		go func() { _, _ = f.askExclusively("x") }()
		synctest.Wait()
		if _, err := f.ask("y"); !fault.Is(err, fault.Throttled) {
			t.Errorf("%v", err)
		}
		time.Sleep(3 * time.Second) // a question comes before the request
		if _, err := f.ask("y"); err != nil {
			t.Error(err)
		}
	})
}

// A server may fail for everybody before anybody has asked it, and die later: no item is
// the cause, though it is the only one that met it.
func TestServerThatFailedBeforeDiesOfNoItem(t *testing.T) {
	t.Parallel()
	for name, servers := range map[string]int{"one server": 1, "one of two": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, servers, func(f *fixture) {
				for range 2 * servers {
					if _, err := f.ask("before"); err != nil {
						t.Fatal(err)
					}
				}
				f.servers[0].set(func() { f.servers[0].fails = true })
				time.AfterFunc(5*time.Second, f.servers[0].crash)
				for range 3 * servers {
					_, err := f.askExclusively("x")
					if crashOf(err) != nil || servers == 2 && err != nil {
						t.Errorf("%v", err)
					}
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// Other workers send their requests as soon as the server has restarted.
func TestSoloCrashStaysSoloAfterRestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake("a")
		s.takes = 6 * time.Second // the question, too
		b := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: s}}})
		defer b.Close()
		failed := make(chan error)
		go func() {
			_, err := b.Answer(t.Context(), engine.Request{Body: []byte("x"), Exclusive: true}, func() {})
			failed <- err
		}()
		time.Sleep(10 * time.Second)
		s.crash()
		s.start()
		s.set(func() { s.other = 5 })
		err := <-failed
		if d := crashOf(err); d == nil || !d.Solo {
			t.Errorf("%+v", err)
		}
	})
}

func TestCrashSaysWhetherRequestWasSolo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others    int // requests of other workers before
		come      int // during the request
		noMetrics bool
		solo      bool
		start     string
	}{
		"solo":                             {0, 0, false, true, "1"},
		"others before":                    {2, 0, false, false, "1"},
		"others during the request":        {0, 1, false, false, "1"},
		"solo as far as known, no metrics": {0, 0, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake("a")
				s.takes, s.other, s.noMetrics = time.Second, c.others, c.noMetrics
				b := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: s}}})
				defer b.Close()
				failed := make(chan error)
				began := time.Now()
				go func() {
					_, err := b.Answer(t.Context(), engine.Request{Body: []byte("x"), Exclusive: true}, func() {})
					failed <- err
				}()
				for asked := 0; asked == 0; _, asked = s.questions() {
					time.Sleep(100 * time.Millisecond)
				}
				waited := time.Since(began)
				if waited > 32*time.Second || (c.others > 0) != (waited > 30*time.Second) {
					t.Errorf("the request waited %s", waited)
				}
				s.set(func() { s.other += c.come })
				time.Sleep(200 * time.Millisecond)
				s.crash()
				if d := crashOf(<-failed); d == nil || d.Solo != c.solo || d.Start != c.start {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}
