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

// canProbe reports whether this binary can query GPUs: it needs nvidia-smi.
func canProbe() bool {
	_, err := exec.LookPath(nvidiaSMI)
	return err == nil
}

const nvidiaSMI = "nvidia-smi"

// Queries of nvidia-smi: the GPUs, and then what not all GPUs support.
const (
	queryGPUs = "--query-gpu=index,uuid,name,memory.total,ecc.errors.uncorrected.volatile.total"
	queryRows = "--query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure"
)

// smiTimeout is the time limit of one query: a hanging GPU blocks it forever.
const smiTimeout = 4 * time.Second

// queryNVML calls emit with the data of nvidia-smi about each GPU: first with the GPUs,
// then again with their remapped rows.
func queryNVML(emit func(known []gpuReport) error) error {
	output, err := runSMI(queryGPUs)
	if err != nil {
		return err
	}
	known, err := parseGPUs(output)
	if err != nil {
		return err
	}
	if err := emit(known); err != nil {
		return err
	}
	if output, err = runSMI(queryRows); err != nil {
		return err
	}
	if err := parseRows(output, known); err != nil {
		return err
	}
	return emit(known)
}

// runSMI runs one query and returns its output.
func runSMI(query string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), smiTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, nvidiaSMI, query, "--format=csv,noheader,nounits").Output()
	return output, fault.WithKind(fault.Unavailable, err, "%s %s", nvidiaSMI, query)
}

// parseGPUs parses lines such as "0, GPU-1, NVIDIA L4, 23034, 0". "[N/A]" stands for a
// number that the GPU does not report; it is read as 0.
func parseGPUs(output []byte) ([]gpuReport, error) {
	rows, err := parseSMI(output, 5)
	known := []gpuReport{}
	for _, row := range rows[:min(len(rows), maxGPUs)] {
		index, parseErr := strconv.Atoi(row[0])
		if parseErr != nil {
			return nil, fault.WithKind(fault.Corrupt, parseErr, "parse the index of a GPU")
		}
		report := gpuReport{GPU: capacity.GPU{Index: index, UUID: row[1], Name: row[2]}}
		mebibytes, _ := strconv.ParseUint(row[3], 10, 32)
		report.MemoryBytes = mebibytes << 20
		report.UncorrectedECC, _ = strconv.ParseUint(row[4], 10, 64)
		known = append(known, report)
	}
	return known, err
}

// parseRows parses lines such as "GPU-1, No, No" into the reports of their GPUs. Some
// drivers write 0 and 1 for No and Yes.
func parseRows(output []byte, known []gpuReport) error {
	rows, err := parseSMI(output, 3)
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

// parseSMI parses output as CSV with the number of fields.
func parseSMI(output []byte, fields int) ([][]string, error) {
	lines := csv.NewReader(bytes.NewReader(output))
	lines.TrimLeadingSpace, lines.FieldsPerRecord = true, fields
	rows, err := lines.ReadAll()
	return rows, fault.WithKind(fault.Corrupt, err, "parse the output of %s", nvidiaSMI)
}
