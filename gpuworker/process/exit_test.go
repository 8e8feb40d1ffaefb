package process_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/process"
	"rollout/shared/capacity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
)

// machine is a machine without GPUs whose notices come from a channel.
type machine chan capacity.Notice

func (machine) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: []capacity.GPU{}}, nil
}

func (m machine) Notices(context.Context) <-chan capacity.Notice { return m }

// Without this end, a machine whose worker is denied access would be paid for
// without end.
func TestWorkerThatCannotWorkEndsAsUnusable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		denied := func(context.Context) error { return fault.New(fault.Denied, "the worker may not write") }
		docs := &faultyDocs{Store: memory.NewDocuments(), fault: denied}
		docs.failing.Store(true)
		o := options(docs, nil)
		o.Machine, o.IdleTimeout, o.RetryRegistration = make(machine), 5*time.Minute, true
		began := time.Now()
		end, err := process.Run(t.Context(), o)
		if took := time.Since(began); err != nil || end != process.Unusable || took < 20*time.Minute ||
			took > 21*time.Minute {
			t.Errorf("the worker ended with %q, %v, after %s", end, err, took)
		}
	})
}

// failingGPU is a machine whose GPU fails at a time.
type failingGPU struct {
	machine
	fails time.Time
}

func (f failingGPU) Inventory(context.Context) (capacity.Inventory, error) {
	g := capacity.GPU{UUID: "GPU-1"}
	if !time.Now().Before(f.fails) {
		g.DrainReason = "uncorrectable ECC errors"
	}
	return capacity.Inventory{CPUs: 1, GPUs: []capacity.GPU{g}}, nil
}

// Without the distinction, a driver with which no GPU works would cause one machine
// after the other to be started.
func TestGPUFailureBeforeFirstAnswerIsDistinguished(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers bool
		notice  bool // before the failure
		want    process.ExitReason
	}{
		"nothing answered":    {false, false, process.GPUFailed},
		"some answered":       {true, false, process.MachineLost},
		"preempted meanwhile": {false, true, process.MachineLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := failingGPU{make(machine, 1), time.Now().Add(time.Minute)}
				o := options(memory.NewDocuments(), nil)
				o.Machine, o.IdleTimeout = m, 5*time.Minute
				if c.answers {
					inputtest.Plan(t, o.Ports, inputtest.Manifest(4), inputtest.Prompts(0, 4))
					work := events.Work{Run: string(inputtest.RunID), Pool: "default"}
					if err := o.Ports.Send(t.Context(), host.WorkQueue("default"), work); err != nil {
						t.Fatal(err)
					}
				}
				if c.notice {
					m.machine <- capacity.Notice{Reason: "spot", Lead: time.Minute}
				}
				if end, err := process.Run(t.Context(), o); err != nil || end != c.want {
					t.Errorf("the worker ended with %q, %v; want %q", end, err, c.want)
				}
			})
		})
	}
}

func TestRunReturnsExitReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(machine, chan<- string)
		after   time.Duration
		want    process.ExitReason
	}{
		"no work": {func(machine, chan<- string) {}, 5 * time.Minute, process.Idle},
		"a notice": {func(m machine, _ chan<- string) {
			m <- capacity.Notice{Reason: "spot", Lead: time.Minute}
		}, 0, process.MachineLost},
		"a signal": {func(_ machine, shutdown chan<- string) { shutdown <- "signal terminated" }, 0, process.Requested},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				shutdown, m := make(chan string, 1), make(machine, 1)
				o := options(memory.NewDocuments(), shutdown)
				o.Machine, o.IdleTimeout = m, 5*time.Minute
				began := time.Now()
				var end process.ExitReason
				var err error
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					end, err = process.Run(t.Context(), o)
				}()
				advance(time.Second)
				c.happens(m, shutdown)
				<-ended
				took := time.Since(began)
				if err != nil || end != c.want || took < c.after || took > c.after+10*time.Second {
					t.Errorf("the worker ended with %q, %v, after %s; want %q", end, err, took, c.want)
				}
			})
		})
	}
}
