package plan

import (
	"context"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// pin returns the version of an object of which nothing is planned yet: the given one or,
// if that is gone, the one that is there now, provided that it is known to be the run's. A
// missing object is NotFound, and an unknown one is Corrupt with the class input_changed.
func (p *Planner) pin(ctx context.Context, run identity.RunID, key, version string) (string, error) {
	r, err := input.OpenPinned(ctx, p.Blobs, key, blob.GetOptions{Version: version, Length: 1})
	if err == nil {
		return version, r.Close()
	}
	if fault.ClassOf(err) != fault.InputChanged {
		return "", err
	}
	info, statErr := p.Blobs.Stat(ctx, key, "")
	switch {
	case statErr != nil:
		return "", statErr
	case input.IsOwn(key):
		return info.Version, nil
	case p.opts.Bucket == "":
		return "", err
	}
	var found record.FoundInput
	_, _, loadErr := host.Load(ctx, p.Docs, record.FoundKey(identity.UploadRun(p.opts.Bucket, key, info.Version)), &found)
	if loadErr != nil {
		return "", loadErr
	}
	if found.Run != run {
		return "", err
	}
	return info.Version, nil
}

// pinAgain returns the version of a source of the plan whose pinned version is gone, and
// records it in the plan: the digests of what is planned decide, and before there are any,
// what submit found out.
func (p *Planner) pinAgain(ctx context.Context, m record.Manifest, source int) (record.Ranges, error) {
	var doc record.Plan
	if _, _, err := host.Load(ctx, p.Docs, record.PlanKey(m.Run), &doc); err != nil {
		return record.Ranges{}, err
	}
	version, known, err := p.inputs.PlannedVersion(ctx, m, doc, source)
	if err != nil {
		return record.Ranges{}, err
	}
	src, err := p.inputs.Source(ctx, m.Run, doc, source)
	if err == nil && !known {
		version, err = p.pin(ctx, m.Run, src.Key, src.Version)
	}
	if err != nil {
		return record.Ranges{}, err
	}
	src.Version = version
	if source >= len(doc.Ranges) { // appended: any version of it is right; in a part, which never changes
		p.inputs.Remember(m.Run, doc, source, version)
		return src, nil
	}
	p.Log.InfoContext(ctx, "the input was moved, and is what was planned", observe.KeyRun, m.Run, "key", src.Key)
	_, err = host.Update(ctx, p.Docs, record.PlanKey(m.Run), func(cur record.Plan, _ bool) (record.Plan, bool, error) {
		changed := cur.Ranges[source].Version != version
		cur.Ranges[source].Version = version
		return cur, changed, nil
	})
	return src, err
}
