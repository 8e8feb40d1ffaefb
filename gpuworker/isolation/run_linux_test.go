package isolation

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/fault"
)

func TestCommandRunsInItsFolders(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		staged, out, work := t.TempDir(), t.TempDir(), t.TempDir()
		write(t, staged, map[string]string{"task.txt": "two and two", "deep/er/program": "#!/bin/sh\necho run"})
		if err := os.Chmod(filepath.Join(staged, "deep/er/program"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("task.txt", filepath.Join(staged, "link")); err != nil {
			t.Fatal(err)
		}
		c := f.shell(`cat link && deep/er/program && mkdir sub && echo 4 > "$ROLLOUT_OUT/result.json" && echo 5 > sub/file &&
			echo e >&2; exit 7`)
		second := t.TempDir()
		write(t, second, map[string]string{"deep/second": "2"})
		c.Staged, c.Out, c.Work = []string{staged, second}, out, work
		o := f.run(t, c, Exited)
		if o.ExitCode != 7 || string(o.Stdout.Kept) != "two and tworun\n" || string(o.Stderr.Kept) != "e\n" {
			t.Errorf("exit code %d, stdout %q, stderr %q", o.ExitCode, o.Stdout.Kept, o.Stderr.Kept)
		}
		if !slices.Equal(o.Out.Files, []File{{"result.json", 2}}) || o.Out.Missing != 0 {
			t.Errorf("out: %+v", o.Out)
		}
		for path, want := range map[string]string{filepath.Join(out, "result.json"): "4\n",
			filepath.Join(work, "sub/file"): "5\n", filepath.Join(work, "task.txt"): "two and two",
			filepath.Join(work, "deep/second"): "2"} {
			if text, err := os.ReadFile(path); err != nil || string(text) != want {
				t.Errorf("%s: %q, %v", path, text, err)
			}
		}
		if target, err := os.Readlink(filepath.Join(work, "link")); err != nil || target != "task.txt" {
			t.Errorf("link: %q, %v", target, err)
		}
		if text, err := os.ReadFile(filepath.Join(staged, "task.txt")); err != nil || string(text) != "two and two" {
			t.Errorf("the staged folder has changed: %q, %v", text, err)
		}
	})
}

func TestCommandEndsAsItDoes(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		if o := f.run(t, f.shell("kill -SEGV $$"), Signaled); o.Signal != "SIGSEGV" {
			t.Errorf("signal %q", o.Signal)
		}
		for name, c := range map[string]Command{
			"no such program":    {Args: []string{"no-such-program"}},
			"no program in work": {Args: []string{"./program"}},
			"not executable":     {Args: []string{"/etc/passwd"}},
		} {
			c.Limits, c.Trusted = limits(), true
			if o := f.run(t, c, SetupFailed); !strings.Contains(o.Reason, strings.TrimPrefix(c.Args[0], "./")) {
				t.Errorf("%s: %s", name, o.Reason)
			}
		}
	})
}

func TestStagedFolderMustFit(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		first := t.TempDir()
		write(t, first, map[string]string{"name": "1"})
		for name, stage := range map[string]func(dir string, l *Limits) error{
			"a file twice": func(dir string, l *Limits) error {
				write(t, dir, map[string]string{"name": "2"})
				return nil
			},
			"too many bytes": func(dir string, l *Limits) error {
				l.Disk = 1 << 20
				return os.WriteFile(filepath.Join(dir, "big"), make([]byte, 2<<20), 0o644)
			},
			"too many files": func(dir string, l *Limits) error {
				l.Files = 3
				write(t, dir, map[string]string{"a": "", "b": "", "c": "", "d": "", "e": ""})
				return nil
			},
			"a pipe": func(dir string, _ *Limits) error { return unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600) },
		} {
			c := f.shell("true")
			c.Staged = []string{first, t.TempDir()}
			if err := stage(c.Staged[1], &c.Limits); err != nil {
				t.Fatal(err)
			}
			if o := f.run(t, c, SetupFailed); !strings.Contains(o.Reason, "work folder") {
				t.Errorf("%s: %s", name, o.Reason)
			}
		}
	})
}

func TestEnvironmentIsTheCommandsAlone(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		c := f.shell("env; ls /proc/self/fd")
		c.Env = map[string]string{"TZ": "Asia/Tokyo", "KEY": "value"}
		c.Folders[0].Variable = "TOOLS"
		lines := strings.Split(f.says(t, c), "\n")
		want := map[string]bool{"KEY=value": true, "TZ=Asia/Tokyo": true, "LANG=C.UTF-8": true, "TOOLS=" + f.inside(): true}
		for _, line := range lines {
			name, value, isVariable := strings.Cut(line, "=")
			if _, fixed := Environment("", "", "")[name]; isVariable && !fixed && !want[line] && name != "PWD" &&
				name != "SHLVL" && name != "OLDPWD" && name != "_" {
				t.Errorf("the command has %s=%s", name, value)
			}
			delete(want, line)
		}
		if len(want) > 0 {
			t.Errorf("the command lacks %v", want)
		}
		// The fourth is the listing itself.
		if files := lines[len(lines)-4:]; !slices.Equal(files, []string{"0", "1", "2", "3"}) {
			t.Errorf("open files %q", files)
		}
	})
}

func TestLimitsEndACommand(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		few := func(c Command, change func(l *Limits)) Command {
			change(&c.Limits)
			return c
		}
		smallDisk := func(l *Limits) { l.Disk = 8 << 20 }
		for name, test := range map[string]struct {
			command Command
			want    Verdict
		}{
			"fork bomb":           {f.shell("f() { f | f & }; f; while :; do :; done"), ProcessLimit},
			"processes that stay": {f.bash("while :; do sleep 1000 & done"), ProcessLimit}, // bash tries again for a while
			// tail keeps all of a line that does not end.
			"a hundred gigabytes of memory": {few(f.shell("head -c 100000000000 /dev/zero | tail"),
				func(l *Limits) { l.Memory = 100 << 20 }), MemoryLimit},
			"ten gigabytes of output": {f.shell("head -c 10000000000 /dev/zero"), OutputLimit},
			"endless errors":          {f.shell("yes >&2"), OutputLimit},
			"ten gigabytes in a file": {few(f.shell("head -c 10000000000 /dev/zero > big"), smallDisk), DiskLimit},
			"ten gigabytes in the out folder": {few(f.shell(`cd "$ROLLOUT_OUT"; for i in 1 2 3 4 5 6; do
				head -c 3000000 /dev/zero > $i; done; while :; do sleep 1; done`), smallDisk), DiskLimit},
			"a million files": {f.shell("i=0; while [ $i -lt 1000000 ]; do echo > f$i; i=$((i+1)); done"), DiskLimit},
			"time": {few(f.shell("while :; do sleep 1; done"), func(l *Limits) { l.Wall = 100 * time.Millisecond }),
				TimeLimit},
			"CPU time of a child": {few(f.hostile("burn"), func(l *Limits) { l.CPU = 200 * time.Millisecond }),
				CPULimit},
		} {
			if name == "fork bomb" && f.groups.version == 0 {
				continue // it may be over between two samples
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				o := f.run(t, test.command, test.want)
				if len(o.Stdout.Kept) > test.command.Limits.Keep || len(o.Stderr.Kept) > test.command.Limits.Keep ||
					o.Stdout.Bytes+o.Stderr.Bytes > 9e9 {
					t.Errorf("%d of %d bytes kept, %d of %d", len(o.Stdout.Kept), o.Stdout.Bytes, len(o.Stderr.Kept), o.Stderr.Bytes)
				}
			})
		}
	})
}

// Where no cgroup counts, nothing may be hidden from samples.
func TestLimitsHoldForWhatIsHidden(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		small := func(c Command) Command {
			c.Limits.Memory, c.Limits.Disk = 100<<20, 400<<20
			return c
		}
		t.Run("CPU time of children whose end is ignored", func(t *testing.T) {
			t.Parallel()
			c := f.hostile("disown")
			c.Limits.CPU = 2 * time.Second
			if o := f.run(t, c, CPULimit); o.Stdout.Bytes > 20 { // each byte is 300 ms
				t.Errorf("%d children have ended before", o.Stdout.Bytes)
			}
		})
		t.Run("memory without a process", func(t *testing.T) {
			t.Parallel()
			if f.groups.version > 0 {
				f.run(t, small(f.hostile("hoard")), MemoryLimit)
			} else if o := f.run(t, small(f.hostile("hoard")), Exited); o.ExitCode != 3 {
				t.Errorf("exit code %d", o.ExitCode)
			}
		})
		t.Run("memory that is given back and stays", func(t *testing.T) {
			t.Parallel()
			c := small(f.hostile("give"))
			if f.groups.version > 0 {
				f.run(t, c, MemoryLimit)
			} else if o := f.run(t, c, Exited); o.ExitCode != 3 {
				t.Errorf("exit code %d", o.ExitCode)
			}
		})
		t.Run("files in memory", func(t *testing.T) {
			t.Parallel()
			if f.level != Full {
				t.Skip("its files are on a disk")
			}
			f.run(t, small(f.shell("head -c 200000000 /dev/zero > $TMPDIR/big; while :; do sleep 1; done")), MemoryLimit)
		})
		t.Run("a program that nobody may read", func(t *testing.T) {
			t.Parallel()
			dir := os.Getenv(unreadableVariable)
			if dir == "" {
				t.Skip("this user can make no file of another user's")
			}
			c := f.hostile("eat")
			c.Limits.Memory = 200 << 20
			c.Folders[0].Host = dir
			f.run(t, c, MemoryLimit)
		})
	})
}

func TestCommandThatIgnoresSignalsIsKilledWithItsDaemons(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		mark := newMark(t)
		door := newDoor(t)
		c := door.through(f.hostile("daemon", mark))
		c.Limits.Wall, c.Limits.Grace = 2*time.Second, 10*time.Millisecond
		f.run(t, c, TimeLimit)
		if left := processes(t, mark); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
	})
}

func TestGraceLetsACommandFinish(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		door := newDoor(t)
		c := door.through(f.hostile("finish")) // which knocks when it is ready for SIGTERM
		c.Out, c.Limits.Grace = t.TempDir(), 5*time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-door.arrivals
			cancel()
		}()
		o, err := f.Run(ctx, c)
		if o.Verdict != Canceled || !fault.Is(err, fault.Canceled) || len(o.Out.Files) != 1 {
			t.Errorf("%s, %v, out %+v", o.Verdict, err, o.Out)
		}
	})
}

func TestCanceledCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		mark := newMark(t)
		door := newDoor(t)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-door.arrivals
			cancel()
		}()
		o, err := f.Run(ctx, door.through(f.hostile("daemon", mark)))
		if o.Verdict != Canceled || !fault.Is(err, fault.Canceled) {
			t.Errorf("%s, %v", o.Verdict, err)
		}
		if left := processes(t, mark); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
		cancel()
		if o, err := f.Run(ctx, f.shell("true")); o.Verdict != Canceled || !fault.Is(err, fault.Canceled) {
			t.Errorf("with a context that has ended: %s, %v", o.Verdict, err)
		}
	})
}

func TestCommandsDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, f fixture) {
		door := newDoor(t)
		ended := make(chan Outcome, 1)
		go func() {
			c := door.through(f.hostile("knock", "the first"))
			c.Limits.Memory = 300 << 20
			o, err := f.Run(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			ended <- o
		}()
		conn := door.wait(t)
		// The second looks for the first one's files, and kills everything that it may.
		c := f.shell(`ls -A /tmp /work "$ROLLOUT_WORK"/../../../*/scratch 2>/dev/null; kill -KILL -1; echo alive`)
		o, err := f.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(o.Stdout.Kept), "tool") {
			t.Errorf("the second command saw %s", o.Stdout.Kept)
		}
		conn.Close()
		if o := <-ended; o.Verdict != Exited || o.ExitCode != 0 {
			t.Errorf("the first command ended with %s %d %s: %s", o.Verdict, o.ExitCode, o.Signal, o.Stderr.Kept)
		}
	})
}
