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

// GPUProbeArg is the hidden argument with which this binary lists the GPUs and exits.
// NVML is called in a separate process, because calling a function that the installed
// driver lacks kills the process.
const GPUProbeArg = "__probe-gpus"

// GPUProbeCommand returns the command of the probe, for Options.GPUProbe. A binary
// built with NVML (build tag nvml, with cgo) uses NVML, any other nvidia-smi. It returns
// nil if neither is available. A program that uses the command must call RunGPUProbe at
// the beginning of main.
func GPUProbeCommand() []string {
	self, err := os.Executable()
	if !canProbe() || err != nil {
		return nil
	}
	return []string{self, GPUProbeArg}
}

// RunGPUProbe runs the probe if the arguments of the program request it. It reports
// whether it did; main must then return.
func RunGPUProbe(args []string) bool {
	if len(args) != 2 || args[1] != GPUProbeArg {
		return false
	}
	if err := writeProbe(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
	}
	return true
}

// writeProbe writes the reports as lines of JSON. Each line has everything that is known
// so far, so that a crash loses only what has not been queried.
func writeProbe(w io.Writer) error {
	lines := json.NewEncoder(w)
	return queryNVML(func(known []gpuReport) error { return lines.Encode(known) })
}

// gpuReport is the result of the probe for one GPU.
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
	ClockReasons    uint64 `json:"clock_reasons,omitempty"`   // NVML's bits for why clocks are reduced
	RecoveryAction  uint32 `json:"recovery_action,omitempty"` // NVML's number; 0 means no action
}

// recoveryActions names NVML's recovery actions.
var recoveryActions = map[uint32]string{
	1: "a reset", 2: "a reboot of the node", 3: "its peers drained", 4: "a drain and a reset",
	5: "its IMEX domain recovered", 6: "a reset of the bus", 7: "a reboot of the system",
}

// drainReason returns why the GPU must not get new work, "" for a healthy one.
func (r gpuReport) drainReason() string {
	switch {
	case r.RemapFailed:
		return "remapping a broken memory row failed"
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

// maxProbeOutput is the most bytes that are kept of the probe's output.
const maxProbeOutput = 1 << 20

// probe runs the probe process and returns its last complete report. It logs failures
// of the probe.
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

// probeEnvironment returns the variables of the environment that the driver needs. The
// probe must not get secrets.
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

// lastReport parses the last complete line of the probe's output.
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
