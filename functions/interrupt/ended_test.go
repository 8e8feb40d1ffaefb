package interrupt_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/interrupt"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// unheard is an instance of the pool small that no worker was ever on.
const unheard = "i-0aaaaaaaaaaaaaaa0"

// small is whose instances are in the pool small.
func small(_ context.Context, machine string) (string, error) {
	if machine != unheard && machine != instance {
		return "", fault.New(fault.NotFound, "somebody else's")
	}
	return "small", nil
}

// words are the last words of machines.
func words(t *testing.T, p host.Ports) (said []health.Heartbeat) {
	t.Helper()
	for d, err := range document.All(t.Context(), p.Docs, record.HeartbeatPrefix) {
		var b health.Heartbeat
		if err != nil || record.Decode(d.Value, &b, d.Key) != nil {
			t.Fatalf("%s: %v", d.Key, err)
		}
		if b.FailureReason != "" {
			said = append(said, b)
		}
	}
	return said
}

func ended(instance string, ago time.Duration) interrupt.EndedMachine {
	return interrupt.EndedMachine{Pool: "small", Instance: instance, Reason: "user request.", At: time.Now().Add(-ago)}
}

// Else a machine that can say nothing would be followed by the next, for as long
// as a run is open.
func TestAMachineThatEndedWithoutAWordHasGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := newFixture(t)
		for range 3 { // events come more than once
			if err := interrupt.New(p).Ended(t.Context(), ended(unheard, time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		said := words(t, p)
		if len(said) != 1 {
			t.Fatalf("%d last words", len(said))
		}
		if b := said[0]; b.Pool != "small" || b.Instance != unheard || b.State != health.Gone || !b.At.Equal(time.Now()) ||
			!strings.Contains(b.FailureReason, "get-console-output --latest --instance-id "+unheard) || !strings.Contains(b.FailureReason, "user request") {
			t.Errorf("the last word is %+v", b)
		}
	})
}

func TestAMachineThatWasHeardOfHasNotGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := "i-0bbbbbbbbbbbbbbb0"
		for name, c := range map[string]struct {
			of    interrupt.EndedMachine
			given func(*interrupt.Interrupter) error
		}{
			"its workers work":    {ended(instance, 0), nil},
			"its worker has left": {ended(gone, 0), nil},
			"it was taken back before": {ended(unheard, 0), func(i *interrupt.Interrupter) error {
				return i.Preempted(t.Context(), unheard, "spot interruption", small)
			}},
			// Its workers' heartbeats may be forgotten by now.
			"it is told too late": {ended(unheard, health.HeartbeatRetention), nil},
			"it ends tomorrow":    {ended(unheard, -24*time.Hour), nil},
		} {
			p, _ := newFixture(t)
			if _, err := host.Save(t.Context(), p.Docs, record.HeartbeatKey("w6"), health.Heartbeat{Schema: 1, Worker: "w6", State: health.Gone, Instance: gone}, ""); err != nil {
				t.Fatal(err)
			}
			i := interrupt.New(p)
			if c.given != nil {
				if err := c.given(i); err != nil {
					t.Fatal(err)
				}
			}
			if err := i.Ended(t.Context(), c.of); err != nil || len(words(t, p)) > 0 {
				t.Errorf("%s: %v, %v", name, words(t, p), err)
			}
		}
	})
}

// A spot market that gives no machine the time to start is not its machines'
// failure, and others' machines are nobody's affair.
func TestOnlyAPoolsMachineThatIsTakenBackIsNoted(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	i := interrupt.New(p)
	for _, machine := range []string{unheard, unheard, instance, "i-0ccccccccccccccc0"} {
		if err := i.Preempted(t.Context(), machine, "spot interruption", small); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(marked(t, p), " "); got != "w1 w2" {
		t.Errorf("%q shall drain", got)
	}
	for machine, want := range map[string]bool{unheard: true, instance: false, "i-0ccccccccccccccc0": false} {
		if _, err := p.Docs.Get(t.Context(), record.HeartbeatKey(machine)); (err == nil) != want {
			t.Errorf("%s: %v, noted is to be %t", machine, err, want)
		}
	}
}

func TestTwoWordsOfOneMachineAtOnceAreOne(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	meanwhile := func(ctx context.Context, machine string) (string, error) {
		if err := interrupt.New(p).Preempted(ctx, machine, "rebalance recommendation", small); err != nil {
			t.Error(err)
		}
		return small(ctx, machine)
	}
	if err := interrupt.New(p).Preempted(t.Context(), unheard, "spot interruption", meanwhile); err != nil {
		t.Error(err)
	}
}

func TestWhoseMachineIsTakenBackIsAskedAgainIfNobodyAnswers(t *testing.T) {
	t.Parallel()
	for kind, again := range map[fault.Kind]bool{fault.Throttled: true, fault.Unavailable: true, fault.Denied: false} {
		p, _ := newFixture(t)
		err := interrupt.New(p).Preempted(t.Context(), unheard, "spot interruption", func(context.Context, string) (string, error) { return "", fault.New(kind, "no") })
		if (err != nil) != again || again && !fault.Is(err, kind) {
			t.Errorf("%v: %v", kind, err)
		}
	}
}

// The newest word stands, in whichever order they come.
func TestThatNoMachineCanComeUpIsNoted(t *testing.T) {
	t.Parallel()
	p, _ := newFixture(t)
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, ago := range []time.Duration{time.Hour, 0, time.Minute, 0} {
		if err := interrupt.New(p).LaunchFailed(t.Context(), "small", "no capacity since "+ago.String(), at.Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	if f := hosttest.Load[record.Fleet](t, p, record.FleetKey("small")); !f.AbsentAt.Equal(at) || f.Absent != "no capacity since 0s" {
		t.Errorf("the note is %+v", f)
	}
}
