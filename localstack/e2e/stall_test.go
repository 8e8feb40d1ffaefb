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
	"rollout/localstack/scenarios"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/installation"
)

// A worker process is stopped for longer than the failure timeout and then
// continued. It fences itself and starts again under another name, and none of
// its later writes is accepted (I11).
func TestStalledWorkerFencesItself(t *testing.T) {
	t.Parallel()
	file := promptsFile(t, scenarios.MixedPrompts(160))
	want := undisturbed(t, file)
	t.Run("continued after its run has ended", func(t *testing.T) {
		t.Parallel()
		retryStall(t, func() bool {
			i, w, ok := installWithStalledWorker(t, file)
			if !ok {
				return false
			}
			id := w.Holds[0].Run
			i.awaitEnd(id)
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
	t.Run("continued while other workers take over its shards", func(t *testing.T) {
		t.Parallel()
		retryStall(t, func() bool {
			i, w, ok := installWithStalledWorker(t, file)
			if !ok {
				return false
			}
			before := i.shards() // with what it committed after its last heartbeat
			continued := i.continueStalled(w)
			i.awaitEnd(w.Holds[0].Run)
			after := i.shards()
			for _, h := range w.Holds {
				if d := after[h.Shard]; d.Worker == w.Worker && before[h.Shard].State != shard.Done {
					t.Errorf("shard %d was committed by the stalled worker after it was judged dead: %+v", h.Shard, d)
				}
			}
			wantSame(t, i.outcome(w.Holds[0].Run), want)
			return continued
		})
	})
}

// retryStall repeats an attempt until its stopped process was continued. An
// attempt fails if the stopped process holds the store's lock, for which it is
// killed, or if the run ends before a worker is stopped.
func retryStall(t *testing.T, attempt func() bool) {
	t.Helper()
	for range 5 {
		if attempt() {
			return
		}
	}
	t.Error("no stopped process was continued")
}

// installWithStalledWorker starts a run with two worker processes, stops one
// that holds shards, and waits until it is judged dead. It returns the worker
// as of its last heartbeat. ok is false if the run ended first.
func installWithStalledWorker(t *testing.T, file string) (i *testInstallation, stalled status.WorkerStatus, ok bool) {
	t.Helper()
	i = install(t, serveSlowly(t, 150*time.Millisecond).url, 2, smallShards)
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
		case errors.Is(err, syscall.ESRCH): // killed for the lock, see below
			return false
		case err != nil:
			t.Fatal(err)
		}
		if i.keepsBeating(other) && !i.isLockedBy(w.PID) {
			return true
		}
		// It was stopped during a commit and holds the store's lock. No process
		// can go on until it is killed for that. Try at another moment.
		if err := syscall.Kill(w.PID, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		return false
	})
	if over {
		return i, stalled, false
	}
	eventually(t, "the stopped worker is judged dead", func() bool { return i.logged("worker_failed", stalled.Worker) })
	for _, w := range i.allWorkers() {
		if w.Worker == stalled.Worker {
			stalled = w // as of its last heartbeat
		}
	}
	if len(stalled.Holds) == 0 {
		t.Fatal("the worker held no shard when it was stopped: give the run more items")
	}
	return i, stalled, true
}

// isLockedBy reports whether the process holds one of the installation's locks,
// by what Linux shows of its open files. Locks outside the installation do not
// count: that of a flock(1) around the tests is inherited by every process.
func (i *testInstallation) isLockedBy(pid int) bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		path, err := os.Readlink(f)
		if err != nil || path != i.dir && !strings.HasPrefix(path, i.dir+"/") {
			continue
		}
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(f))); err == nil &&
			bytes.Contains(b, []byte("FLOCK")) {
			return true
		}
	}
	return false
}

// twoBusy returns two alive workers that hold shards.
func (i *testInstallation) twoBusy() (a, b status.WorkerStatus, ok bool) {
	i.t.Helper()
	var busy []status.WorkerStatus
	for _, w := range i.aliveWorkers() {
		if len(w.Holds) > 0 {
			busy = append(busy, w)
		}
	}
	if len(busy) < 2 {
		return a, b, false
	}
	return busy[0], busy[1], true
}

// keepsBeating reports whether the worker renews its heartbeat twice within a
// time in which no worker fences itself. A single renewal may be a write that
// was under way when another process was stopped.
func (i *testInstallation) keepsBeating(w status.WorkerStatus) bool {
	i.t.Helper()
	last, renewed := w.HeartbeatAt, 0
	for _, now := range i.aliveWorkers() {
		if now.Worker == w.Worker {
			last = now.HeartbeatAt
		}
	}
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
		for _, now := range i.aliveWorkers() {
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

// continueStalled continues the worker's process and waits until the worker has
// fenced itself and the process has a worker of another name. It returns false
// if the process has ended.
func (i *testInstallation) continueStalled(w status.WorkerStatus) bool {
	i.t.Helper()
	gone := func() bool { return errors.Is(syscall.Kill(w.PID, 0), syscall.ESRCH) }
	if err := syscall.Kill(w.PID, syscall.SIGCONT); err != nil && !gone() {
		i.t.Fatal(err)
	}
	eventually(i.t, "the worker fences itself", func() bool { return gone() || i.logged("worker_fenced", w.Worker) })
	eventually(i.t, "its process has a worker of another name", func() bool {
		for _, now := range i.aliveWorkers() {
			if now.PID == w.PID && now.Worker != w.Worker && now.State == "ready" {
				return true
			}
		}
		return gone()
	})
	return !gone()
}

// claim is the last claim of a shard, from its document.
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
