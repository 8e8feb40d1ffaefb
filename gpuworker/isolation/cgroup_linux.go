package isolation

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

// hierarchies are the folders in which this process may make cgroups. Version 1 has a folder for
// each controller; version 2 has one for all, which may be without controllers on machines
// where version 1 has them.
type hierarchies struct {
	memory, pids, cpu string // "" if there is none; equal in version 2
	unified           string // of version 2, for cgroup.kill and cgroup.events
	version           int    // of the controllers; 0 without memory and pids
}

// findHierarchies looks for them, and makes and removes a cgroup in each.
func findHierarchies() hierarchies {
	var h hierarchies
	for _, dir := range unifiedFolders() {
		if h.unified == "" && canGroup(dir, "cgroup.kill") {
			h.unified = dir
		}
		if h.version == 0 && delegates(dir) && canGroup(dir, "memory.max", "pids.max", "cgroup.kill") {
			h = hierarchies{memory: dir, pids: dir, cpu: dir, unified: dir, version: 2}
		}
	}
	if h.version == 2 {
		return h
	}
	first := func(dir string, file string) string {
		if dir != "" && canGroup(dir, file) {
			return dir
		}
		return ""
	}
	memory := first(controllerFolder("memory"), "memory.limit_in_bytes")
	pids := first(controllerFolder("pids"), "pids.max")
	cpu := first(controllerFolder("cpuacct"), "cpuacct.usage")
	if memory != "" && pids != "" && cpu != "" {
		h.memory, h.pids, h.cpu, h.version = memory, pids, cpu, 1
	}
	return h
}

// delegates says whether cgroups in dir have the controllers of memory and processes, and
// requests them if not. The kernel refuses that where the folder itself has processes.
func delegates(dir string) bool {
	has := func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		fields := strings.Fields(string(text))
		return err == nil && slices.Contains(fields, "memory") && slices.Contains(fields, "pids")
	}
	if has() {
		return true
	}
	err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +pids"), 0)
	return err == nil && has()
}

// canGroup says whether this process can make a cgroup in dir that has the files, and move
// processes to it.
func canGroup(dir string, files ...string) bool {
	child, err := os.MkdirTemp(dir, "rollout-probe-*")
	if err != nil {
		return false
	}
	defer os.Remove(child)
	for _, file := range append(files, "cgroup.procs") {
		if unix.Access(filepath.Join(child, file), unix.W_OK) != nil {
			return false
		}
	}
	return unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil
}

// unifiedFolders returns this process's cgroup of version 2 and its parents, the innermost first.
func unifiedFolders() (dirs []string) {
	mount, own := cgroupMount("cgroup2", ""), ownCgroup("")
	if mount == "" || own == "" {
		return nil
	}
	for at := own; ; at = filepath.Dir(at) {
		dirs = append(dirs, filepath.Join(mount, at))
		if at == "/" || at == "." {
			return dirs
		}
	}
}

// controllerFolder returns this process's cgroup of a controller of version 1.
func controllerFolder(controller string) string {
	mount, own := cgroupMount("cgroup", controller), ownCgroup(controller)
	if mount == "" || own == "" {
		return ""
	}
	return filepath.Join(mount, own)
}

// cgroupMount returns where the hierarchy is mounted as a whole.
func cgroupMount(kind, controller string) string {
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		head, tail := strings.Fields(before), strings.Fields(after)
		if len(head) < 5 || len(tail) < 3 || tail[0] != kind || head[3] != "/" {
			continue
		}
		if controller == "" || slices.Contains(strings.Split(tail[2], ","), controller) {
			return head[4]
		}
	}
	return ""
}

// ownCgroup returns this process's path in the hierarchy of a controller; "" is version 2.
func ownCgroup(controller string) string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), controller) {
			return parts[2]
		}
	}
	return ""
}

// cgroup is the cgroups of one command.
type cgroup struct {
	hierarchies // the folders of the command
}

// inside returns the hierarchies' folders for a command of that name.
func (h hierarchies) inside(name string) hierarchies {
	for _, dir := range []*string{&h.memory, &h.pids, &h.cpu, &h.unified} {
		if *dir != "" {
			*dir = filepath.Join(*dir, name)
		}
	}
	return h
}

// folders returns each folder once.
func (h hierarchies) folders() []string {
	dirs := []string{h.memory, h.pids, h.cpu, h.unified}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	return slices.DeleteFunc(dirs, func(dir string) bool { return dir == "" })
}

// slack is how many more processes than its limit a command's cgroup has room for until the
// program starts: its first process has several threads before.
const slack = 32

// make makes the cgroups, without processes.
func (g cgroup) make(l Limits) error {
	if err := g.remove(); err != nil { // left by a worker that was killed
		return err
	}
	for _, dir := range g.folders() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fault.WithKind(fault.Unavailable, err, "make a cgroup")
		}
	}
	bytes := strconv.FormatInt(l.Memory, 10)
	switch g.version {
	case 1:
		return errors.Join(
			g.write(g.memory, "memory.limit_in_bytes", bytes),
			ifThere(g.write(g.memory, "memory.memsw.limit_in_bytes", bytes)),
			ifThere(g.write(g.memory, "memory.swappiness", "0")), // where the line above has no effect
			g.limitProcesses(l.Processes+slack))
	case 2:
		return errors.Join(
			g.write(g.memory, "memory.max", bytes),
			ifThere(g.write(g.memory, "memory.swap.max", "0")),
			ifThere(g.write(g.memory, "memory.oom.group", "1")),
			g.limitProcesses(l.Processes+slack))
	}
	return nil
}

func (g cgroup) limitProcesses(n int) error {
	if g.version == 0 {
		return nil
	}
	return g.write(g.pids, "pids.max", strconv.Itoa(n))
}

func (g cgroup) write(dir, file, value string) error {
	err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
	return fault.WithKind(fault.Unavailable, err, "limit a cgroup")
}

// ifThere ignores that a kernel does not have a file.
func ifThere(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return nil
	}
	return err
}

// add moves a process into the cgroups.
func (g cgroup) add(pid int) error {
	for _, dir := range g.folders() {
		if err := g.write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// usage reads what the command uses.
func (g cgroup) usage() usage {
	var u usage
	switch g.version {
	case 1:
		u.cpu = time.Duration(number(g.cpu, "cpuacct.usage"))
		u.peak = number(g.memory, "memory.max_usage_in_bytes")
		u.killed = field(g.memory, "memory.oom_control", "oom_kill") > 0
	case 2:
		u.cpu = time.Duration(field(g.cpu, "cpu.stat", "usage_usec")) * time.Microsecond
		u.peak = number(g.memory, "memory.peak")
		u.killed = field(g.memory, "memory.events", "oom_kill") > 0
	default:
		return u
	}
	u.refused = field(g.pids, "pids.events", "max") > 0
	return u
}

// number reads a file with one number; 0 if there is none.
func number(dir, file string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
	return n
}

// field reads the number of a file's line that starts with the name; 0 if there is none.
func field(dir, file, name string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

// killAll kills every process of the cgroups.
func (g cgroup) killAll() {
	if g.unified != "" && os.WriteFile(filepath.Join(g.unified, "cgroup.kill"), []byte("1"), 0) == nil {
		return
	}
	for _, dir := range g.folders() {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, pid := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = unix.Kill(n, unix.SIGKILL)
			}
		}
	}
}

// populated says whether a process is left in the cgroups.
func (g cgroup) populated() bool {
	return slices.ContainsFunc(g.folders(), func(dir string) bool {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		return err == nil && len(text) > 0
	})
}

// remove kills what is left in the cgroups and removes them. The kernel refuses as long as a
// killed process has not ended, so that it is tried for a while.
func (g cgroup) remove() error {
	var err error
	for range 1000 {
		if g.populated() {
			g.killAll()
		}
		err = nil
		for _, dir := range g.folders() {
			if e := unix.Rmdir(dir); e != nil && !errors.Is(e, unix.ENOENT) {
				err = fmt.Errorf("remove %s: %w", dir, e)
			}
		}
		if err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return fault.WithKind(fault.Unavailable, err, "remove a cgroup")
}
