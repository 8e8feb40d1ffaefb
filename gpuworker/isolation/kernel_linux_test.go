package isolation

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestFilterDecidesByArchitectureAndArguments runs the filter in a simulator.
func TestFilterDecidesByArchitectureAndArguments(t *testing.T) {
	t.Parallel()
	const allow, deny, unknown = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | int(unix.EPERM),
		unix.SECCOMP_RET_ERRNO | int(unix.ENOSYS)
	for _, table := range []*arch.Info{arch.X86_64, arch.AARCH64} {
		for _, level := range []Level{Full, Trusted} {
			vm, err := bpf.NewVM(callFilter(level, table, level == Trusted))
			if err != nil {
				t.Fatal(err)
			}
			decide := func(name string, id arch.AuditArch, args ...uint64) int {
				number, ok := table.SyscallNames[name]
				if !ok {
					t.Fatalf("%s has no call %s", table.Name, name)
				}
				return run(t, vm, uint32(number), id, args)
			}
			both := func(full, trusted int) int {
				if level == Full {
					return full
				}
				return trusted
			}
			for _, test := range []struct {
				name string
				args []uint64
				want int
			}{
				{"read", nil, allow}, {"execve", nil, allow}, {"clone3", nil, unknown}, {"mount", nil, deny}, {"ptrace", nil, deny},
				{"mmap", []uint64{0, 4096, 3, unix.MAP_SHARED | unix.MAP_ANONYMOUS}, both(deny, allow)},
				{"mmap", []uint64{0, 4096, 3, unix.MAP_SHARED_VALIDATE | unix.MAP_ANONYMOUS}, both(deny, allow)},
				{"mmap", []uint64{0, 4096, 3, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS}, allow},
				{"mmap", []uint64{0, 4096, 3, unix.MAP_SHARED}, allow},
				{"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow}, {"clone", []uint64{unix.CLONE_NEWNET}, deny},
				{"clone", []uint64{1<<40 | unix.CLONE_NEWUSER}, deny},
				{"ioctl", []uint64{0, unix.TCGETS}, allow}, {"ioctl", []uint64{0, unix.TIOCSTI}, deny},
				{"ioctl", []uint64{0, 1<<32 | unix.TIOCSTI}, deny}, {"ioctl", []uint64{0, unix.TIOCLINUX}, deny},
				{"socket", []uint64{unix.AF_UNIX, unix.SOCK_STREAM}, both(allow, deny)},
				{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
				{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET}, allow},
				{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, both(allow, deny)},
				{"socketpair", []uint64{unix.AF_UNIX, unix.SOCK_RAW}, both(allow, deny)},
				{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, allow},
				{"socket", []uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow},
				{"socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM}, both(allow, deny)},
				{"socket", []uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, both(allow, deny)},
				{"socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, both(allow, deny)},
				{"socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW}, both(allow, deny)},
				{"socket", []uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, deny},
				{"socket", []uint64{unix.AF_PACKET, unix.SOCK_RAW}, deny},
				{"socket", []uint64{1<<32 | unix.AF_VSOCK, unix.SOCK_STREAM}, deny},
			} {
				if got := decide(test.name, table.ID, test.args...); got != test.want {
					t.Errorf("%s, %s: %s%v: %#x, want %#x", table.Name, level, test.name, test.args, got, test.want)
				}
			}
			if got := decide("read", arch.I386.ID); got != deny {
				t.Errorf("%s, %s: a call of another architecture: %#x", table.Name, level, got)
			}
			for _, number := range []uint32{x32Bit | 1, 1 << 20} {
				if got := run(t, vm, number, table.ID, nil); got != unknown {
					t.Errorf("%s, %s: call %#x: %#x", table.Name, level, number, got)
				}
			}
		}
	}
}

// run decides on a call. The simulator reads numbers in network order, and the filter the lower
// halves of arguments.
func run(t *testing.T, vm *bpf.VM, number uint32, id arch.AuditArch, args []uint64) int {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], uint32(id))
	for i, arg := range args {
		binary.BigEndian.PutUint32(data[offsetArg0+8*i:], uint32(arg))
	}
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestProcessStateIsReadBehindItsName(t *testing.T) {
	t.Parallel()
	got, err := parseStat([]byte(
		"7 (a) 1 (b c) S 1 7 7 0 -1 4194304 1 0 0 0 11 12 13 14 20 0 5 0 99 4096 3 18446744073709551615\n"))
	page := int64(unix.Getpagesize())
	want := processStat{cpu: 230 * time.Millisecond, children: 270 * time.Millisecond, memory: 3 * page,
		threads: 5, start: 99}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	const status = "Name:\tVmSwap: 7 kB\nVmRSS:\t 9 kB\nVmSwap:\t      12 kB\nThreads:\t1\n"
	if got := parseSwapped([]byte(status)); got != 12<<10 {
		t.Errorf("%d bytes are swapped", got)
	}
	for _, text := range []string{"", "7 (a) S", "7 (a) S 1 7 7 0 -1 4194304 1 0 0 0 x 12 13 14 20 0 5 0 99 4096 3"} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v, want an error", text, got)
		}
	}
}
