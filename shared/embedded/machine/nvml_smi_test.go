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

func TestWhatTheDriversProgramSaysOfGPUs(t *testing.T) {
	t.Parallel()
	const well, broken = "0, GPU-1, NVIDIA L4, 23034, 0\n", "0 GPU-1 NVIDIA L4 23034 MiB: a broken row of its memory could not be replaced;"
	for name, c := range map[string]struct{ gpus, rows, want string }{
		"none":                  {"", "", ""},
		"two that are well":     {well + "1, GPU-2, NVIDIA L4, 23034, 0\n", "GPU-1, No, No\nGPU-2, No, No\n", "0 GPU-1 NVIDIA L4 23034 MiB;1 GPU-2 NVIDIA L4 23034 MiB;"},
		"one that can't say":    {"0, GPU-1, Tesla K80, [N/A], [N/A]\n", "GPU-1, [N/A], [N/A]\n", "0 GPU-1 Tesla K80 0 MiB;"},
		"memory errors":         {"3, GPU-1, NVIDIA L4, 1, 2\n", "", "3 GPU-1 NVIDIA L4 1 MiB: 2 uncorrected memory errors;"},
		"a row to be replaced":  {well, "GPU-1, Yes, No\n", "0 GPU-1 NVIDIA L4 23034 MiB;"},
		"a broken row":          {well, "GPU-1, No, Yes\n", broken},
		"the same, in numbers":  {well, "GPU-1, 0, 1\n", broken},
		"of one that is unseen": {well, "GPU-2, No, Yes\n", "0 GPU-1 NVIDIA L4 23034 MiB;"},
		"its own trouble":       {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "", "error"},
		"too little":            {"0, GPU-1\n", "", "error"},
		"no number":             {"x, GPU-1, NVIDIA L4, 1, 2\n", "", "error"},
		"no rows":               {well, "Not supported\n", "error"},
	} {
		found, err := readGPUs([]byte(c.gpus))
		err = errors.Join(err, readRows([]byte(c.rows), found))
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

func TestTheDriversProgramIsAskedBitByBit(t *testing.T) {
	bin := t.TempDir()
	script := "#!/bin/sh\ncase $1 in " + askGPUs + ") echo '0, GPU-1, NVIDIA L4, 23034, 0' ;; *) echo 'unknown option' >&2; exit 2 ;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, nvidiaSMI), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	if !canProbe() {
		t.Fatal("the program is not found")
	}
	var told [][]gpuReport
	err := queryNVML(func(known []gpuReport) error {
		told = append(told, known)
		return nil
	})
	if !fault.Is(err, fault.Unavailable) || len(told) != 1 || len(told[0]) != 1 || told[0][0].UUID != "GPU-1" {
		t.Errorf("told %+v, %v: want the GPU, and that nothing more is known", told, err)
	}
}
