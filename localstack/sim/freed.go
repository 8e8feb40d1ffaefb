package sim

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"time"

	"rollout/functions/reclaim"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// keptBlobs is the bucket of all processes. It keeps a copy of what is deleted, for the checks
// that need the results of shards, and checks that only work files of ended runs are deleted.
type keptBlobs struct {
	*memory.Bucket
	world *world
	freed *memory.Bucket
}

// Delete removes an object and keeps a copy.
func (k keptBlobs) Delete(ctx context.Context, key, version string) error {
	rest, isWork := strings.CutPrefix(key, record.WorkPrefix)
	if name, _, ok := strings.Cut(rest, "/"); isWork && ok {
		id := identity.RunID(name)
		st, found := k.world.state(context.WithoutCancel(ctx), id)
		_, isWork := record.ShardOfObject(id, key)
		isWork = isWork || record.IsHashList(id, key)
		_, err := host.LoadManifest(context.WithoutCancel(ctx), k.world.docs, id)
		if !host.IsExpired(err) && (!isWork || !found || !st.Phase.Ended()) {
			k.world.audit.breakf("I2: %s is deleted while its run is %q", key, st.Phase)
		}
	}
	if r, _, err := k.Bucket.Get(ctx, key, blob.GetOptions{}); err == nil {
		b, err := io.ReadAll(r)
		if err == nil {
			_, err = k.freed.Put(ctx, key, bytes.NewReader(b), blob.PutOptions{})
		}
		if err != nil {
			return err
		}
	}
	return k.Bucket.Delete(ctx, key, version)
}

// withFreed is the bucket with the objects that were deleted.
type withFreed struct{ keptBlobs }

// Get opens an object, also one that was deleted.
func (w withFreed) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := w.Bucket.Get(ctx, key, o)
	if fault.Is(err, fault.NotFound) {
		return w.freed.Get(ctx, key, o)
	}
	return r, info, err
}

// frees reports whether the functions of the world free the work files of ended runs.
func (w *world) frees() bool { return !w.segmented }

// awaitFreed waits until no result of the ended run is left but those of other roles than the
// answer, whose rows are in no output file. What workers wrote after the end may be left.
func (s *scenario) awaitFreed(ctx context.Context) {
	for s.frees() {
		left := s.committedLeft(ctx)
		if left == "" || ctx.Err() != nil {
			return
		}
		if time.Since(s.startedAt) > 2*patience {
			s.audit.breakf("%s is not freed, although its run has ended", left)
			return
		}
		pause(ctx, time.Second)
	}
}

// committedLeft returns a committed object of a shard of the run that should be freed; "" without
// one.
func (s *scenario) committedLeft(ctx context.Context) string {
	for _, key := range s.answersLeft(ctx) {
		n, _ := record.ShardOfObject(s.id, key)
		d := s.audit.shards[identity.ShardKey(s.id, n)]
		for _, ref := range []*shard.Ref{d.Result, d.Checkpoint} {
			if ref != nil && ref.Key == key {
				return key
			}
		}
	}
	return ""
}

// answersLeft returns the results and checkpoints of the run that are not of other roles.
func (s *scenario) answersLeft(ctx context.Context) (left []string) {
	infos, err := s.bucket.List(ctx, record.ShardObjectsDir(s.id), "", blob.MaxList)
	if err != nil {
		s.t.Fatal(err)
	}
	m, index := s.manifest(ctx), input.NewIndex(s.bucket, s.docs)
	for _, info := range infos {
		n, ok := record.ShardOfObject(s.id, info.Key)
		role, err := index.RoleOf(ctx, m, n)
		if !ok || err != nil {
			s.t.Fatalf("seed %d: %s: %v", s.seed, info.Key, err)
		}
		if m.HasOutput(role) {
			left = append(left, info.Key)
		}
	}
	return left
}

// freeAll frees what is left of all runs, as a process does that starts, and checks that
// nothing is left that should not be: workers may have written results after the end.
func (s *scenario) freeAll(ctx context.Context) {
	if !s.frees() {
		return
	}
	f := reclaim.NewFreer(host.Ports{Blobs: s.store, Docs: s.docs, Queues: s.queues, Clock: clock.System{},
		Log: slog.New(slog.DiscardHandler)})
	if err := f.FreeAll(ctx); err != nil {
		s.audit.breakf("what is left of the runs is not freed: %v", err)
	}
	if left := s.answersLeft(ctx); len(left) > 0 {
		s.audit.breakf("%s is left of an ended run", left[0])
	}
	m, index := s.manifest(ctx), input.NewIndex(s.bucket, s.docs)
	for _, d := range s.audit.shards {
		if d.Run != s.id || d.Result == nil || len(m.Roles) == 0 {
			continue
		}
		role, err := index.RoleOf(ctx, m, d.Shard)
		if err == nil && !m.HasOutput(role) {
			_, err = s.bucket.Stat(ctx, d.Result.Key, "")
		}
		if err != nil {
			s.audit.breakf("the result of shard %d of another role, which is in no output file, is gone: %v", d.Shard, err)
		}
	}
}
