package reclaim

import (
	"context"
	"slices"
	"strings"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// keptShare is which part of the bytes of the answers the lists of ids may have that are kept.
const keptShare = 20

// hashLists says which lists of hashes stay of a run.
type hashLists struct {
	all  bool // its plan is not complete
	kept []string
}

func (l hashLists) keep(key string) bool { return l.all || slices.Contains(l.kept, key) }

// idLists returns the lists by which the lines of the run are found by their ids. They are
// kept if they are small beside the answers; else the input is read to find one.
func (f *Freer) idLists(ctx context.Context, id identity.RunID) (lists hashLists, err error) {
	var p record.Plan
	if _, _, err := host.Load(ctx, f.Docs, record.PlanKey(id), &p); err != nil {
		return lists, err
	}
	if !p.Complete() || p.Inherited != nil {
		return hashLists{all: true}, nil
	}
	answers, err := f.Blobs.Stat(ctx, record.OutputKey(id, record.CompletionsFile), "")
	if err != nil {
		return lists, err
	}
	size := int64(0)
	for _, h := range p.IDs {
		key := record.HashesKey(id, h, record.HashIDs)
		info, err := f.Blobs.Stat(ctx, key, "")
		if fault.Is(err, fault.NotFound) { // freed before
			return hashLists{}, nil
		}
		if err != nil {
			return lists, err
		}
		size += info.Size
		lists.kept = append(lists.kept, key)
	}
	if size > max(answers.Size/keptShare, smallLists) {
		return hashLists{}, nil
	}
	return lists, nil
}

// smallLists are the bytes of lists of ids that are kept in any case.
const smallLists = 1 << 20

// needed reports whether an object of an ended run is read after its end: it is an object of
// the plan, or has rows that are in no output file, as the result or the checkpoint of a shard of
// a role without output.
func (f *Freer) needed(ctx context.Context, m record.Manifest, lists hashLists, key string) (bool, error) {
	n, ofShard := record.ShardOfObject(m.Run, key)
	switch {
	case record.IsHashList(m.Run, key):
		return lists.keep(key), nil
	case !ofShard:
		return !strings.HasPrefix(key, record.TrainingFilesDir(m.Run)), nil
	case len(m.Roles) == 0:
		return false, nil
	}
	role, err := f.index.RoleOf(ctx, m, n)
	if err != nil || m.HasOutput(role) {
		return false, err
	}
	var d shard.Doc
	if _, _, err := host.Load(ctx, f.Docs, identity.ShardKey(m.Run, n), &d); err != nil {
		return false, err
	}
	is := func(ref *shard.Ref) bool { return ref != nil && ref.Key == key }
	return is(d.Result) || d.Result == nil && is(d.Checkpoint), nil
}

// listsLeft reports whether an ended run has lists of hashes that are freed. It reads the plan
// only of a run that has a list.
func (f *Freer) listsLeft(ctx context.Context, id identity.RunID) (bool, error) {
	var lists *hashLists
	for _, dir := range record.PlanDirs(id) {
		for after, more := "", true; more; {
			infos, err := f.Blobs.List(ctx, dir, after, freePage)
			if err != nil {
				return false, err
			}
			for _, info := range infos {
				after = info.Key
				if !record.IsHashList(id, info.Key) {
					continue
				}
				if lists == nil {
					if lists, err = f.listsOfEnded(ctx, id); err != nil {
						return false, err
					}
				}
				if !lists.keep(info.Key) {
					return true, nil
				}
			}
			more = len(infos) == freePage
		}
	}
	return false, nil
}

// listsOfEnded returns the lists that stay of a run: all if it has not ended.
func (f *Freer) listsOfEnded(ctx context.Context, id identity.RunID) (*hashLists, error) {
	var s run.State
	if _, _, err := host.Load(ctx, f.Docs, record.CoordinatorKey(id), &s); err != nil {
		return nil, err
	}
	if !s.Phase.Ended() {
		return &hashLists{all: true}, nil
	}
	lists, err := f.idLists(ctx, id)
	return &lists, err
}
