package isolation

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// deniedCalls are the system calls that no program of a command gets, by what they would give.
var deniedCalls = []string{
	// Other namespaces and file systems.
	"mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr", "fsopen",
	"fsconfig", "fsmount", "fspick", "mount_setattr", "setns", "unshare", "swapon", "swapoff", "quotactl",
	"quotactl_fd", "open_by_handle_at", "name_to_handle_at", "statmount", "listmount", "listns",
	// The kernel and the machine.
	"init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms", "kexec_load",
	"kexec_file_load", "reboot", "syslog", "acct", "iopl", "ioperm", "bpf", "perf_event_open", "lookup_dcookie",
	"nfsservctl", "uselib", "vhangup", "vm86", "vm86old", "_sysctl", "sysfs", "fanotify_init",
	// Its clock and name.
	"settimeofday", "stime", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex",
	"sethostname", "setdomainname",
	// Other processes and their memory.
	"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd",
	"migrate_pages", "move_pages", "userfaultfd",
	// What belongs to no namespace, or is a way around a filter.
	"add_key", "request_key", "keyctl", "io_uring_setup", "io_uring_enter", "io_uring_register",
}

// unseenCalls are those that give memory which no process shows, and which a cgroup alone
// counts: files without a name, shared memory, message queues and semaphores of System V. So is
// anonymous memory that is mapped shared: its pages stay when a process gives them back, or
// unmaps all but one of them. The filter looks at the flags of mmap for it.
var unseenCalls = []string{"memfd_create", "memfd_secret", "shmget", "msgget", "semget", "ipc"}

// namespaceFlags are the flags of clone that make namespaces.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// Offsets in struct seccomp_data. Of arguments they are those of the lower half, which is all
// that the kernel reads of the arguments that are compared here.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArg0   = 16
	offsetArg1   = 24
	offsetArg2   = 32
	offsetArg3   = 40
)

// x32Bit marks the calls of another way to call the kernel of amd64.
const x32Bit = 0x40000000

// filterCalls installs the filter for this thread and what it executes.
func filterCalls(level Level, unseen bool) error {
	table, err := arch.GetInfo("")
	if err != nil {
		return err
	}
	program, err := bpf.Assemble(callFilter(level, table, unseen))
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(program))
	for i, in := range program {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// callFilter returns the program that decides on each system call. unseen says that calls which
// give memory that no process shows are permitted. Each block ends with a
// verdict, so that none can see a register of another.
//
// It is not assembled by go-seccomp-bpf, whose table of calls it uses: there, calls of another
// architecture get the default verdict, and after a condition that does not hold, the argument
// is compared with the numbers of the calls that follow.
func callFilter(level Level, table *arch.Info, unseen bool) []bpf.Instruction {
	load := func(offset uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: offset, Size: 4} }
	allow := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	deny := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	unknown := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}

	program := []bpf.Instruction{
		load(offsetArch),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(table.ID), SkipTrue: 1},
		deny,
		load(offsetNumber),
	}
	// block adds what decides on one call.
	block := func(name string, decide ...bpf.Instruction) {
		if number, ok := table.SyscallNames[name]; ok {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(number), SkipTrue: uint8(len(decide))})
			program = append(program, decide...)
		}
	}
	// Calls that are newer than the table, and those of x32 above them: programs then use older ones.
	newest := slices.Max(slices.Collect(maps.Keys(table.SyscallNumbers)))
	program = append(program,
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(min(newest, x32Bit-1)), SkipTrue: 1}, unknown)
	// The arguments of clone3 are in memory, where a filter cannot look.
	block("clone3", unknown)
	block("clone", load(offsetArg0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: namespaceFlags, SkipTrue: 1}, allow, deny)
	block("ioctl", load(offsetArg1), // what types into a terminal
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCLINUX, SkipTrue: 1}, allow, deny)
	block("socket", socketRules(level, load, allow, deny)...)
	if level == Trusted {
		// A pair of datagram sockets can also send to others.
		block("socketpair", load(offsetArg1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_STREAM, SkipTrue: 2},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SOCK_SEQPACKET, SkipTrue: 1}, deny, allow)
	}
	for _, name := range deniedCalls {
		block(name, deny)
	}
	if !unseen {
		for _, name := range unseenCalls {
			block(name, deny)
		}
		block("mmap", load(offsetArg3),
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.MAP_ANONYMOUS, SkipTrue: 1},
			bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.MAP_SHARED, SkipTrue: 1}, allow, deny)
	}
	return append(program, allow)
}

// typeMask takes the flags from the type of a socket.
const typeMask = 0xf

// socketRules allow the families of sockets that belong to a network namespace; other ones, as
// those of virtual machines, do not. The level Trusted has the network of the machine, and
// Landlock limits its TCP alone: it has nothing else, not even Unix sockets, which any file of
// the machine may be.
func socketRules(level Level, load func(uint32) bpf.Instruction, allow, deny bpf.Instruction) []bpf.Instruction {
	equal := func(value, skip int) bpf.Instruction {
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(value), SkipTrue: uint8(skip)}
	}
	if level == Full {
		return []bpf.Instruction{load(offsetArg0), equal(unix.AF_UNIX, 4), equal(unix.AF_INET, 3), equal(unix.AF_INET6, 2),
			equal(unix.AF_NETLINK, 1), deny, allow}
	}
	return []bpf.Instruction{load(offsetArg0), equal(unix.AF_INET, 2), equal(unix.AF_INET6, 1), deny,
		load(offsetArg1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: typeMask}, equal(unix.SOCK_STREAM, 1), deny,
		// Of streams, Landlock does not limit multipath TCP and others.
		load(offsetArg2), equal(unix.IPPROTO_TCP, 2), equal(0, 1), deny, allow}
}

// filterName describes the filter for records.
func filterName() string { return fmt.Sprintf("seccomp, %d calls denied", len(deniedCalls)) }
