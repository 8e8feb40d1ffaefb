package machine

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Options configure a Machine; the zero value knows no NVML and never
// gives a notice.
type Options struct {
	// GPUProbe is the command that looks for GPUs, as ProbeCommand returns it.
	// Without one, only what the driver shows in /proc is known.
	GPUProbe []string
	// GPUProbeTimeout bounds the probe; 0 is 10 s.
	GPUProbeTimeout time.Duration
	// NoticePath is a file that stands for a preemption notice when it is
	// there: {"reason":"spot","lead_seconds":30}. "" is none.
	NoticePath string
	// NoticePoll is how often it is looked for, besides on notification; 0 is
	// a second.
	NoticePoll time.Duration
	Files      fs.FS        // the root file system, but for tests; nil is "/"
	Logger     *slog.Logger // nil discards
}

// Machine is the computer that this process runs on.
type Machine struct{ options Options }

var _ capacity.Source = (*Machine)(nil)

// New returns the machine; it looks at nothing yet.
func New(o Options) *Machine {
	if o.GPUProbeTimeout <= 0 {
		o.GPUProbeTimeout = 10 * time.Second
	}
	if o.NoticePoll <= 0 {
		o.NoticePoll = time.Second
	}
	if o.Files == nil {
		o.Files = os.DirFS("/")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Machine{options: o}
}

// Inventory looks at the machine, within the limits of this process's control
// group; see capacity.Source. GPUs come from NVML in a probe process, or else
// from what the driver shows in /proc; none is no error.
func (m *Machine) Inventory(ctx context.Context) (capacity.Inventory, error) {
	if err := ctx.Err(); err != nil {
		return capacity.Inventory{}, fault.Wrap(err, "take inventory")
	}
	memory, err := totalMemory(m.options.Files)
	if err != nil {
		return capacity.Inventory{}, filesystem.Fault(err, "take inventory: memory")
	}
	cpus, limit := groupLimits(m.options.Files)
	inventory := capacity.Inventory{CPUs: runtime.NumCPU(), MemoryBytes: memory, GPUs: m.gpus(ctx)}
	if cpus > 0 {
		inventory.CPUs = min(inventory.CPUs, cpus)
	}
	if limit > 0 {
		inventory.MemoryBytes = min(inventory.MemoryBytes, limit)
	}
	if err := ctx.Err(); err != nil { // the probe was cut short
		return capacity.Inventory{}, fault.Wrap(err, "take inventory")
	}
	return inventory, nil
}

// gpus returns the machine's GPUs, never nil.
func (m *Machine) gpus(ctx context.Context) []capacity.GPU {
	found := []capacity.GPU{}
	for _, report := range m.probe(ctx) {
		gpu := report.GPU
		gpu.DrainReason = report.drainReason()
		found = append(found, gpu)
	}
	if len(found) == 0 {
		found = append(found, driverGPUs(m.options.Files)...)
	}
	return found
}
