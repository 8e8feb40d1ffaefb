package trial_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rollout/gpuworker/executors/trial"
	"rollout/gpuworker/isolation"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// smallDisk returns a sandbox on a disk of so many bytes of its own. It skips the test where this
// user may mount none.
func smallDisk(t *testing.T, bytes string) (*isolation.Sandbox, string) {
	t.Helper()
	dir, err := os.MkdirTemp(folder, "disk")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755,size="+bytes); err != nil {
		t.Skipf("this user may not mount a disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s, err := isolation.Open(filepath.Join(dir, "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	if level, reason := s.Probe(t.Context()); level == isolation.Refused {
		t.Skip(reason)
	}
	return s, dir
}

// fill leaves so many bytes free of a disk, and returns the file that takes the others.
func fill(t *testing.T, disk string, leave int) string {
	t.Helper()
	var stat unix.Statfs_t
	if err := unix.Statfs(disk, &stat); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(disk, "filler")
	if err := os.WriteFile(file, bytes.Repeat([]byte{1}, int(stat.Bavail)*int(stat.Bsize)-leave), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A trial that meets a full disk gets no row. It is run once there is room, and until then the
// worker takes no work.
func TestFullDiskGivesTrialsBack(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]int{"for nothing": 0, "for all but the result": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sandbox, disk := smallDisk(t, "16m")
			f := newFixture(t, "big", &model{}, usual)
			f.config.Runner.Sandbox = sandbox
			filler := fill(t, disk, leave)
			f.begin()
			released := f.until(func(d shard.Doc) bool { return d.Attempt > 0 && d.State != shard.Running })
			if released.State == shard.Done || released.Result != nil {
				t.Fatalf("the trial has a row: %+v", released)
			}
			x := trial.New(f.config)
			if err := x.Ready(t.Context()); err != nil {
				t.Errorf("an executor that has met no full disk is not ready: %v", err)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			f.send()
			if row := f.end(); !strings.Contains(row, `"completion":"4"`) {
				t.Errorf("%s", row)
			}
		})
	}
}

func TestExecutorIsNotReadyWhileItsDiskIsFull(t *testing.T) {
	t.Parallel()
	sandbox, disk := smallDisk(t, "16m")
	f := newFixture(t, "big", &model{}, usual)
	f.config.Runner.Sandbox = sandbox
	filler := fill(t, disk, 0)
	x := trial.New(f.config)
	f.beginWith(x)
	f.until(func(d shard.Doc) bool { return d.Attempt > 0 && d.State != shard.Running })
	if err := x.Ready(t.Context()); !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), disk) {
		t.Errorf("with a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if err := x.Ready(t.Context()); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// A result that is lost on a full disk is not an agent's that left none, also at a limit.
func TestLostResultIsNotTheAgents(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"big", "big chat"} {
		sandbox, disk := smallDisk(t, "16m")
		r := newRunner(t, &model{})
		r.Sandbox = sandbox
		fill(t, disk, 64<<10)
		a := agent(name)
		a.Model.Requests = 1
		got, err := r.Run(t.Context(), a, task)
		if err != nil || got.End != trial.Infrastructure || got.Class != fault.Storage {
			t.Errorf("%s: %s %s %s, %v", name, got.End, got.Class, got.Reason, err)
		}
	}
}
