package isolation

import "time"

// Verdict says how a command ended.
type Verdict string

// The verdicts. Exited and Signaled are the command's own end; all others are rollout's.
const (
	Exited       Verdict = "exited"        // with Outcome.ExitCode
	Signaled     Verdict = "signaled"      // by Outcome.Signal, which no limit explains
	TimeLimit    Verdict = "time_limit"    // Limits.Wall
	CPULimit     Verdict = "cpu_limit"     // Limits.CPU
	MemoryLimit  Verdict = "memory_limit"  // Limits.Memory
	ProcessLimit Verdict = "process_limit" // Limits.Processes
	OutputLimit  Verdict = "output_limit"  // Limits.Output
	DiskLimit    Verdict = "disk_limit"    // Limits.Disk or Limits.Files
	SetupFailed  Verdict = "setup_failed"  // the program did not start; see Outcome.Reason
	Canceled     Verdict = "canceled"      // the context ended
)

// Outcome is what happened to a command.
type Outcome struct {
	Level    Level
	Enforced Enforcement
	Verdict  Verdict
	Reason   string // of SetupFailed
	ExitCode int    // of Exited
	Signal   string // of Signaled. Example: "SIGSEGV"

	Wall       time.Duration // from the start of the program to its end
	CPU        time.Duration // of all processes
	PeakMemory int64         // bytes; 0 if the kernel does not tell

	Stdout, Stderr Output
	Out, Work      Collected
}

// Enforcement names, for the records of a run, what held each limit. Examples: "cgroup v2",
// "tmpfs", "watch every 50ms".
type Enforcement struct {
	Identity   string `json:"identity"`    // whose rights the command has on the machine
	FileSystem string `json:"file_system"` // what it sees
	Network    string `json:"network"`
	SysCalls   string `json:"sys_calls"`
	Memory     string `json:"memory"`
	CPU        string `json:"cpu"`
	Processes  string `json:"processes"`
	Disk       string `json:"disk"`
	Kill       string `json:"kill"` // how all of its processes end
}

// Output is what a command wrote to one of its streams.
type Output struct {
	Kept  []byte // the first bytes, Limits.Keep at most
	Bytes int64  // all bytes that were read
}

// Collected is what was copied out of one of a command's folders.
type Collected struct {
	Files []File
	Bytes int64
	// LeftOut has "PATH: why" for what was not copied, the path quoted as in Go; 32 at most.
	LeftOut []string
	Missing int // how many were left out in all, as far as they were counted
}

// File is a collected regular file.
type File struct {
	Name  string // its path below the folder, with slashes
	Bytes int64
}

// usage is what the processes of a command use at one moment.
type usage struct {
	cpu       time.Duration
	memory    int64
	peak      int64
	processes int
	killed    bool // the kernel killed a process for its memory
	refused   bool // the kernel refused a process
	diskFull  bool // no byte or no file is free
}

// exceeded returns the limit that the usage is over.
func (l Limits) exceeded(u usage) (Verdict, bool) {
	switch {
	case u.killed, u.memory > l.Memory:
		return MemoryLimit, true
	case u.refused, u.processes > l.Processes:
		return ProcessLimit, true
	case u.diskFull:
		return DiskLimit, true
	case u.cpu >= l.CPU:
		return CPULimit, true
	}
	return "", false
}

// ended returns the verdict on a program that ended by itself, with its exit code or the name of
// its signal, after it had used u.
func (l Limits) ended(code int, signal string, u usage) Verdict {
	if v, over := l.exceeded(u); over {
		return v
	}
	switch signal {
	case "":
		return Exited
	case "SIGXFSZ": // RLIMIT_FSIZE
		return DiskLimit
	case "SIGXCPU": // RLIMIT_CPU
		return CPULimit
	}
	return Signaled
}
