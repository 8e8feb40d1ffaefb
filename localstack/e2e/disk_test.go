package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"rollout/localstack/scenarios"
)

// disk is a small file system for one test.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk mounts a file system of the size, in memory.
func newDisk(t *testing.T, size string) disk {
	t.Helper()
	return newDiskAt(t, t.TempDir(), size)
}

// newDiskAt mounts it at the folder. It skips the test without root or Linux.
func newDiskAt(t *testing.T, dir, size string) disk {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("mounting a file system needs Linux and root")
	}
	d := disk{t, dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "rollout-e2e", d.dir)
	if out, err := mount.CombinedOutput(); err != nil {
		t.Skipf("this machine allows no mounts: %v %s", err, out)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", d.dir, err)
		}
	})
	return d
}

func (d disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill writes until the disk is full.
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
		d.t.Fatalf("the disk does not become full: %v", err)
	}
}

// free removes what fill wrote.
func (d disk) free() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

// reportsFullDisk reports whether the log names a full disk and the remedy.
func (i *testInstallation) reportsFullDisk() bool {
	return i.logged("is full", "free space") || i.logged("no space left", "free some space")
}

// The disk becomes full during a run, while heartbeats, claims, results and the
// run's files are written. Workers fence themselves and start again, and once
// there is room the run ends with the undisturbed bytes. The log reports the
// full disk at a limited rate.
func TestRunSurvivesAFullDisk(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(320))
	want := undisturbed(t, file)
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDisk(t, "16m")
			s := serveSlowly(t, 30*time.Millisecond)
			i := installIn(t, d.dir, s.url, workers, smallShards)
			id := i.submit(file)
			for kept, round := uint64(0), 0; round < 2; round++ {
				eventually(t, "another quarter is answered", func() bool {
					r, ok := i.show(id)
					enough := ok && r.Items.Done >= kept+want.Summary.Completed/4
					if enough {
						kept = r.Items.Done
					}
					return enough
				})
				d.fill()
				eventually(t, "no worker can renew its heartbeat", func() bool { return len(i.aliveWorkers()) == 0 })
				d.free()
			}
			i.awaitEnd(id)
			wantSame(t, i.outcome(id), want)
			if i.times("worker_fenced") == 0 || i.times("worker restarts under another name") == 0 {
				t.Error("no worker fenced itself and started again")
			}
			if !i.reportsFullDisk() {
				t.Error("the log does not report the full disk and the remedy")
			}
			// The disk is full for some seconds each time. Each process reports each
			// problem about once.
			if n := i.times("free some space") + i.times("free space"); n > 2*15*(workers+1) {
				t.Errorf("the full disk is reported %d times", n)
			}
		})
	}
}

// On a full disk a submit and a start fail with the remedy. An `up` that is
// running plans and answers an earlier upload as soon as there is room.
func TestFullDiskAtTheStartIsReported(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	d := newDisk(t, "16m")
	s := serve(t)
	i := installIn(t, d.dir, s.url, 1, smallShards)
	i.up.killGroup()
	id := i.submit(file)
	d.fill()
	more := write(t, filepath.Join(t.TempDir(), "more.jsonl"), simplePrompts(2000))
	do(t, 1, "submit", "--dir", i.dir, more).wantStderr("free some space")
	i.start()
	eventually(t, "the full disk is reported", i.reportsFullDisk)
	if o, ok := i.show(id); ok && o.Phase.Ended() {
		t.Errorf("the run is %s on a full disk", o.Phase)
	}
	d.free()
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)

	i.up.signal(syscall.SIGTERM)
	i.up.wantExit(0)
	d.fill()
	again := launch(t, rollout, "up", "--dir", i.dir, "--engine", s.url, "--listen", "off")
	again.wantExit(1)
	again.wantStderr("full", "free")
}

// remount makes the disk read-only ("ro") or writable ("rw"). The kernel
// refuses "ro" while a file is open for writing; remount then tries again.
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

func (i *testInstallation) reportsReadOnly() bool {
	return i.logged("read-only file system", "mounted read-only")
}

// The bucket becomes read-only during a run. The log reports it, and once the
// bucket is writable again the run ends with the undisturbed bytes.
func TestRunSurvivesAReadOnlyBucket(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(320))
	want := undisturbed(t, file)
	for name, workers := range map[string]int{"worker in up": 0, "worker processes": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := newDiskAt(t, filepath.Join(dir, "bucket"), "16m")
			s := serveSlowly(t, 150*time.Millisecond)
			i := installIn(t, dir, s.url, workers, smallShards)
			id := i.submit(file)
			eventually(t, "it is planned", func() bool { return s.requests() > 0 })
			d.remount("ro") // before the run's files are open: the kernel refuses it afterwards
			eventually(t, "the read-only bucket is reported", i.reportsReadOnly)
			more := write(t, filepath.Join(t.TempDir(), "more.jsonl"), simplePrompts(20))
			do(t, 1, "submit", "--dir", i.dir, more).wantStderr("mounted read-only")
			d.remount("rw")
			eventually(t, "half is answered", func() bool {
				r, ok := i.show(id)
				return ok && r.Items.Done >= uint64(want.Summary.Completed)/2
			})

			i.up.killGroup()
			d.remount("ro")
			i.start()
			i.log = "" // without the process before
			eventually(t, "the read-only bucket is reported again", i.reportsReadOnly)
			d.remount("rw")
			i.awaitEnd(id)
			wantSame(t, i.outcome(id), want)
		})
	}
}

func TestReadOnlyStateIsReportedAtTheStart(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, simplePrompts(20))
	want := undisturbed(t, file)
	d := newDisk(t, "16m")
	s := serve(t)
	i := installIn(t, d.dir, s.url, 0, smallShards)
	i.up.killGroup()
	id := i.submit(file)
	d.remount("ro")
	for _, args := range [][]string{
		{"up", "--engine", s.url, "--listen", "off"}, {"submit", file}, {"pause", string(id)},
	} {
		do(t, 1, append(args, "--dir", i.dir)...).wantStderr("read-only", i.dir)
	}
	launch(t, gpuworker, "--dir", i.dir, "--engine", s.url).wantExit(1)
	d.remount("rw")
	i.start()
	i.awaitEnd(id)
	wantSame(t, i.outcome(id), want)
}
