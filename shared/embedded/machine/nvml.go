package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"rollout/shared/capacity"
)

// GPUProbeArg is the hidden argument with which our own binary, started again,
// only looks for GPUs and ends. NVML is asked in a process of its own because
// a function that the installed driver lacks kills the process that calls it.
const GPUProbeArg = "__probe-gpus"

// GPUProbeCommand is how to run the probe, for Options.GPUProbe. A binary built
// with NVML (build tag nvml, with cgo) asks that, another one the driver's own
// program; nil if there is none. A program that uses it must call RunProbe first
// of all.
func GPUProbeCommand() []string {
	self, err := os.Executable()
	if !canProbe() || err != nil {
		return nil
	}
	return []string{self, GPUProbeArg}
}

// RunGPUProbe runs the probe if these arguments of the program ask for it, and
// reports whether they did: main must then end.
func RunGPUProbe(args []string) bool {
	if len(args) != 2 || args[1] != GPUProbeArg {
		return false
	}
	if err := writeProbe(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
	}
	return true
}

// writeProbe writes what is told, as lines of JSON: each line says all that
// is known so far, so that a death on the way costs only what was to come.
func writeProbe(w io.Writer) error {
	lines := json.NewEncoder(w)
	return queryNVML(func(known []gpuReport) error { return lines.Encode(known) })
}

// gpuReport is what the probe tells of one GPU.
type gpuReport struct {
	capacity.GPU
	PCI             string `json:"pci,omitempty"`
	Driver          string `json:"driver,omitempty"`
	TemperatureC    uint32 `json:"temperature_c,omitempty"`
	PowerMilliwatts uint32 `json:"power_milliwatts,omitempty"`
	MIG             bool   `json:"mig,omitempty"`
	UncorrectedECC  uint64 `json:"uncorrected_ecc,omitempty"` // errors since the driver was loaded
	RemapPending    bool   `json:"remap_pending,omitempty"`   // of memory rows, at the next reset
	RemapFailed     bool   `json:"remap_failed,omitempty"`
	ClockReasons    uint64 `json:"clock_reasons,omitempty"`   // NVML's bits of why clocks are held down
	RecoveryAction  uint32 `json:"recovery_action,omitempty"` // NVML's number; 0 is none
}

// recoveryActions names NVML's numbers of what a GPU needs.
var recoveryActions = map[uint32]string{
	1: "a reset", 2: "a reboot of the node", 3: "its peers drained", 4: "a drain and a reset",
	5: "its IMEX domain recovered", 6: "a reset of the bus", 7: "a reboot of the system",
}

// drainReason says why the GPU must not get new work, or "".
func (r gpuReport) drainReason() string {
	switch {
	case r.RemapFailed:
		return "a broken row of its memory could not be replaced"
	case r.UncorrectedECC > 0:
		return fmt.Sprintf("%d uncorrected memory errors", r.UncorrectedECC)
	case r.RecoveryAction != 0:
		if needs := recoveryActions[r.RecoveryAction]; needs != "" {
			return "it needs " + needs
		}
		return fmt.Sprintf("it needs recovery action %d", r.RecoveryAction)
	}
	return ""
}

// maxProbeOutput bounds what is read from the probe.
const maxProbeOutput = 1 << 20

// probe runs the probe process. Whatever goes wrong with it is logged and
// costs only what it had not told yet.
func (m *Machine) probe(ctx context.Context) []gpuReport {
	if len(m.options.GPUProbe) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.options.GPUProbeTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, m.options.GPUProbe[0], m.options.GPUProbe[1:]...)
	command.Env = probeEnvironment(os.Environ())
	command.WaitDelay = time.Second
	output := &boundedBuffer{limit: maxProbeOutput}
	command.Stdout = output
	if err := command.Run(); err != nil {
		m.options.Logger.Warn("the GPU probe failed", "error", err)
	}
	return lastReport(output.kept)
}

// probeEnvironment keeps of the environment what finds the driver: the probe
// has no use for secrets.
func probeEnvironment(environment []string) []string {
	kept := []string{}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if name == "PATH" || name == "LD_LIBRARY_PATH" || strings.HasPrefix(name, "NVIDIA_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// lastReport returns the last whole line of the probe's output.
func lastReport(output []byte) []gpuReport {
	var last []gpuReport
	for line := range bytes.Lines(output) {
		var reports []gpuReport
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &reports) != nil {
			break
		}
		last = reports
	}
	return last[:min(len(last), maxGPUs)]
}

// boundedBuffer keeps the first bytes written to it and drops the rest.
type boundedBuffer struct {
	kept  []byte
	limit int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), b.limit-len(b.kept))]...)
	return len(p), nil
}
