package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// disk is a small file system of a test's own.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk makes one of that size, in memory.
func newDisk(t *testing.T, size string) disk {
	t.Helper()
	return newDiskAt(t, t.TempDir(), size)
}

// newDiskAt makes one whose files appear in the folder. Only root may, on
// Linux.
func newDiskAt(t *testing.T, dir, size string) disk {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("a file system of its own needs Linux and root")
	}
	d := disk{t, dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "rollout-e2e", d.dir).CombinedOutput(); err != nil {
		t.Skipf("this machine mounts nothing for us: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.dir, err)
		}
	})
	return d
}

func (d disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves no room at all.
func (d disk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.ballast(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	for _, piece := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, piece))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("the disk does not get full: %v", err)
	}
}

// free gives the room back.
func (d disk) free() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

// fullIsTold is what a full disk makes the installation say.
func (i *testInstallation) fullIsTold() bool {
	return i.logged("is full", "free space") || i.logged("no space left", "free some space")
}

// A disk that gets full amid a run, while heartbeats, claims, results and the
// run's files are written: workers fence themselves and come back, and once
// there is room the run goes on to the undisturbed end. It is told, but not
// every second.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(320))
	want := undisturbed(t, file)
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, "16m")
			s := serveSlowly(t, 30*time.Millisecond)
			i := installIn(t, d.dir, s.url, workers, smallBites)
			id := i.submit(file)
			for kept, round := uint64(0), 0; round < 2; round++ {
				eventually(t, "a quarter more is answered", func() bool {
					r, ok := i.show(id)
					enough := ok && r.Items.Done >= kept+want.summary.Completed/4
					if enough {
						kept = r.Items.Done
					}
					return enough
				})
				d.fill()
				eventually(t, "no worker can say any more that it lives", func() bool { return len(i.living()) == 0 })
				d.free()
			}
			i.ends(id)
			wantSame(t, i.outcome(id), want)
			if i.times("worker_fenced") == 0 || i.times("worker starts anew") == 0 {
				t.Error("no worker fenced itself and came back")
			}
			if !i.fullIsTold() {
				t.Error("nobody says that the disk is full, and what to do")
			}
			// Full for a second or two each time: every complaint is told about
			// once, by each process.
			if n := i.times("free some space") + i.times("free space"); n > 2*15*(workers+1) {
				t.Errorf("it is told %d times", n)
			}
		})
	}
}

// times is how often the installation's processes wrote a line with the text.
func (i *testInstallation) times(text string) int {
	i.t.Helper()
	return strings.Count(i.log+i.up.stderrText(), text)
}

// What needs room and finds none says so: a submit and a start fail, with what
// to do; an upload that was there before is planned and answered as soon as
// there is room, by an `up` that goes on.
func TestAFullDiskFromTheStart(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	d := newDisk(t, "16m")
	s := serve(t)
	i := installIn(t, d.dir, s.url, 1, smallBites)
	i.up.crash()
	id := i.submit(file)
	d.fill()
	do(t, 1, "submit", "--dir", i.dir, write(t, filepath.Join(t.TempDir(), "more.jsonl"), simple(2000))).wantStderr("free some space")
	i.start()
	eventually(t, "the full disk is told", i.fullIsTold)
	if o, ok := i.show(id); ok && o.Phase.Ended() {
		t.Errorf("the run is %s on a full disk", o.Phase)
	}
	d.free()
	i.ends(id)
	wantSame(t, i.outcome(id), want)

	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	d.fill()
	again := launch(t, rollout, "up", "--dir", i.dir, "--engine", s.url, "--listen", "off")
	again.wantExit(1)
	again.wantStderr("full", "free")
}

// remount makes the disk read-only ("ro") or writable again ("rw"). While a
// file is being written the kernel refuses the former: it is tried again.
func (d disk) remount(how string) {
	d.t.Helper()
	eventually(d.t, "the disk is remounted "+how, func() bool {
		var flags uintptr = syscall.MS_REMOUNT
		if how == "ro" {
			flags |= syscall.MS_RDONLY
		}
		err := syscall.Mount("", d.dir, "", flags, "")
		if err != nil && !errors.Is(err, syscall.EBUSY) {
			d.t.Fatal(err)
		}
		return err == nil
	})
}

func (i *testInstallation) readOnlyIsTold() bool {
	return i.logged("read-only file system", "mounted read-only")
}

// A bucket that gets read-only amid a run: nothing is lost, it is told, and
// the run goes on once it is writable again.
func TestAReadOnlyBucket(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(320))
	want := undisturbed(t, file)
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := newDiskAt(t, filepath.Join(dir, "bucket"), "16m")
			s := serveSlowly(t, 150*time.Millisecond)
			i := installIn(t, dir, s.url, workers, smallBites)
			id := i.submit(file)
			eventually(t, "it is planned", func() bool { return s.requests() > 0 })
			d.remount("ro") // before the run's files are begun: the kernel refuses it after that
			eventually(t, "it is told", i.readOnlyIsTold)
			do(t, 1, "submit", "--dir", i.dir, write(t, filepath.Join(t.TempDir(), "more.jsonl"), simple(20))).wantStderr("mounted read-only")
			d.remount("rw")
			eventually(t, "half is answered", func() bool {
				r, ok := i.show(id)
				return ok && r.Items.Done >= uint64(want.summary.Completed)/2
			})

			i.up.crash()
			d.remount("ro")
			i.start()
			i.log = "" // of the one before
			eventually(t, "it is told again", i.readOnlyIsTold)
			d.remount("rw")
			i.ends(id)
			wantSame(t, i.outcome(id), want)
		})
	}
}

// A state that is read-only keeps `up` from starting, and says so.
func TestAReadOnlyState(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, simple(20))
	want := undisturbed(t, file)
	d := newDisk(t, "16m")
	s := serve(t)
	i := installIn(t, d.dir, s.url, 0, smallBites)
	i.up.crash()
	id := i.submit(file)
	d.remount("ro")
	for _, args := range [][]string{{"up", "--engine", s.url, "--listen", "off"}, {"submit", file}, {"pause", string(id)}} {
		do(t, 1, append(args, "--dir", i.dir)...).wantStderr("read-only", i.dir)
	}
	launch(t, gpuworker, "--dir", i.dir, "--engine", s.url).wantExit(1)
	d.remount("rw")
	i.start()
	i.ends(id)
	wantSame(t, i.outcome(id), want)
}
