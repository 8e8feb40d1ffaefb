package balancer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/balancer"
	"rollout/shared/fault"
)

func (w *world) alone(prompt string) (string, error) {
	a, err := w.fleet.Answer(w.t.Context(), engine.Request{Body: []byte(prompt), Exclusive: true}, func() {})
	return a.Text, err
}

func TestARequestAloneGetsAServerThatDoesNothingElse(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(w *world) {
		w.servers[0].other = 3 // another worker's
		for range 4 {
			if got, err := w.alone("x"); err != nil || got != "b" {
				t.Errorf("%q, %v", got, err)
			}
		}
		w.servers[1].other = 1
		go func() {
			time.Sleep(5 * time.Second)
			w.servers[0].set(func() { w.servers[0].other = 0 })
		}()
		if got, err := w.alone("y"); err != nil || got != "a" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestNothingElseIsAskedOfAServerThatAnswersOneAlone(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(w *world) {
		w.servers[0].takes = time.Second
		go func() { _, _ = w.alone("x") }()
		synctest.Wait()
		if _, err := w.ask("y"); !fault.Is(err, fault.Throttled) {
			t.Errorf("%v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := w.ask("y"); err != nil {
			t.Error(err)
		}
	})
}

// All who waited for a server ask it at once when it is back.
func TestADeathAloneStaysOneWhenOthersComeAfterIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFake("a")
		s.takes = time.Minute
		f := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: s}}})
		defer f.Close()
		failed := make(chan error)
		go func() {
			_, err := f.Answer(t.Context(), engine.Request{Body: []byte("x"), Exclusive: true}, func() {})
			failed <- err
		}()
		time.Sleep(10 * time.Second)
		s.die()
		s.start()
		s.set(func() { s.other = 5 })
		if d := died(<-failed); d == nil || !d.Solo {
			t.Errorf("%+v", d)
		}
	})
}

func TestADeathAloneSaysSo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		others int
		come   int // others' requests that come meanwhile
		silent bool
		alone  bool
		start  string
	}{
		"alone":                                {0, 0, false, true, "1"},
		"beside others' requests":              {2, 0, false, false, "1"},
		"before others' requests come":         {0, 1, false, false, "1"},
		"alone as far as is known, no metrics": {0, 0, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFake("a")
				s.takes, s.other, s.silent = time.Second, c.others, c.silent
				f := balancer.New(balancer.Config{Servers: []balancer.Backend{{Name: "a", Server: s}}})
				defer f.Close()
				failed := make(chan error)
				began := time.Now()
				go func() {
					_, err := f.Answer(t.Context(), engine.Request{Body: []byte("x"), Exclusive: true}, func() {})
					failed <- err
				}()
				for asked := 0; asked == 0; _, asked = s.questions() {
					time.Sleep(100 * time.Millisecond)
				}
				if waited := time.Since(began); waited > 32*time.Second || (c.others > 0) != (waited > 30*time.Second) {
					t.Errorf("it waited %s", waited)
				}
				s.set(func() { s.other += c.come })
				time.Sleep(200 * time.Millisecond)
				s.die()
				if d := died(<-failed); d == nil || d.Solo != c.alone || d.Start != c.start {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}
