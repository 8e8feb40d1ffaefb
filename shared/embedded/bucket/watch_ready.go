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
	// grew reports whether the file had other bytes or another time when it was seen last.
	grew bool
	// rechecks counts how often a process had the version open when it was due.
	rechecks int
	// appended is how many versions of the file were announced and then grew at their end: a
	// program appends to it, and opens it each time.
	appended int
}

// Bounds of the time for which a file that grew after it was announced must not change: it
// doubles each time, so that a program that appends now and then makes few runs.
const (
	firstAppendedQuiet = 10 * time.Second
	lastAppendedQuiet  = 10 * time.Minute
)

// quietFor returns how long the file must not change, where others must not for quiet.
func (s sighting) quietFor(quiet time.Duration) time.Duration {
	if s.appended == 0 {
		return quiet
	}
	return max(quiet, min(firstAppendedQuiet<<min(s.appended-1, 10), lastAppendedQuiet))
}

// readyAt returns when the version may be announced, if the file does not change until
// then.
//
// A complete file is ready at once, and so is a file that was last changed long ago,
// because it was moved here. Any other file must not change for the time quiet, and one
// that is appended to for longer. An empty file waits longer, because some tools create a
// file first and fill it later.
func (s sighting) readyAt(quiet, emptyRecheck time.Duration) time.Time {
	if s.complete && s.info.Size > 0 {
		return s.seen
	}
	changed := s.info.ModTime
	if s.grew || changed.After(s.seen) { // its time says little, or the clock of the file system is ahead
		changed = s.seen
	}
	if s.wrote.After(changed) {
		changed = s.wrote
	}
	if s.info.Size == 0 {
		return changed.Add(max(quiet, emptyRecheck))
	}
	return changed.Add(s.quietFor(quiet))
}

// Bounds of the time between two looks at a version that is due and open for writing.
const (
	firstRecheck = 10 * time.Millisecond
	lastRecheck  = time.Second
)

// recheck returns when to look again at a version that a process has open for writing,
// although it is due. Most programs close a file as soon as it has its name.
func (s *sighting) recheck(quiet time.Duration) time.Duration {
	d := firstRecheck << min(s.rechecks, 10)
	s.rechecks++
	return min(d, max(firstRecheck, quiet), lastRecheck)
}
