package bucket

import (
	"time"

	"rollout/shared/blob"
)

// sighting is what the watcher knows about one version of a file.
type sighting struct {
	info blob.Info
	// seen is when this version was first seen.
	seen time.Time
	// wrote is when a write to the file was last reported; zero if never.
	wrote time.Time
	// complete reports whether the file was written under a hidden name and renamed, so
	// that no program still writes to it.
	complete bool
}

// readyAt returns when the version may be announced, if the file does not change until
// then.
//
// A complete file is ready at once, and so is a file that was last changed long ago,
// because it was moved here. Any other file must not change for the time quiet. An empty
// file waits longer, because some tools create a file first and fill it later.
func (s sighting) readyAt(quiet, emptyRecheck time.Duration) time.Time {
	if s.complete && s.info.Size > 0 {
		return s.seen
	}
	changed := s.info.ModTime
	if changed.After(s.seen) { // the clock of the file system is ahead
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
