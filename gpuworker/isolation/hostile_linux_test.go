package isolation

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hostile are programs that the tests run in sandboxes. Each returns its exit code.
var hostile = map[string]func(args []string) int{
	"burn":    burn,
	"call":    call,
	"clutter": clutter,
	"daemon":  daemon,
	"dial":    dial,
	"disown":  disown,
	"eat":     eat,
	"finish":  finish,
	"give":    give,
	"hoard":   hoard,
	"knock":   knock,
	"read":    read,
	"signal":  signalInit,
}

// burn computes for ever, in a child that it does not wait for.
func burn(args []string) int {
	if len(args) == 0 {
		child := exec.Command("/proc/self/exe", "child")
		child.Env = os.Environ()
		if err := child.Start(); err != nil {
			return 1
		}
		select {}
	}
	for {
		runtime.KeepAlive(args)
	}
}

// call makes the system calls that a command must not have, and prints those that work.
func call([]string) int {
	zero := unsafe.Pointer(&[4096]byte{})
	for _, c := range []struct {
		name   string
		number uintptr
		args   [4]uintptr
	}{
		{"mount", unix.SYS_MOUNT, [4]uintptr{uintptr(zero), uintptr(zero), uintptr(zero), 0}},
		{"unshare", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_NEWUSER}},
		{"unshare time", unix.SYS_UNSHARE, [4]uintptr{unix.CLONE_NEWTIME}},
		{"clone", unix.SYS_CLONE, [4]uintptr{unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}},
		{"clone with a dirty upper half", unix.SYS_CLONE, [4]uintptr{1<<40 | unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}},
		{"chroot", unix.SYS_CHROOT, [4]uintptr{uintptr(unsafe.Pointer(&[]byte("/work\x00")[0]))}},
		{"kexec_load", unix.SYS_KEXEC_LOAD, [4]uintptr{}},
		{"reboot", unix.SYS_REBOOT,
			[4]uintptr{unix.LINUX_REBOOT_MAGIC1, unix.LINUX_REBOOT_MAGIC2, unix.LINUX_REBOOT_CMD_CAD_OFF}},
		{"init_module", unix.SYS_INIT_MODULE, [4]uintptr{}},
		{"bpf", unix.SYS_BPF, [4]uintptr{0, uintptr(zero), 72}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, [4]uintptr{uintptr(zero), 0, ^uintptr(0), ^uintptr(0)}},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, [4]uintptr{1, uintptr(zero)}},
		{"keyctl", unix.SYS_KEYCTL, [4]uintptr{0, ^uintptr(2)}},
		{"ptrace", unix.SYS_PTRACE, [4]uintptr{}},
		{"userfaultfd", unix.SYS_USERFAULTFD, [4]uintptr{1}},
		{"clock_settime", unix.SYS_CLOCK_SETTIME, [4]uintptr{unix.CLOCK_REALTIME, uintptr(zero)}},
		{"sethostname", unix.SYS_SETHOSTNAME, [4]uintptr{uintptr(zero), 1}},
		{"setuid", unix.SYS_SETUID, [4]uintptr{0}},
		{"setgid", unix.SYS_SETGID, [4]uintptr{0}},
		{"packet socket", unix.SYS_SOCKET, [4]uintptr{unix.AF_PACKET, unix.SOCK_RAW}},
		{"vsock socket", unix.SYS_SOCKET, [4]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}},
		{"alg socket", unix.SYS_SOCKET, [4]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}},
		{"raw socket", unix.SYS_SOCKET, [4]uintptr{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}},
		{"vsock with a dirty upper half", unix.SYS_SOCKET, [4]uintptr{1<<40 | unix.AF_VSOCK, unix.SOCK_STREAM}},
	} {
		n, _, errno := syscall.Syscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], 0, 0)
		if errno == 0 && n == 0 && strings.HasPrefix(c.name, "clone") {
			os.Exit(0) // the child
		}
		if errno == 0 {
			fmt.Println(c.name)
		}
	}
	return 0
}

// clutter fills its out folder with everything that is not a regular file, and some that are.
func clutter([]string) int {
	out := os.Getenv("ROLLOUT_OUT")
	at := func(name string) string { return filepath.Join(out, name) }
	text := func(name, text string) { _ = os.WriteFile(at(name), []byte(text), 0o644) }
	text("result.json", "{}")
	text("new\nline", "1")
	text(strings.Repeat("n", 255), "2")
	text("bad\xff", "3")
	text("forbidden", "4")
	_ = os.Mkdir(at("closed"), 0o755)
	text("closed/file", "5")
	_ = os.Chmod(at("forbidden"), 0)
	_ = os.Chmod(at("closed"), 0)
	_ = os.Symlink("/etc/shadow", at("link"))
	_ = os.Symlink("/", at("root"))
	_ = os.Symlink("..", at("up"))
	_ = os.Link(at("result.json"), at("second name"))
	_ = unix.Mkfifo(at("fifo"), 0o666)
	_ = unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	_ = unix.Mknod(at("socket"), unix.S_IFSOCK|0o666, 0)
	if huge, err := os.Create(at("huge")); err == nil {
		_ = huge.Truncate(32 << 20)
	}
	_ = os.Chdir(out)
	for range 200 {
		_ = os.Mkdir("deep", 0o755)
		_ = os.Chdir("deep")
	}
	_ = os.WriteFile("bottom", nil, 0o644)
	return 0
}

// daemon ignores SIGTERM, and leaves a grandchild in a session of its own that does, too. Both
// knock at the door.
func daemon(args []string) int {
	_ = knockOnce()
	switch len(args) {
	case 1: // the program
		child := exec.Command("/proc/self/exe", args[0], "child")
		child.Env = os.Environ()
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = child.Start()
		_ = child.Wait()
	case 2: // its child, which ends
		child := exec.Command("/proc/self/exe", args[0], "grand", "child")
		child.Env = os.Environ()
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = child.Start()
		return 0
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	for {
		<-signals
	}
}

// dial tries addresses, each as NETWORK=ADDRESS, and prints those that it reaches or may listen on.
func dial(args []string) int {
	for _, arg := range args {
		network, address, _ := strings.Cut(arg, "=")
		if listen, ok := strings.CutPrefix(network, "listen-"); ok {
			var l io.Closer
			var err error
			if listen == "udp" {
				l, err = net.ListenPacket(listen, address)
			} else {
				l, err = net.Listen(listen, address)
			}
			if err == nil {
				fmt.Println(arg)
				l.Close()
			}
			continue
		}
		d := net.Dialer{Timeout: 5 * time.Second}
		d.SetMultipathTCP(false)
		conn, err := d.DialContext(context.Background(), network, address)
		if err != nil {
			continue
		}
		if network == "udp" { // what is sent must be answered
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			_, _ = conn.Write([]byte("?"))
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				continue
			}
		}
		fmt.Println(arg)
		conn.Close()
	}
	return 0
}

// disown computes for ever, in children that end soon and whose end it ignores, so that the
// kernel adds their time to nobody's.
func disown(args []string) int {
	if len(args) > 0 { // a child: 300 ms of CPU time
		var use unix.Rusage
		for use.Utime.Nano()+use.Stime.Nano() < 300e6 {
			if unix.Getrusage(unix.RUSAGE_SELF, &use) != nil {
				return 1
			}
		}
		fmt.Print(".")
		return 0
	}
	signal.Ignore(unix.SIGCHLD)
	for {
		child := exec.Command("/proc/self/exe", "child")
		child.Env, child.Stdout = os.Environ(), os.Stdout
		if child.Start() != nil {
			return 1
		}
		for { // it waits for all, and then fails
			if _, err := unix.Wait4(-1, nil, 0, nil); err == unix.ECHILD {
				break
			}
		}
	}
}

// eat takes 250 MiB of memory, less than the rlimit of one process, and stays.
func eat([]string) int {
	taken, err := unix.Mmap(-1, 0, 250<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return 1
	}
	for i := 0; i < len(taken); i += 4096 {
		taken[i] = 1
	}
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(taken)
	}
}

// give takes shared memory in parts, and gives each back so that its pages stay all the same: one
// of the process's address space is left of each. It returns 3 if it gets none.
func give([]string) int {
	zero, err := os.OpenFile("/dev/zero", os.O_RDWR, 0)
	if err != nil {
		return 1
	}
	taken := 0
	for _, from := range []struct{ fd, flags int }{{-1, unix.MAP_ANON}, {int(zero.Fd()), 0}} {
		for range 20 {
			part, err := unix.Mmap(from.fd, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|from.flags)
			if err != nil {
				break
			}
			for i := 0; i < len(part); i += 4096 {
				part[i] = 1
			}
			if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(&part[4096])), 16<<20-4096, 0); errno != 0 {
				return 1
			}
			taken++
		}
	}
	if taken == 0 {
		return 3
	}
	return 0
}

// signalInit sends process 1 all signals, and prints whether it may.
func signalInit([]string) int {
	allowed := 0
	for range 3 {
		for number := syscall.Signal(1); number <= 64; number++ {
			if unix.Kill(1, number) == nil {
				allowed++
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println(allowed > 0)
	return 0
}

// hoard fills files that have no name and that no process maps. It returns 3 if it gets none.
func hoard([]string) int {
	piece := make([]byte, 1<<20)
	for {
		fd, err := unix.MemfdCreate("hoard", 0)
		if err != nil {
			return 3
		}
		for range 16 {
			_, _ = unix.Write(fd, piece)
		}
	}
}

// finish waits for SIGTERM, and then writes a file.
func finish([]string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM)
	_ = knockOnce()
	<-signals
	if os.WriteFile(filepath.Join(os.Getenv("ROLLOUT_OUT"), "late"), nil, 0o644) != nil {
		return 1
	}
	return 0
}

// knock comes to the door and stays until the test closes it.
func knock([]string) int {
	conn := knockOnce()
	if conn == nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, conn)
	return 0
}

func knockOnce() net.Conn {
	conn, err := net.Dial("tcp", os.Getenv("DOOR"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return nil
	}
	if _, err := conn.Write([]byte("!")); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return conn
}

// read prints which of the files it can read, and which of the folders it can list.
func read(paths []string) int {
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		info, err := file.Stat()
		if err == nil && info.IsDir() {
			_, err = file.Readdirnames(1)
		} else if err == nil {
			_, err = file.Read(make([]byte, 1))
		}
		if err == nil {
			fmt.Println(path)
		}
		file.Close()
	}
	return 0
}
