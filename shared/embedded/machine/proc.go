package machine

import (
	"bufio"
	"bytes"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// maxProcFile is the most bytes that are read of a file of /proc or /sys.
const maxProcFile = 64 << 10

// maxGPUs is the most GPUs of an inventory.
const maxGPUs = 64

// readProc reads a small file of /proc or /sys.
func readProc(files fs.FS, name string) ([]byte, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading; closing cannot lose data
	return io.ReadAll(io.LimitReader(f, maxProcFile))
}

// meminfoTotal returns MemTotal of /proc/meminfo, in bytes.
func meminfoTotal(files fs.FS) (uint64, error) {
	content, err := readProc(files, "proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "MemTotal:" {
			continue
		}
		if kib, err := strconv.ParseUint(fields[1], 10, 53); err == nil {
			return kib << 10, nil
		}
	}
	return 0, fault.New(fault.Corrupt, "/proc/meminfo has no MemTotal")
}

// maxUptime is the longest time that the machine is believed to be switched on.
const maxUptime = 100 * 365 * 24 * time.Hour

// uptime returns since when the machine has been switched on, by /proc/uptime; false where
// that does not tell.
func uptime(files fs.FS) (time.Duration, bool) {
	content, err := readProc(files, "proc/uptime")
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(content), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil || !(seconds >= 0 && seconds < maxUptime.Seconds()) {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// MemoryLimit returns the memory that this process's control group allows, in bytes; 0
// means unlimited.
func MemoryLimit() uint64 {
	_, memory := groupLimits(os.DirFS("/"))
	return memory
}

// groupLimits returns the CPUs and the bytes of memory that this process's control group
// (version 2) and its parents allow; 0 means unlimited. A limit that cannot be read
// counts as unlimited.
func groupLimits(files fs.FS) (cpus int, memory uint64) {
	content, err := readProc(files, "proc/self/cgroup")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(content)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			folder := "sys/fs/cgroup" + strings.TrimSuffix(group, "/")
			cpus = lower(cpus, cpuMax(files, folder+"/cpu.max"))
			memory = lower(memory, memoryMax(files, folder+"/memory.max"))
			if group == "/" {
				return cpus, memory
			}
		}
	}
	return 0, 0
}

// lower returns the lower of two limits, where 0 means unlimited.
func lower[T int | uint64](a, b T) T {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// cpuMax parses "quota period" as a number of CPUs, rounded up. "max period" is 0.
func cpuMax(files fs.FS, name string) int {
	content, err := readProc(files, name)
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content))
	if len(fields) != 2 {
		return 0
	}
	quota, err := strconv.ParseUint(fields[0], 10, 40)
	if err != nil { // "max"
		return 0
	}
	period, err := strconv.ParseUint(fields[1], 10, 40)
	if err != nil || period == 0 {
		return 0
	}
	return int(max(1, math.Ceil(float64(quota)/float64(period))))
}

// memoryMax parses a number of bytes. "max" is 0.
func memoryMax(files fs.FS, name string) uint64 {
	content, err := readProc(files, name)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64)
	if err != nil { // "max"
		return 0
	}
	return limit
}

// driverGPUs returns the name and the UUID of each GPU that NVIDIA's driver shows in
// /proc, in the order of their bus addresses.
func driverGPUs(files fs.FS) []capacity.GPU {
	const folder = "proc/driver/nvidia/gpus"
	entries, err := fs.ReadDir(files, folder) // sorted by name
	if err != nil {
		return nil
	}
	var found []capacity.GPU
	for _, entry := range entries[:min(len(entries), maxGPUs)] {
		content, err := readProc(files, folder+"/"+entry.Name()+"/information")
		if err != nil {
			continue
		}
		gpu := capacity.GPU{Index: len(found)}
		for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ":")
			switch value = strings.TrimSpace(value); name {
			case "Model":
				gpu.Name = value
			case "GPU UUID":
				gpu.UUID = value
			}
		}
		found = append(found, gpu)
	}
	return found
}
