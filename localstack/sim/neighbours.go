package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"rollout/functions/submit"
	"rollout/gpuworker/engine"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/share"
	"rollout/shared/host"
	"rollout/shared/record"
)

// neighbour is a further run that shares the pool of the run under test: with a weight of
// its own, from a drawn time on, until a user stops it or it is done.
type neighbour struct {
	key      string
	id       identity.RunID
	lines    int
	weight   float64
	deadline time.Duration // 0: none
	opens    time.Duration // after the begin
	pauses   bool          // a user pauses it, and resumes it
	stops    bool          // a user stops it
}

// neighbourPrompt begins the prompts of neighbours.
const neighbourPrompt = "a neighbour's"

// ofNeighbour reports whether the request is for a neighbour.
func ofNeighbour(r engine.Request) bool { return bytes.Contains(r.Body, []byte(neighbourPrompt)) }

// maxNeighbours are those of a world that has some: five runs share its pool.
const maxNeighbours = 4

// drawNeighbours draws the neighbours of a quarter of the worlds whose runs are plain
// batches.
func (w *world) drawNeighbours(certainly bool) (out []neighbour) {
	if w.poison != noPoison || w.http != nil || w.rounds > 0 || w.tickets != nil || w.judging {
		return nil
	}
	if w.rand.intN("neighbours", 4) > 0 && !certainly {
		return nil
	}
	weights := []float64{config.MinPriority, config.PriorityLow, 2, config.PriorityNormal, 8, config.PriorityHigh,
		config.MaxPriority}
	for i := range maxNeighbours {
		n := neighbour{key: fmt.Sprintf("prompts/neighbour-%d.jsonl", i), lines: 1 + w.rand.intN("neighbour lines", 80),
			weight: weights[w.rand.intN("neighbour weight", len(weights))],
			opens:  w.rand.duration("neighbour opens", 0, 25*time.Second)}
		switch w.rand.intN("neighbour fate", 6) {
		case 0:
			n.pauses = true
		case 1:
			n.stops = true
		case 2:
			n.deadline = 2 * patience // it is hurried in its last quarter, which does not come
		case 3:
			n.deadline = w.rand.duration("neighbour deadline", 5*time.Second, 30*time.Second)
		}
		out = append(out, n)
	}
	return out
}

// live submits the neighbour, does to it what a user does, and waits for its end.
func (w *world) live(ctx context.Context, n *neighbour) {
	pause(ctx, n.opens)
	if ctx.Err() != nil || !w.open(ctx, n) {
		return
	}
	user := w.api()
	switch {
	case n.pauses:
		pause(ctx, w.rand.duration("neighbour before pause", 0, 5*time.Second))
		w.tracef("user: pause %s: %v", n.id, user.Pause(ctx, n.id, "lunch"))
		pause(ctx, w.rand.duration("neighbour paused", 0, 20*time.Second))
		w.tracef("user: resume %s: %v", n.id, user.Resume(ctx, n.id, ""))
	case n.stops:
		pause(ctx, w.rand.duration("neighbour before stop", 0, 10*time.Second))
		w.tracef("user: stop %s: %v", n.id, user.Stop(ctx, n.id, "enough"))
	}
}

// open puts the neighbour's file and submits it.
func (w *world) open(ctx context.Context, n *neighbour) bool {
	var b strings.Builder
	for i := range n.lines {
		fmt.Fprintf(&b, "{\"id\":\"n-%d\",\"prompt\":\"%s prompt %d of %s\"}\n", i, neighbourPrompt, i, n.key)
	}
	info, err := w.bucket.Put(ctx, n.key, strings.NewReader(b.String()), blob.PutOptions{})
	if err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
		return false
	}
	cfg := config.DefaultRun()
	priority := config.Priority(n.weight)
	cfg.Scheduling.Priority, cfg.Limits.Deadline = &priority, config.Duration(n.deadline)
	cfg.Shard.Items, cfg.Limits.Grace = 1+w.rand.intN("neighbour shard items", 24), config.Duration(grace)
	m := record.Manifest{Name: "neighbour", Inputs: []record.Input{{Key: n.key, Version: info.Version, Size: info.Size}}}
	m.Run = identity.UploadRun("sim", n.key, info.Version)
	sub := submit.New(w.ports(w.start(ctx, "submitter of "+n.key, 0)),
		submit.Options{Deployment: w.deploy, Kinds: w.kinds()})
	for ctx.Err() == nil {
		if err := sub.Create(ctx, m, cfg); err == nil {
			n.id = m.Run
			return true
		}
	}
	return false
}

// liveAll has all neighbours live, and returns when each has ended.
func (w *world) liveAll(ctx context.Context) {
	var all sync.WaitGroup
	for i := range w.neighbours {
		all.Go(func() { w.live(ctx, &w.neighbours[i]) })
	}
	all.Wait()
	for since := time.Now(); ctx.Err() == nil; pause(ctx, 250*time.Millisecond) {
		open := w.openNeighbours(ctx)
		switch {
		case len(open) == 0:
			return
		case time.Since(w.startedAt) > faultsFor+25*time.Second:
			w.faultsEnded.Store(true)
		}
		if time.Since(since) > patience {
			w.t.Errorf("seed %d: neighbours starve: %v", w.seed, open)
			return
		}
	}
}

// openNeighbours returns the neighbours that have not ended.
func (w *world) openNeighbours(ctx context.Context) (open []identity.RunID) {
	for _, n := range w.neighbours {
		if st, found := w.loadState(ctx, n.id); n.id != "" && (!found || !st.Phase.Ended()) {
			open = append(open, n.id)
		}
	}
	return open
}

// loadState reads the state of a run that is not under test, without faults.
func (w *world) loadState(ctx context.Context, id identity.RunID) (s run.State, found bool) {
	_, found, err := host.Load(ctx, w.docs, record.CoordinatorKey(id), &s)
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
	}
	return s, found
}

// checkNeighbours checks that each item of each neighbour is in exactly one of its files, in
// order (I1, I4), that only a stop or a deadline left items without an answer, and that no
// run is listed as open in the pool once all have ended.
func (w *world) checkNeighbours(ctx context.Context) {
	if len(w.neighbours) == 0 {
		return
	}
	for _, n := range w.neighbours {
		if n.id != "" {
			w.checkNeighbour(ctx, n)
		}
	}
	var d share.Doc
	if _, _, err := host.Load(ctx, w.docs, record.ShareKey("default"), &d); err != nil || len(d.Runs) > 0 {
		w.audit.breakf("after all have ended, the pool lists the runs %+v, %v", d.Runs, err)
	}
}

func (w *world) checkNeighbour(ctx context.Context, n neighbour) {
	st, _ := w.loadState(ctx, n.id)
	out := split(w.object(ctx, record.OutputKey(n.id, record.CompletionsFile)))
	errs := split(w.object(ctx, record.OutputKey(n.id, record.ErrorsFile)))
	if len(out)+len(errs) != n.lines {
		w.audit.breakf("I1: neighbour %s has %d answers and %d errors for %d items", n.id, len(out), len(errs), n.lines)
	}
	seen := map[string]bool{}
	for _, rows := range [][][]byte{out, errs} {
		last := -1
		for _, row := range rows {
			var r struct {
				ID string `json:"id"`
			}
			number := -1
			if err := json.Unmarshal(row, &r); err == nil {
				_, _ = fmt.Sscanf(r.ID, "n-%d", &number) // otherwise it is not in order
			}
			if number <= last || seen[r.ID] {
				w.audit.breakf("I1, I4: neighbour %s has the row %s after item %d", n.id, row, last)
			}
			last, seen[r.ID] = number, true
		}
	}
	if mayEnd := n.stops || n.deadline > 0; len(errs) > 0 && !mayEnd || st.Phase != run.Completed && !mayEnd {
		w.audit.breakf("neighbour %s is %s, and %d items have no answer", n.id, st.Phase, len(errs))
	}
}
