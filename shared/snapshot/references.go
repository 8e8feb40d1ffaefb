package snapshot

import (
	"context"
	"slices"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// content is the document content/<id>: the saves that need the object of that content, and the
// runs that need it as their agent's artifact. Every process that saves or prunes snapshots, or
// submits or expires such runs, writes it.
//
// An object is deleted only if the document says so: when no save needs it, Deleting is
// set by compare-and-swap to the version that may be deleted. A process that then saves
// the same content first deletes that version. A late deletion therefore finds another
// version and changes nothing.
type content struct {
	Schema int         `json:"schema"`
	Needs  []reference `json:"needs,omitempty"`
	// Kept says that more runs need the object than the document counts: then it stays.
	Kept     bool   `json:"kept,omitempty"`
	Deleting string `json:"deleting,omitempty"`
}

// reference is one save that needs the content.
type reference struct {
	Run  identity.RunID `json:"run"`
	Save string         `json:"save"`
	At   time.Time      `json:"at"`
}

// maxNeeds bounds the references in the document, and so its size. The object of more runs stays for
// good.
const maxNeeds = 2000

// KeepForRun keeps the object of a content, which need not exist yet, for a run, until ReleaseOfRun.
// Call it before the object is looked for or made: a deletion that was decided before is then over.
// Repeating it changes nothing.
func (s Store) KeepForRun(ctx context.Context, content identity.ContentID, run identity.RunID) error {
	err := s.addReference(ctx, content.String(), reference{Run: run, Save: saveOfRun(run), At: s.Clock.Now().UTC()})
	return fault.Wrap(err, "keep the object %s for run %s", content, run)
}

// ReleaseOfRun deletes the object of a content if nothing but the run needed it. An object that was
// never kept stays. Repeating it changes nothing.
func (s Store) ReleaseOfRun(ctx context.Context, content identity.ContentID, run identity.RunID) error {
	return fault.Wrap(s.removeReference(ctx, content.String(), saveOfRun(run)), "release the object %s of run %s",
		content, run)
}

// saveOfRun stands for the save in the reference of a run that needs an object which is in no
// snapshot of its.
func saveOfRun(run identity.RunID) string { return "run/" + string(run) }

// addReference adds a save to those that need the content. It first completes a
// deletion that was decided before.
func (s Store) addReference(ctx context.Context, id string, n reference) error {
	_, err := host.Update(ctx, s.Docs, contentKey(id), func(c content, _ bool) (content, bool, error) {
		if c.Deleting != "" {
			if err := s.remove(ctx, id, c.Deleting); err != nil {
				return c, false, err
			}
		}
		if slices.ContainsFunc(c.Needs, func(o reference) bool { return o.Save == n.Save }) {
			return c, false, nil
		}
		if len(c.Needs) >= maxNeeds && n.Save == saveOfRun(n.Run) {
			kept := c
			kept.Kept = true
			return kept, !c.Kept, nil
		}
		if len(c.Needs) >= maxNeeds {
			return c, false, &fault.Error{Kind: fault.Exhausted, Remedy: "prune snapshots, or wait until older runs expire",
				Err: fault.New(fault.Exhausted, "%d snapshots and runs have this content", len(c.Needs))}
		}
		return content{Schema: record.Schema, Needs: append(slices.Clone(c.Needs), n), Kept: c.Kept}, true, nil
	})
	return err
}

// needs reports whether a save is among those that need the content.
func (s Store) needs(ctx context.Context, id, save string) (bool, error) {
	var c content
	_, _, err := host.Load(ctx, s.Docs, contentKey(id), &c)
	return slices.ContainsFunc(c.Needs, func(n reference) bool { return n.Save == save }), err
}

// removeReference removes a save from those that need the content. It deletes the object
// after the last one.
func (s Store) removeReference(ctx context.Context, id, save string) error {
	return s.drop(ctx, id, func(n reference) bool { return n.Save == save })
}

// drop removes the selected references, and deletes the object if none is left.
func (s Store) drop(ctx context.Context, id string, which func(reference) bool) error {
	c, err := host.Update(ctx, s.Docs, contentKey(id), func(c content, found bool) (content, bool, error) {
		needs := slices.DeleteFunc(slices.Clone(c.Needs), which)
		if !found || c.Deleting != "" || (c.Kept || len(needs) > 0) && len(needs) == len(c.Needs) {
			return c, false, nil
		}
		next := content{Schema: record.Schema, Needs: needs, Kept: c.Kept}
		if len(needs) == 0 && !c.Kept {
			version, err := s.version(ctx, id)
			if err != nil {
				return c, false, err
			}
			next.Deleting = version
		}
		return next, true, nil
	})
	if err != nil || c.Deleting == "" {
		return err
	}
	if err := s.remove(ctx, id, c.Deleting); err != nil {
		return err
	}
	var now content
	rev, found, err := host.Load(ctx, s.Docs, contentKey(id), &now)
	if err != nil || !found || now.Deleting != c.Deleting {
		return err // another process did it, or saves the content again
	}
	err = s.Docs.Delete(ctx, contentKey(id), rev)
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// absent stands for the version of an object that does not exist.
const absent = "absent"

// version returns the present version of the object with that content, or absent.
func (s Store) version(ctx context.Context, id string) (string, error) {
	c, _ := identity.ParseContentID(id)
	info, err := s.Blobs.Stat(ctx, identity.ContentKey(c), "")
	if fault.Is(err, fault.NotFound) {
		return absent, nil
	}
	return info.Version, err
}

// remove deletes that version of the object. It succeeds if the version is already gone
// or replaced.
func (s Store) remove(ctx context.Context, id, version string) error {
	if version == absent {
		return nil
	}
	c, _ := identity.ParseContentID(id)
	err := s.Blobs.Delete(ctx, identity.ContentKey(c), version)
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}
