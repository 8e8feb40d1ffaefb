package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/gpuworker/engine"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// keepDocuments is how long the documents of ended runs are kept, once they expire at all.
const keepDocuments = 20 * time.Second

// expire has the documents of all runs expire in a third of the worlds, after these were
// checked: while processes crash, old messages come again, the run is submitted again, and its
// user may retry it. It checks that nothing of them is left but what stays, that no file
// changes, that nothing is asked again, and that a child that came in time is whole.
func (s *scenario) expire(ctx context.Context) {
	if s.rand.intN("expire", 3) > 0 {
		return
	}
	manifest, files := s.manifest(ctx), s.versions(ctx)
	sent := s.sentShards(ctx, s.id)
	ctx, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	s.deploy.Storage.KeepDocuments = config.Duration(keepDocuments)
	s.faultsEnded.Store(false)
	child := s.lateChild(ctx)
	s.silent.Store(child == "")
	for i := range 1 + s.rand.intN("expirers", 2) {
		all.Go(func() { s.runFunctions(ctx, fmt.Sprintf("expirer%d", i)) })
	}
	all.Go(func() { s.runWorkers(ctx, "default", "late") })
	if s.hasJudges() {
		all.Go(func() { s.runWorkers(ctx, judges, "late-judge") })
	}
	all.Go(func() { s.sendSpuriousHints(ctx, manifest.Run) })
	all.Go(func() { s.sendOldWork(ctx, manifest.Run, sent) })
	all.Go(func() { s.submitAgain(ctx, manifest) })
	began := time.Now()
	created := map[identity.RunID]time.Time{}
	for left := "runs"; left != ""; left = s.leftOfRuns(ctx) {
		s.noteCreated(ctx, created)
		s.endPaused(ctx, child)
		if time.Since(began) > faultsFor {
			s.faultsEnded.Store(true)
		}
		if time.Since(began) > patience {
			s.audit.breakf("%s is left of the runs that have expired", left)
			return
		}
		pause(ctx, 5*time.Second)
	}
	pause(ctx, 2*record.ManifestTrust) // old messages come also then
	s.checkExpired(ctx, manifest, files, child, created)
}

// endPaused is the user who stops the late child if it has paused: its parent expires after
// it.
func (s *scenario) endPaused(ctx context.Context, child identity.RunID) {
	if child == "" {
		return
	}
	if st, _ := s.state(ctx, child); isPaused(st.Phase) {
		s.tracef("user: stop %s, which is %s: %v", child, st.Phase, s.api().Stop(ctx, child, ""))
	}
}

// noteCreated notes when the runs that exist were created.
func (s *scenario) noteCreated(ctx context.Context, created map[identity.RunID]time.Time) {
	for d, err := range document.All(ctx, s.docs, record.ManifestPrefix) {
		if err != nil {
			s.t.Fatal(err)
		}
		var m record.Manifest
		if err := json.Unmarshal(d.Value, &m); err != nil {
			s.t.Fatal(err)
		}
		created[m.Run] = m.CreatedAt
	}
}

// versions are the versions of the objects that users have, by key.
func (s *scenario) versions(ctx context.Context) map[string]string {
	out := map[string]string{}
	for _, prefix := range []string{record.PromptsPrefix, record.RunsPrefix} {
		for after := ""; ; {
			infos, err := s.bucket.List(ctx, prefix, after, blob.MaxList)
			if err != nil {
				s.t.Fatal(err)
			}
			if len(infos) == 0 {
				break
			}
			for _, info := range infos {
				out[info.Key], after = info.Version, info.Key
			}
		}
	}
	return out
}

// lateChild asks for a child of the run when it is about to expire, in half of the worlds
// where it can have one, and returns it; "" without one. It may be refused.
func (s *scenario) lateChild(ctx context.Context) identity.RunID {
	if !s.mayRetry() || s.rand.intN("late child", 2) > 0 {
		return ""
	}
	child, err := s.api().Retry(ctx, s.id, record.Selection{Only: []string{record.SelectAll}}, nil)
	if err != nil {
		if !fault.Is(err, fault.Conflict) {
			s.audit.breakf("retry of a run that has not expired: %v", err)
		}
		return ""
	}
	s.tracef("user: retry %s late as %s", s.id, child.Run)
	s.spending.follow(child.Run)
	return child.Run
}

// sentShards returns the shards of the run that have a document: a child sends none of those
// that it keeps from its parent.
func (s *scenario) sentShards(ctx context.Context, id identity.RunID) (sent []int) {
	st, _ := s.state(ctx, id)
	for n := range st.Shards {
		if _, err := s.docs.Get(ctx, identity.ShardKey(id, n)); err == nil {
			sent = append(sent, n)
		}
	}
	return sent
}

// sendOldWork sends work messages of the run as they were sent before its end.
func (s *scenario) sendOldWork(ctx context.Context, id identity.RunID, shards []int) {
	ports := s.ports(s.start(ctx, "old-work", 0))
	for len(shards) > 0 && ctx.Err() == nil {
		pause(ctx, s.rand.duration("old work", 0, 20*time.Second))
		old := events.Work{Run: string(id), Shard: shards[s.rand.intN("old shard", len(shards))], Pool: "default"}
		if err := ports.Send(ctx, host.WorkQueue("default"), old); fault.Is(err, fault.Invalid) {
			s.t.Error(err)
		}
	}
}

// submitAgain repeats the submission of the run.
func (s *scenario) submitAgain(ctx context.Context, m record.Manifest) {
	if m.Parent != nil {
		return
	}
	ports := s.ports(s.start(ctx, "late-submitter", 0))
	sub := submit.New(ports, submit.Options{Deployment: s.deploy, Kinds: s.kinds()})
	for ctx.Err() == nil {
		pause(ctx, s.rand.duration("submit again", 0, 20*time.Second))
		_ = sub.Create(ctx, record.Manifest{Run: m.Run, Name: m.Name, Inputs: m.Inputs}, s.cfg)
	}
}

// leftOfRuns returns the key of a document of a run; "" if none is left.
func (s *scenario) leftOfRuns(ctx context.Context) string {
	for _, prefix := range []string{record.OpenRunPrefix, record.ManifestPrefix, record.EndedPrefix, "coordinator/"} {
		for d, err := range document.All(ctx, s.docs, prefix) {
			if err != nil {
				s.t.Fatal(err)
			}
			if d.Key != record.RunIndexKey {
				return d.Key
			}
		}
	}
	return ""
}

// checkExpired checks what stays when all runs have expired. created says when they were
// created: a submission that crashed between an entry by name and the manifest has left an
// entry of another time.
func (s *scenario) checkExpired(ctx context.Context, m record.Manifest, files map[string]string,
	child identity.RunID, created map[identity.RunID]time.Time) {
	expired := 0
	for d, err := range document.All(ctx, s.docs, "") {
		if err != nil {
			s.t.Fatal(err)
		}
		switch first, _, _ := strings.Cut(d.Key, "/"); first {
		case "found":
			expired++
		case "run", "open", "plan", "control", "coordinator", "shard":
			s.audit.breakf("document %s is left of a run that has expired", d.Key)
		case "named":
			var n record.NamedRun
			if err := json.Unmarshal(d.Value, &n); err != nil {
				s.t.Fatal(err)
			}
			if n.Created.Equal(created[n.Run]) && !strings.HasPrefix(d.Key, record.InputPrefix(s.inputOf(n.Run, m))) {
				s.audit.breakf("document %s is left of run %s", d.Key, n.Run)
			}
		}
	}
	var x record.RunIndex
	if _, _, err := host.Load(ctx, s.docs, record.RunIndexKey, &x); err != nil || x.Ended != 0 || x.Expired != expired {
		s.audit.breakf("the index counts %d ended and %d expired runs, and %d have expired: %v", x.Ended, x.Expired, expired,
			err)
	}
	if _, err := host.LoadManifest(ctx, s.docs, m.Run); !host.IsExpired(err) {
		s.audit.breakf("run %s has not expired: %v", m.Run, err)
	}
	now := s.versions(ctx)
	for key, version := range files {
		if now[key] != version {
			s.audit.breakf("I2: %s is changed when its run expires", key)
		}
	}
	maps.DeleteFunc(now, func(key, _ string) bool { return files[key] != "" })
	for key := range now {
		if child == "" || !strings.HasPrefix(key, record.OutputKey(child, "")) {
			s.audit.breakf("%s is written although all runs have expired", key)
		}
	}
	if child != "" {
		s.checkLateChild(ctx, child)
	}
}

// inputOf returns the only input of the run, or that of a neighbour; "" for others.
func (s *scenario) inputOf(id identity.RunID, m record.Manifest) string {
	if id == s.planOf && len(m.Inputs) == 1 {
		return m.Inputs[0].Key
	}
	for _, n := range s.neighbours {
		if n.id == id {
			return n.key
		}
	}
	return ""
}

// checkLateChild checks that a child that was asked for when its parent was about to expire was
// refused, or has a row for each item of its parent (I1).
func (s *scenario) checkLateChild(ctx context.Context, child identity.RunID) {
	var x *host.ExpiredError
	_, err := host.LoadManifest(ctx, s.docs, child)
	if !errors.As(err, &x) {
		return // its event came when the parent had expired
	}
	var sum, parent record.Summary
	s.decode(s.object(ctx, record.OutputKey(child, record.SummaryFile)), &sum)
	if sum.Reason == "refused" {
		return
	}
	s.decode(s.object(ctx, record.OutputKey(s.id, record.SummaryFile)), &parent)
	out := split(s.object(ctx, record.OutputKey(child, record.CompletionsFile)))
	failed := split(s.object(ctx, record.OutputKey(child, record.ErrorsFile)))
	mayFail := run.Reason(sum.Reason) == run.ReasonFailFast || run.Reason(sum.Reason) == run.ReasonWorkerLost
	if sum.Items != parent.Items || uint64(len(out)+len(failed)) != sum.Items ||
		run.Phase(sum.Phase) == run.Failed && !mayFail {
		s.audit.breakf("I1: the late child has ended as %s with %d answers and %d errors for %d of %d items", sum.Phase,
			len(out), len(failed), sum.Items, parent.Items)
	}
}

// checkSilent checks that the engine is not asked once all runs have ended for good.
func (w *world) checkSilent(r engine.Request) {
	if w.silent.Load() && !strings.Contains(string(r.Body), smallQuestion) {
		w.audit.mu.Lock()
		defer w.audit.mu.Unlock()
		w.audit.breakf("the engine is asked again for a run that has expired: %s", r.Body)
	}
}
