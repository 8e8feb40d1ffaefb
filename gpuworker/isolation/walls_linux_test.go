package isolation

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

func TestProbeSaysWhatRuns(t *testing.T) {
	t.Parallel()
	for _, highest := range []Level{Full, Trusted, Refused} {
		s, err := Open(filepath.Join(publicFolder(t), "sandboxes"))
		if err != nil {
			t.Fatal(err)
		}
		s.highest = highest
		level, reason := s.Probe(t.Context())
		if again, same := s.Probe(t.Context()); again != level || same != reason {
			t.Errorf("a second probe says %s %q after %s %q", again, same, level, reason)
		}
		t.Logf("%s %s", level, reason)
		if level > highest || (level == Full) != (reason == "") {
			t.Errorf("level %s of %s, reason %q", level, highest, reason)
		}
		for _, trusted := range []bool{true, false} {
			o, err := s.Run(t.Context(), Command{Args: []string{"true"}, Limits: limits(), Trusted: trusted})
			may := level == Full || level == Trusted && trusted
			if may && (err != nil || o.Verdict != Exited || o.Level != level) {
				t.Errorf("level %s, trusted %t: %s %s, %v", level, trusted, o.Verdict, o.Level, err)
			}
			if !may && (!fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), reason)) {
				t.Errorf("level %s, trusted %t: %v, want that it is denied because %s", level, trusted, err, reason)
			}
		}
	}
}

func TestCommandReadsNothingOfOthers(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		secret := t.TempDir()
		write(t, secret, map[string]string{"targets.jsonl": "42"})
		worker := "/proc/" + strconv.Itoa(os.Getpid())
		paths := []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/root", "/proc/1/fd", "/proc/1/cwd/etc",
			worker + "/environ",
			worker + "/mem", worker + "/root", worker + "/fd", worker + "/cwd", "/etc/shadow", "/etc/ssl/private", "/root",
			"/home", "/var/log", f.dir, filepath.Join(f.dir, "0"), filepath.Join(secret, "targets.jsonl"), secret,
			"/proc/self/root/root", "/proc/kcore", "/dev/mem", "/dev/kmsg", "/dev/vda", "/sys/kernel/debug", "/run",
			"/proc/sysrq-trigger", "/.scratch"}
		if got := f.says(t, f.hostile("read", paths...)); got != "" {
			t.Errorf("the command can read %s", got)
		}
		// The test would see nothing if the program never could.
		if got := f.says(t, f.hostile("read", "/usr", "/proc/self/environ")); got != "/usr\n/proc/self/environ" {
			t.Errorf("the command can read %q alone", got)
		}
	})
}

func TestCommandWritesNowhereElse(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		got := f.says(t, f.shell(`for at in / /usr /usr/bin /etc /dev /proc/sys/kernel/hostname /proc/self/oom_score_adj \
			"$ROLLOUT_WORK/.." "`+f.inside()+`" /var/tmp /run; do
			if [ -d "$at" ]; then (echo > "$at/new") 2>/dev/null && echo "$at"; fi
			if [ -f "$at" ]; then (echo 1 > "$at") 2>/dev/null && echo "$at"; fi
		done; for at in "$ROLLOUT_WORK" "$ROLLOUT_OUT" "$TMPDIR"; do echo > "$at/new" || echo "not $at"; done`))
		if f.level == Full && got != "" || f.level == Trusted && got != "" && got != "/proc/self/oom_score_adj" {
			t.Errorf("wrote to %s", got)
		}
	})
}

// Of an ordinary user's commands, only newer versions of Landlock keep signals in.
func TestCommandCannotEndInitBySignals(t *testing.T) {
	t.Parallel()
	for name, groups := range map[string]hierarchies{"sampled": {}, "with cgroups": findHierarchies()} {
		s, err := Open(filepath.Join(folder, "signals "+name))
		if err != nil {
			t.Fatal(err)
		}
		s.groups, s.landlock = groups, min(s.landlock, 5)
		if level, reason := s.Probe(t.Context()); level != Full {
			skip(t, Full, level, reason)
		}
		f := fixture{Sandbox: s, level: Full, tools: filepath.Join(folder, "tools")}
		want := strconv.FormatBool(os.Geteuid() != 0) // else init has another user
		if got := f.says(t, f.hostile("signal")); got != want {
			t.Errorf("%s: signals reach init: %s, want %s", name, got, want)
		}
	}
}

// The rest of a slot that could not be made is removed.
func TestSlotThatFailsIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for room := 4095 - len("/0/"+lockName) - len(dir); room > 0; room = 4095 - len("/0/"+lockName) - len(dir) {
		dir = filepath.Join(dir, strings.Repeat("d", min(200, max(1, room-1)))) // cgroups.json has a longer name
		if room == 1 {
			break
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := acquireSlot(dir, hierarchies{}); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("%v, want that a name is too long", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v is left, %v", entries, err)
	}
}

func TestCommandGetsNoDangerousCall(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		if got := f.says(t, f.hostile("call")); got != "" {
			t.Errorf("the command can call %s", got)
		}
	})
}

func TestCommandReachesItsForwardAlone(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		host, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer host.Close()
		abstract := "@rollout-test-" + rand.Text()
		path := newDoor(t).path + "2"
		for _, address := range []string{abstract, path} {
			l, err := net.Listen("unix", address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go accept(l)
		}
		if err := errors.Join(os.Chmod(filepath.Dir(path), 0o755), os.Chmod(path, 0o777)); err != nil {
			t.Fatal(err)
		}
		go accept(host)
		tries := []string{"tcp=" + host.Addr().String(), "unix=" + abstract, "unix=" + path,
			"tcp=" + net.IPv4(169, 254, 169, 254).String() + ":80", // where clouds tell a machine its secrets
			"tcp=[fd00:ec2::254]:80", "tcp=8.8.8.8:53", "udp=8.8.8.8:53", "udp=127.0.0.53:53",
			"tcp=example.com:80", "tcp=localhost:22"}
		if f.level == Trusted { // at the level Full the command has a network of its own to listen on
			tries = append(tries, "listen-tcp4=127.0.0.1:0", "listen-tcp4=0.0.0.0:8080", "listen-udp=127.0.0.1:0")
		}
		door := newDoor(t)
		go func() {
			for conn := range door.arrivals {
				conn.Close()
			}
		}()
		c := door.through(f.hostile("dial", tries...))
		if got := f.says(t, c); got != "" {
			t.Errorf("the command reached %s", got)
		}
		c.Args = []string{"sh", "-c", `exec "` + c.Args[0] + `" tcp=$DOOR`}
		if got := f.says(t, c); !strings.HasPrefix(got, "tcp=127.0.0.1:") {
			t.Errorf("the command reached %q, want its forward", got)
		}
	})
}

// accept closes what comes.
func accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Close()
	}
}

func TestCommandListensForItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Full)
	c := f.hostile("dial", "listen-tcp=127.0.0.1:8080", "listen-udp=127.0.0.1:5353", "listen-unix=@name")
	if got := f.says(t, c); got != strings.Join(c.Args[1:], "\n") {
		t.Errorf("the command listens on %s", got)
	}
}

func TestForwardHasThePortThatIsAskedFor(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Full)
	door := newDoor(t)
	c := door.through(f.hostile("knock"))
	c.Forwards[0].Port = 8123
	done := make(chan struct{})
	go func() {
		defer close(done)
		if o, err := f.Run(t.Context(), c); err != nil || o.Verdict != Exited || o.ExitCode != 0 {
			t.Errorf("%+v, %v", o, err)
		}
	}()
	door.wait(t).Close()
	<-done
	addresses := c.Forwards[0].Env("127.0.0.1:8123")
	if addresses["DOOR"] != "127.0.0.1:8123" {
		t.Errorf("address %v", addresses)
	}
}

func TestOnlyRegularFilesAreCollected(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		c := f.hostile("clutter")
		c.Out = t.TempDir()
		o := f.run(t, c, Exited)
		var names []string
		for _, file := range o.Out.Files {
			names = append(names, file.Name)
		}
		slices.Sort(names)
		want := []string{"bad\xff", "closed/file", "forbidden", "new\nline", strings.Repeat("n", 255)}
		if f.level == Full {
			want = append(want, "result.json", "second name")
		}
		slices.Sort(want)
		if !slices.Equal(names, want) {
			t.Errorf("collected %q, want %q", names, want)
		}
		left := strings.Join(o.Out.LeftOut, "\n")
		for _, why := range []string{`"link": a symbolic link`, `"root": a symbolic link`, `"up": a symbolic link`,
			`"fifo": a named pipe`, `"socket": a socket`, `"huge": over the limit of bytes`, "deeper than"} {
			if !strings.Contains(left, why) {
				t.Errorf("left out is not %s:\n%s", why, left)
			}
		}
		err := filepath.WalkDir(c.Out, func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && !entry.Type().IsRegular() {
				t.Errorf("%s is %s", path, entry.Type())
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestCollectingIsBounded(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		c := f.shell(`cd "$ROLLOUT_OUT"; i=0; while [ $i -lt 60 ]; do echo > f$i; i=$((i+1)); done`)
		c.Out, c.Limits.OutFiles = t.TempDir(), 10
		o := f.run(t, c, Exited)
		entries, err := os.ReadDir(c.Out)
		if err != nil || len(entries) != 10 || len(o.Out.Files) != 10 || o.Out.Missing != 50 ||
			len(o.Out.LeftOut) != maxNamed {
			t.Errorf("%d entries, %d files, %d missing, %d named, %v", len(entries), len(o.Out.Files), o.Out.Missing,
				len(o.Out.LeftOut), err)
		}
	})
}

// runWorker is a worker that runs one command for ever: a daemon that knocks at the door.
func runWorker(level, dir, at, mark string) int {
	s, err := Open(dir)
	if err != nil {
		panic(err)
	}
	for _, l := range []Level{Full, Trusted} {
		if l.String() == level {
			s.highest = l
		}
	}
	f := fixture{Sandbox: s, level: s.highest, tools: filepath.Dir(os.Args[0])}
	o, err := f.Run(context.Background(), door{path: at}.through(f.hostile("daemon", mark)))
	panic([]any{o, err})
}

func TestNothingIsLeftOfAKilledWorker(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		mark := newMark(t)
		dir, door := filepath.Join(publicFolder(t), "sandboxes"), newDoor(t)
		worker := exec.Command(filepath.Join(f.tools, "tool"), dir, door.path, mark)
		worker.Env = append(os.Environ(), workerVariable+"="+f.level.String())
		worker.Stderr = os.Stderr
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = worker.Process.Kill() }()
		for range 3 { // the program, its child and its grandchild
			door.wait(t)
		}
		var watched []unix.PollFd
		for _, pid := range processes(t, mark) {
			if pid == worker.Process.Pid {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // it has ended
			}
			defer unix.Close(fd)
			watched = append(watched, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		}
		if len(watched) < 2 {
			t.Fatalf("%d processes of the command", len(watched))
		}
		if err := worker.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = worker.Wait()
		for i := range watched {
			for {
				_, err := unix.Poll(watched[i:i+1], -1)
				if err == nil {
					break
				}
				if err != unix.EINTR {
					t.Fatal(err)
				}
			}
		}
		if left, err := filepath.Glob(filepath.Join(dir, "[0-9]*")); err != nil || len(left) != 1 {
			t.Errorf("the killed worker has left %v, %v, want one folder", left, err)
		}
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(dir, "[0-9]*"))
		if err != nil || len(left) > 0 {
			t.Errorf("the next worker has left %v, %v", left, err)
		}
		for _, group := range s.groups.inside((slot{dir: filepath.Join(dir, "0")}).name()).folders() {
			if _, err := os.Stat(group); !os.IsNotExist(err) {
				t.Errorf("the cgroup %s: %v", group, err)
			}
		}
	})
}

func TestLeftoversOfALivingWorkerStay(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Full)
	door := newDoor(t)
	ended := make(chan Verdict, 1)
	go func() {
		o, err := f.Run(t.Context(), door.through(f.hostile("knock")))
		if err != nil {
			t.Error(err)
		}
		ended <- o.Verdict
	}()
	conn := door.wait(t)
	if _, err := Open(f.dir); err != nil { // another worker starts
		t.Error(err)
	}
	conn.Close()
	if v := <-ended; v != Exited {
		t.Errorf("the command of a living worker ended with %s", v)
	}
}

// unreadableVariable names a folder with a copy of the test program that is another user's.
const unreadableVariable = "ROLLOUT_TEST_UNREADABLE"

// ordinary are the tests that an ordinary user must pass, too, as far as the machine permits.
const ordinary = "^Test(Probe|Command|Limits|Grace|Canceled|Staged|Environment|Only|Collecting|Forward|Left|Nothing)"

func TestOrdinaryUserIsolatesToo(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the tests run as an ordinary user already")
	}
	home := publicFolder(t)
	const user = 65534
	if err := os.Chown(home, user, user); err != nil {
		t.Fatal(err)
	}
	// A program that the user may execute and not read: the kernel hides its processes.
	unreadable := filepath.Join(publicFolder(t), "unreadable")
	tool := filepath.Join(folder, "tools", "tool")
	if err := errors.Join(os.Mkdir(unreadable, 0o755), copyProgram(filepath.Join(unreadable, "tool")),
		os.Chmod(filepath.Join(unreadable, "tool"), 0o711)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(tool, "-test.run", ordinary, "-test.v")
	c.Dir = home
	c.Env = []string{"TMPDIR=" + home, "HOME=" + home, "PATH=" + os.Getenv("PATH"), "SECRET=of the worker",
		unreadableVariable + "=" + unreadable}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	text, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	if _, reason, ok := strings.Cut(string(text), "this machine permits "); ok {
		reason, _, _ = strings.Cut(reason, "\n")
		t.Log(reason)
	}
}
