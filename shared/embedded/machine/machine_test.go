package machine_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/capacity/capacitytest"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
)

func TestMachineConforms(t *testing.T) {
	t.Parallel()
	capacitytest.Run(t, func(t *testing.T) capacitytest.Machine {
		path := filepath.Join(t.TempDir(), "notice")
		return capacitytest.Machine{
			Source: machine.New(machine.Options{NoticePath: path, NoticePoll: time.Millisecond}),
			Notify: func(t *testing.T, n capacity.Notice) {
				content, err := json.Marshal(map[string]any{"reason": n.Reason, "lead_seconds": n.Lead.Seconds()})
				if err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, string(content))
			},
		}
	})
}

// logLines is a logger's output as a channel of lines.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestInvalidNoticeIsLoggedAndNextValidOneDelivered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notice")
	lines := make(logLines, 100)
	m := machine.New(machine.Options{
		NoticePath: path, NoticePoll: time.Millisecond, Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	notices := m.Notices(t.Context())
	for _, bad := range []string{
		`{"reason":"spot","lead_seconds":-1}`, `{"reason":"spot","lead_seconds":1e9}`,
		`{"lead_seconds":1}`, `{"reason":"spot","lead":30}`, `not json`,
		`{"reason":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		writeFile(t, path, bad)
		for line := ""; !strings.Contains(line, "notice file"); {
			select {
			case line = <-lines:
			case n := <-notices:
				t.Fatalf("%q gave notice %+v", bad, n)
			}
		}
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, `{"reason":"spot","lead_seconds":0.5}`)
	if got, want := <-notices, (capacity.Notice{Reason: "spot", Lead: 500 * time.Millisecond}); got != want {
		t.Errorf("notice %+v, want %+v", got, want)
	}
}

func TestInventoryRespectsControlGroupLimits(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:        8000000 kB\nMemFree: 1 kB\n"
	const group, root = "proc/self/cgroup", "sys/fs/cgroup"
	all := uint64(8000000 << 10)
	for name, c := range map[string]struct {
		files  map[string]string
		cpus   int // 0 means all
		memory uint64
	}{
		"no control group": {map[string]string{}, 0, all},
		"no limits": {map[string]string{
			group: "0::/\n", root + "/cpu.max": "max 100000\n", root + "/memory.max": "max\n",
		}, 0, all},
		"own limits": {map[string]string{
			group: "0::/a\n", root + "/a/cpu.max": "50000 100000\n", root + "/a/memory.max": "1073741824\n",
		}, 1, 1 << 30},
		"limits of parents": {map[string]string{
			group: "0::/a/b\n", root + "/cpu.max": "100000 100000\n",
			root + "/a/memory.max": "1000000\n", root + "/a/b/memory.max": "2000000\n",
		}, 1, 1000000},
		"more than the machine has": {map[string]string{
			group: "0::/\n", root + "/cpu.max": "100000000 100000\n", root + "/memory.max": "99999999999999\n",
		}, 0, all},
		"lines of version 1": {map[string]string{
			group: "3:cpu:/x\n0::/\n", root + "/memory.max": "4096000\n",
		}, 0, 4096000},
		"path with dots": {map[string]string{group: "0::/../../x\n", root + "/x/memory.max": "4096000\n"}, 0, 4096000},
		"invalid limits": {map[string]string{
			group: "0::/\n", root + "/cpu.max": "1 0\n", root + "/memory.max": "lots\n",
		}, 0, all},
		"invalid control group": {map[string]string{group: "\x00\xff", root + "/cpu.max": ""}, 0, all},
	} {
		files := fstest.MapFS{"proc/meminfo": {Data: []byte(meminfo)}}
		for path, content := range c.files {
			files[path] = &fstest.MapFile{Data: []byte(content)}
		}
		got, err := machine.New(machine.Options{Files: files}).Inventory(t.Context())
		wantCPUs := c.cpus
		if wantCPUs == 0 {
			wantCPUs = runtime.NumCPU()
		}
		if err != nil || got.CPUs != wantCPUs || got.MemoryBytes != c.memory {
			t.Errorf("%s: %+v, %v, want %d CPUs, %d bytes", name, got, err, wantCPUs, c.memory)
		}
	}
}

func TestInventoryWithoutMemoryTotalIsAnError(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: lots\n")}}
	if _, err := machine.New(machine.Options{Files: files}).Inventory(t.Context()); !fault.Is(err, fault.Corrupt) {
		t.Errorf("Inventory = %v, want Corrupt", err)
	}
}

// driverFiles returns the files of NVIDIA's driver for one GPU, and invalid ones.
func driverFiles() fstest.MapFS {
	const h100 = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 0\n" +
		"GPU UUID: \t GPU-11111111-2222\nBus Location: \t 0000:01:00.0\n"
	return fstest.MapFS{
		"proc/meminfo": {Data: []byte("MemTotal: 1000000 kB\n")},
		"proc/driver/nvidia/gpus/0000:01:00.0/information": {Data: []byte(h100)},
		"proc/driver/nvidia/gpus/0000:02:00.0/information": {Data: []byte("garbage")},
		"proc/driver/nvidia/gpus/0000:03:00.0/other":       {Data: []byte("x")},
	}
}

func TestGPUsAreFoundWithoutNVML(t *testing.T) {
	t.Parallel()
	got, err := machine.New(machine.Options{Files: driverFiles()}).Inventory(t.Context())
	want := []capacity.GPU{{Index: 0, UUID: "GPU-11111111-2222", Name: "NVIDIA H100 80GB HBM3"}, {Index: 1}}
	if err != nil || !slices.Equal(got.GPUs, want) {
		t.Errorf("GPUs = %+v, %v, want %+v", got.GPUs, err, want)
	}
}

func TestInventoryUsesLastCompleteReportOfProbe(t *testing.T) {
	t.Parallel()
	const basic = `[{"index":0,"uuid":"GPU-1","name":"H100","memory_bytes":1000}]`
	h100 := capacity.GPU{UUID: "GPU-1", Name: "H100", MemoryBytes: 1000}
	drained := func(why string) []capacity.GPU {
		gpu := h100
		gpu.DrainReason = why
		return []capacity.GPU{gpu}
	}
	with := func(field string) string { return strings.Replace(basic, "}]", ","+field+"}]", 1) }
	fallback := []capacity.GPU{{Index: 0, UUID: "GPU-11111111-2222", Name: "NVIDIA H100 80GB HBM3"}, {Index: 1}}
	const remapFailed = "remapping a broken memory row failed"
	for name, c := range map[string]struct {
		script string
		want   []capacity.GPU
	}{
		"healthy": {"echo '" + basic + "'", drained("")},
		"last line wins": {
			"echo '" + basic + "'; echo '" + with(`"remap_failed":true`) + "'", drained(remapFailed),
		},
		"uncorrected errors":       {"echo '" + with(`"uncorrected_ecc":3`) + "'", drained("3 uncorrected memory errors")},
		"recovery action":          {"echo '" + with(`"recovery_action":1`) + "'", drained("it needs a reset")},
		"unknown action":           {"echo '" + with(`"recovery_action":99`) + "'", drained("it needs recovery action 99")},
		"pending remap is healthy": {"echo '" + with(`"remap_pending":true,"clock_reasons":4`) + "'", drained("")},
		"crash after one line":     {"echo '" + basic + "'; kill -9 $$", drained("")},
		"crash within a line":      {"echo '" + basic + "'; printf '[{\"index\":'; exit 127", drained("")},
		"crash at once":            {"kill -9 $$", fallback},
		"finds no GPU":             {"echo '[]'", fallback},
		"writes invalid lines":     {"echo hello; echo '" + basic + "'", fallback},
		"hang after one line":      {"echo '" + basic + "'; exec sleep 100", drained("")},
		"writes too much":          {"echo '" + basic + "'; head -c 3000000 /dev/zero", drained("")},
		"gets no secrets":          {`test -z "$ROLLOUT_SECRET_X$HOME" && echo '` + basic + "'", drained("")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Duration(0)
			if strings.Contains(c.script, "sleep") {
				timeout = 300 * time.Millisecond
			}
			m := machine.New(machine.Options{
				Files: driverFiles(), GPUProbe: []string{"/bin/sh", "-c", c.script}, GPUProbeTimeout: timeout,
			})
			got, err := m.Inventory(t.Context())
			if err != nil || !slices.Equal(got.GPUs, c.want) {
				t.Errorf("GPUs = %+v, %v, want %+v", got.GPUs, err, c.want)
			}
		})
	}
	t.Run("does not exist", func(t *testing.T) {
		t.Parallel()
		m := machine.New(machine.Options{Files: driverFiles(), GPUProbe: []string{"/no/such/probe"}})
		if got, err := m.Inventory(t.Context()); err != nil || !slices.Equal(got.GPUs, fallback) {
			t.Errorf("GPUs = %+v, %v", got.GPUs, err)
		}
	})
	t.Run("is canceled by the caller", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		m := machine.New(machine.Options{Files: driverFiles(), GPUProbe: []string{"/bin/sh", "-c", "exec sleep 100"}})
		if _, err := m.Inventory(ctx); !fault.Is(err, fault.Canceled) {
			t.Errorf("Inventory = %v, want Canceled", err)
		}
	})
}

func TestRunGPUProbeNeedsHiddenArgument(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		nil, {"rollout"}, {"rollout", "up"}, {"rollout", "up", machine.GPUProbeArg}, {machine.GPUProbeArg},
	} {
		if machine.RunGPUProbe(args) {
			t.Errorf("RunGPUProbe(%q) ran the probe", args)
		}
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
