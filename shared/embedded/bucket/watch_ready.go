package bucket

import (
	"time"

	"rollout/shared/blob"
)

// sighting is what the watcher knows of one version of a file.
type sighting struct {
	info blob.Info
	// seen is when this version was first seen.
	seen time.Time
	// wrote is when a write to the file was last reported; zero if never.
	wrote time.Time
	// whole: the file was written under a hidden name and renamed, so nobody
	// is still writing to it.
	whole bool
}

// readyAt returns when the version may be announced if nothing happens to the
// file until then.
//
// A whole file is ready at once, and so is one that was last changed long ago
// (someone moved it here). Any other must be quiet for a while. An empty file
// is given longer: some tools make it first and fill it afterwards.
func (s sighting) readyAt(quiet, emptyRecheck time.Duration) time.Time {
	if s.whole && s.info.Size > 0 {
		return s.seen
	}
	changed := s.info.ModTime
	if changed.After(s.seen) { // the file's clock is ahead of ours
		changed = s.seen
	}
	if s.wrote.After(changed) {
		changed = s.wrote
	}
	if s.info.Size == 0 {
		return changed.Add(max(quiet, emptyRecheck))
	}
	return changed.Add(quiet)
}
