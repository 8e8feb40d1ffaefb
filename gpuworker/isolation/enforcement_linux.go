package isolation

import (
	"fmt"
	"os"
)

// enforced says what holds each limit.
func (e *execution) enforced() Enforcement {
	landlocked := "none"
	if version := e.landlock; version > 0 {
		landlocked = fmt.Sprintf("Landlock %d", version)
	}
	f := Enforcement{SysCalls: filterName(), Memory: "rlimit of each process, watch of all", CPU: "rlimit, watch",
		Processes: "rlimit, watch", Kill: "pid namespace", Identity: "own user namespace, the worker's user"}
	if os.Geteuid() == 0 {
		f.Identity = "own user namespace, own user"
	}
	if v := e.group.version; v > 0 {
		group := fmt.Sprintf("cgroup v%d", v)
		f.Memory, f.CPU, f.Processes = group, group+", watch", group
	}
	if e.level == Full {
		f.FileSystem = "mount namespace, read-only system; " + landlocked
		f.Network = "network namespace"
		f.Disk = "tmpfs"
		return f
	}
	f.Identity = "the worker's user"
	if os.Geteuid() == 0 {
		f.Identity = "own user"
	}
	f.FileSystem = landlocked
	f.Network = "seccomp, TCP ports by " + landlocked
	f.Disk = "watch, size of a file by rlimit"
	f.Kill = "cgroup.kill"
	return f
}
