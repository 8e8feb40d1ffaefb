//go:build !(cgo && nvml)

package machine

import (
	"bytes"
	"context"
	"encoding/csv"
	"os/exec"
	"strconv"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// canProbe: this binary can't ask NVML itself, but the driver's own program
// can, where there is one.
func canProbe() bool {
	_, err := exec.LookPath(nvidiaSMI)
	return err == nil
}

const nvidiaSMI = "nvidia-smi"

// What it is asked: what there is, and then what not all GPUs know.
const (
	askGPUs = "--query-gpu=index,uuid,name,memory.total,ecc.errors.uncorrected.volatile.total"
	askRows = "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure"
)

// smiTime bounds one question: a GPU that hangs lets it wait for ever.
const smiTime = 4 * time.Second

// queryNVML tells what the driver's program knows of each GPU.
func queryNVML(tell func(known []gpuReport) error) error {
	said, err := askSMI(askGPUs)
	if err != nil {
		return err
	}
	known, err := readGPUs(said)
	if err != nil {
		return err
	}
	if err := tell(known); err != nil {
		return err
	}
	if said, err = askSMI(askRows); err != nil {
		return err
	}
	if err := readRows(said, known); err != nil {
		return err
	}
	return tell(known)
}

func askSMI(question string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), smiTime)
	defer cancel()
	said, err := exec.CommandContext(ctx, nvidiaSMI, question, "--format=csv,noheader,nounits").Output()
	return said, fault.WithKind(fault.Unavailable, err, "%s %s", nvidiaSMI, question)
}

// readGPUs reads lines such as "0, GPU-1, NVIDIA L4, 23034, 0". A number that a
// GPU does not have is "[N/A]" there, and none.
func readGPUs(said []byte) ([]gpuReport, error) {
	rows, err := readSMI(said, 5)
	known := []gpuReport{}
	for _, row := range rows[:min(len(rows), maxGPUs)] {
		index, parseErr := strconv.Atoi(row[0])
		if parseErr != nil {
			return nil, fault.WithKind(fault.Corrupt, parseErr, "a GPU's number")
		}
		report := gpuReport{GPU: capacity.GPU{Index: index, UUID: row[1], Name: row[2]}}
		mebibytes, _ := strconv.ParseUint(row[3], 10, 32)
		report.MemoryBytes = mebibytes << 20
		report.UncorrectedECC, _ = strconv.ParseUint(row[4], 10, 64)
		known = append(known, report)
	}
	return known, err
}

// readRows reads lines such as "GPU-1, No, No", which some drivers write with 0
// and 1, into the reports that they are about.
func readRows(said []byte, known []gpuReport) error {
	rows, err := readSMI(said, 3)
	yes := func(s string) bool { return s == "Yes" || s == "1" }
	for _, row := range rows {
		for i := range known {
			if known[i].UUID == row[0] {
				known[i].RemapPending, known[i].RemapFailed = yes(row[1]), yes(row[2])
			}
		}
	}
	return err
}

func readSMI(said []byte, fields int) ([][]string, error) {
	lines := csv.NewReader(bytes.NewReader(said))
	lines.TrimLeadingSpace, lines.FieldsPerRecord = true, fields
	rows, err := lines.ReadAll()
	return rows, fault.WithKind(fault.Corrupt, err, "read what %s says", nvidiaSMI)
}
