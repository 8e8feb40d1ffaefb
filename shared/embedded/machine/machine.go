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

// Options configure a Machine. With the zero value it runs no GPU probe and never
// delivers a notice.
type Options struct {
	// GPUProbe is the command that lists the GPUs, from GPUProbeCommand. Without it, the
	// inventory has only what the driver shows in /proc.
	GPUProbe []string
	// GPUProbeTimeout is the time limit of the probe; default: 10 s.
	GPUProbeTimeout time.Duration
	// NoticePath is a file that, when it exists, is a preemption notice:
	// {"reason":"spot","lead_seconds":30}. "" disables notices.
	NoticePath string
	// NoticePoll is the interval between reads of the file; default: 2 s.
	NoticePoll time.Duration
	Files      fs.FS        // the root file system, for tests; default: "/"
	Logger     *slog.Logger // default: discards
}

// Machine is the machine that the process runs on.
type Machine struct{ options Options }

var _ capacity.Source = (*Machine)(nil)

// New returns the machine. It does not examine it yet.
func New(o Options) *Machine {
	if o.GPUProbeTimeout <= 0 {
		o.GPUProbeTimeout = 10 * time.Second
	}
	if o.NoticePoll <= 0 {
		o.NoticePoll = 2 * time.Second
	}
	if o.Files == nil {
		o.Files = os.DirFS("/")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Machine{options: o}
}

// Inventory returns the hardware of the machine, within the limits of this process's
// control group; see capacity.Source. GPUs come from the probe process, or else from
// /proc. A machine without GPUs is valid.
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
	if up, ok := uptime(m.options.Files); ok {
		inventory.BootedAt = time.Now().Add(-up)
	}
	if cpus > 0 {
		inventory.CPUs = min(inventory.CPUs, cpus)
	}
	if limit > 0 {
		inventory.MemoryBytes = min(inventory.MemoryBytes, limit)
	}
	if err := ctx.Err(); err != nil { // the probe did not finish
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
