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

// machine is a machine that gives the notices of a channel.
type machine chan capacity.Notice

func (machine) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: []capacity.GPU{}}, nil
}

func (m machine) Notices(context.Context) <-chan capacity.Notice { return m }

// Else a machine that may not write would be paid for as long as its fleet is.
func TestAWorkerThatCanNotWorkGivesARentedMachineUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &full{Store: memory.NewDocuments(), ill: func(context.Context) error { return fault.New(fault.Denied, "it may not write") }}
		docs.is.Store(true)
		o := options(docs, nil)
		o.Machine, o.IdleTimeout, o.RetryRegistration = make(machine), 5*time.Minute, true
		began := time.Now()
		end, err := process.Run(t.Context(), o)
		if took := time.Since(began); err != nil || end != process.Unusable || took < 20*time.Minute || took > 21*time.Minute {
			t.Errorf("it ended %q, %v, after %s", end, err, took)
		}
	})
}

// frail is a machine whose GPU fails at a time.
type frail struct {
	machine
	fails time.Time
}

func (f frail) Inventory(context.Context) (capacity.Inventory, error) {
	g := capacity.GPU{UUID: "GPU-1"}
	if !time.Now().Before(f.fails) {
		g.DrainReason = "uncorrectable ECC errors"
	}
	return capacity.Inventory{CPUs: 1, GPUs: []capacity.GPU{g}}, nil
}

// Else a driver that no GPU works with would bring up one machine after the
// other.
func TestAGPUThatFailsBeforeItAnsweredAnythingIsNoUsualEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		works  bool
		notice bool // before
		want   process.ExitReason
	}{"it has answered nothing": {false, false, process.GPUFailed}, "it has answered": {true, false, process.MachineLost}, "it is taken back": {false, true, process.MachineLost}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := frail{make(machine, 1), time.Now().Add(time.Minute)}
				o := options(memory.NewDocuments(), nil)
				o.Machine, o.IdleTimeout = m, 5*time.Minute
				if c.works {
					inputtest.Plan(t, o.Ports, inputtest.Manifest(4), inputtest.Prompts(0, 4))
					if err := o.Ports.Send(t.Context(), host.WorkQueue("default"), events.Work{Run: string(inputtest.RunID), Pool: "default"}); err != nil {
						t.Fatal(err)
					}
				}
				if c.notice {
					m.machine <- capacity.Notice{Reason: "spot", Lead: time.Minute}
				}
				if end, err := process.Run(t.Context(), o); err != nil || end != c.want {
					t.Errorf("it ended %q, %v; want %q", end, err, c.want)
				}
			})
		})
	}
}

func TestAWorkerTellsHowItsEndCameAbout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(machine, chan<- string)
		after   time.Duration
		want    process.ExitReason
	}{
		"nothing happens": {func(machine, chan<- string) {}, 5 * time.Minute, process.Idle},
		"a notice":        {func(m machine, _ chan<- string) { m <- capacity.Notice{Reason: "spot", Lead: time.Minute} }, 0, process.MachineLost},
		"a signal":        {func(_ machine, leave chan<- string) { leave <- "signal terminated" }, 0, process.Requested},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				leave, m := make(chan string, 1), make(machine, 1)
				o := options(memory.NewDocuments(), leave)
				o.Machine, o.IdleTimeout = m, 5*time.Minute
				began := time.Now()
				var end process.ExitReason
				var err error
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					end, err = process.Run(t.Context(), o)
				}()
				pass(time.Second)
				c.happens(m, leave)
				<-ended
				if took := time.Since(began); err != nil || end != c.want || took < c.after || took > c.after+10*time.Second {
					t.Errorf("it ended %q, %v, after %s; want %q", end, err, took, c.want)
				}
			})
		})
	}
}
