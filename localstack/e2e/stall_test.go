package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/installation"
)

// A worker process that is stopped for longer than the failure timeout, and
// continued, fences itself and starts anew under another name; none of its
// later writes is accepted (I11).
func TestAStalledWorkerFencesItself(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, mixedPrompts(160))
	want := undisturbed(t, file)
	t.Run("continued when its run is over", func(t *testing.T) {
		t.Parallel()
		retryStall(t, func() bool {
			i, w, ok := installWithStalledWorker(t, file)
			if !ok {
				return false
			}
			id := w.Holds[0].Run
			i.ends(id)
			before := i.shards()
			wantSame(t, i.outcome(id), want)
			if !i.continueStalled(w) {
				return false
			}
			if after := i.shards(); !maps.Equal(before, after) {
				t.Errorf("shards after the worker was continued:\n%v\nbefore:\n%v", after, before)
			}
			wantSame(t, i.outcome(id), want)
			return true
		})
	})
	t.Run("continued while others do its work", func(t *testing.T) {
		t.Parallel()
		retryStall(t, func() bool {
			i, w, ok := installWithStalledWorker(t, file)
			if !ok {
				return false
			}
			before := i.shards() // it may have committed after its last heartbeat, before it was stopped
			continued := i.continueStalled(w)
			i.ends(w.Holds[0].Run)
			after := i.shards()
			for _, h := range w.Holds {
				if d := after[h.Shard]; d.Worker == w.Worker && before[h.Shard].State != shard.Done {
					t.Errorf("shard %d, held by the stalled worker when it was judged dead, is its after all: %+v", h.Shard, d)
				}
			}
			wantSame(t, i.outcome(w.Holds[0].Run), want)
			return continued
		})
	})
}

// retryStall repeats a story until its stopped process was continued: one that
// comes to hold the store's lock is killed before, and a run may be over before
// a worker was stopped, which are other stories.
func retryStall(t *testing.T, story func() bool) {
	t.Helper()
	for range 5 {
		if story() {
			return
		}
	}
	t.Error("no stopped process was continued")
}

// installWithStalledWorker begins a run with two worker processes, stops one
// that holds shards, and waits until it is judged dead. It returns the worker
// by its last heartbeat; not ok if the run was over before.
func installWithStalledWorker(t *testing.T, file string) (i *testInstallation, stalled status.WorkerStatus, ok bool) {
	t.Helper()
	i = install(t, serveSlowly(t, 150*time.Millisecond).url, 2, smallBites)
	id := i.submit(file)
	over := false
	eventually(t, "a worker that holds shards is stopped, and another one goes on", func() bool {
		if s, known := i.show(id); known && s.Phase.Ended() {
			over = true
			return true
		}
		w, other, ok := i.twoBusy()
		if !ok {
			return false
		}
		stalled = w
		switch err := syscall.Kill(w.PID, syscall.SIGSTOP); {
		case errors.Is(err, syscall.ESRCH): // killed for what is told below, and not yet missed
			return false
		case err != nil:
			t.Fatal(err)
		}
		if i.beatsOn(other) && !i.isLockedBy(w.PID) {
			return true
		}
		// It was stopped in the middle of a commit: with the store's lock in its
		// hands nobody goes on, until it is killed for that. Another moment will
		// do.
		if err := syscall.Kill(w.PID, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		return false
	})
	if over {
		return i, stalled, false
	}
	eventually(t, "the stopped worker is judged dead", func() bool { return i.logged("worker_failed", stalled.Worker) })
	for _, w := range i.everyWorker() {
		if w.Worker == stalled.Worker {
			stalled = w // by its last heartbeat
		}
	}
	if len(stalled.Holds) == 0 {
		t.Fatal("the stopped worker held nothing when it was stopped: give the run more items")
	}
	return i, stalled, true
}

// isLockedBy reports whether the process holds one of the installation's locks:
// Linux tells for every open file. Others, such as that of a flock(1) in which
// the tests run, are handed down to every process.
func (i *testInstallation) isLockedBy(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		path, err := os.Readlink(f)
		if err != nil || path != i.dir && !strings.HasPrefix(path, i.dir+"/") {
			continue
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(f))); err == nil && bytes.Contains(b, []byte("FLOCK")) {
			return true
		}
	}
	return false
}

// twoBusy are two living workers that hold shards.
func (i *testInstallation) twoBusy() (a, b status.WorkerStatus, ok bool) {
	i.t.Helper()
	var busy []status.WorkerStatus
	for _, w := range i.living() {
		if len(w.Holds) > 0 {
			busy = append(busy, w)
		}
	}
	if len(busy) < 2 {
		return a, b, false
	}
	return busy[0], busy[1], true
}

// beatsOn reports whether the worker's heartbeat is renewed twice from now on,
// in a time within which no worker fences itself. Once may be the end of a
// write that was under way when another process was stopped.
func (i *testInstallation) beatsOn(w status.WorkerStatus) bool {
	i.t.Helper()
	last, renewed := w.HeartbeatAt, 0
	for _, now := range i.living() {
		if now.Worker == w.Worker {
			last = now.HeartbeatAt
		}
	}
	for until := time.Now().Add(500 * time.Millisecond); time.Now().Before(until); {
		for _, now := range i.living() {
			if now.Worker == w.Worker && now.HeartbeatAt.After(last) {
				last = now.HeartbeatAt
				renewed++
			}
		}
		if renewed == 2 {
			return true
		}
	}
	return false
}

// continueStalled lets the worker go on, and waits until it has fenced itself
// and its process works under another name; false if the process is no more.
func (i *testInstallation) continueStalled(w status.WorkerStatus) bool {
	i.t.Helper()
	gone := func() bool { return errors.Is(syscall.Kill(w.PID, 0), syscall.ESRCH) }
	if err := syscall.Kill(w.PID, syscall.SIGCONT); err != nil && !gone() {
		i.t.Fatal(err)
	}
	eventually(i.t, "the worker fences itself", func() bool { return gone() || i.logged("worker_fenced", w.Worker) })
	eventually(i.t, "its process works under another name", func() bool {
		for _, now := range i.living() {
			if now.PID == w.PID && now.Worker != w.Worker && now.State == "ready" {
				return true
			}
		}
		return gone()
	})
	return !gone()
}

// claim is what a shard's document says of its last claim.
type claim struct {
	State   shard.State
	Attempt uint64
	Worker  string
	Result  string // key
}

// shards are the claims of the installation's only run, by shard.
func (i *testInstallation) shards() map[int]claim {
	i.t.Helper()
	l, closeAll, err := installation.OpenLocal(i.t.Context(), i.dir, installation.LocalOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	out := map[int]claim{}
	err = host.Each(i.t.Context(), l.Ports.Docs, "shard/", func(d shard.Doc) error {
		c := claim{State: d.State, Attempt: d.Attempt, Worker: d.Worker}
		if d.Result != nil {
			c.Result = d.Result.Key
		}
		out[d.Shard] = c
		return nil
	})
	if err != nil {
		i.t.Fatal(err)
	}
	if err := closeAll(); err != nil {
		i.t.Fatal(err)
	}
	return out
}
