//go:build !(cgo && nvml)

package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/fault"
)

func TestParseOutputOfNvidiaSMI(t *testing.T) {
	t.Parallel()
	const healthy = "0, GPU-1, NVIDIA L4, 23034, 0\n"
	const smiError = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
	const broken = "0 GPU-1 NVIDIA L4 23034 MiB: remapping a broken memory row failed;"
	for name, c := range map[string]struct{ gpus, rows, want string }{
		"no GPU": {"", "", ""},
		"two healthy GPUs": {
			healthy + "1, GPU-2, NVIDIA L4, 23034, 0\n", "GPU-1, No, No\nGPU-2, No, No\n",
			"0 GPU-1 NVIDIA L4 23034 MiB;1 GPU-2 NVIDIA L4 23034 MiB;",
		},
		"not supported":         {"0, GPU-1, Tesla K80, [N/A], [N/A]\n", "GPU-1, [N/A], [N/A]\n", "0 GPU-1 Tesla K80 0 MiB;"},
		"memory errors":         {"3, GPU-1, NVIDIA L4, 1, 2\n", "", "3 GPU-1 NVIDIA L4 1 MiB: 2 uncorrected memory errors;"},
		"pending remap":         {healthy, "GPU-1, Yes, No\n", "0 GPU-1 NVIDIA L4 23034 MiB;"},
		"failed remap":          {healthy, "GPU-1, No, Yes\n", broken},
		"failed remap, number":  {healthy, "GPU-1, 0, 1\n", broken},
		"row of an unknown GPU": {healthy, "GPU-2, No, Yes\n", "0 GPU-1 NVIDIA L4 23034 MiB;"},
		"nvidia-smi fails":      {smiError, "", "error"},
		"missing columns":       {"0, GPU-1\n", "", "error"},
		"invalid index":         {"x, GPU-1, NVIDIA L4, 1, 2\n", "", "error"},
		"invalid rows":          {healthy, "Not supported\n", "error"},
	} {
		found, err := parseGPUs([]byte(c.gpus))
		err = errors.Join(err, parseRows([]byte(c.rows), found))
		got := ""
		for _, r := range found {
			got += fmt.Sprintf("%d %s %s %d MiB", r.Index, r.UUID, r.Name, r.MemoryBytes>>20)
			if why := r.drainReason(); why != "" {
				got += ": " + why
			}
			got += ";"
		}
		if err != nil {
			got = "error"
		}
		if got != c.want || err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestQueryEmitsGPUsBeforeUnsupportedRows(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase $1 in " + queryGPUs + ") echo '0, GPU-1, NVIDIA L4, 23034, 0' ;; " +
		"*) echo 'unknown option' >&2; exit 2 ;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, nvidiaSMI), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	if !canProbe() {
		t.Fatal("nvidia-smi was not found")
	}
	var emitted [][]gpuReport
	err := queryNVML(func(known []gpuReport) error {
		emitted = append(emitted, known)
		return nil
	})
	if !fault.Is(err, fault.Unavailable) || len(emitted) != 1 || len(emitted[0]) != 1 || emitted[0][0].UUID != "GPU-1" {
		t.Errorf("emitted %+v, %v, want one report with the GPU and Unavailable", emitted, err)
	}
}
