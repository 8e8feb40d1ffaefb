package bucket

import (
	"testing"
	"time"

	"rollout/shared/blob"
)

func TestReadyAt(t *testing.T) {
	t.Parallel()
	const (
		quiet        = time.Second
		emptyRecheck = 10 * time.Second
	)
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name           string
		size           int64
		modified, seen time.Time
		wrote          time.Time
		complete, grew bool
		want           time.Time
		readyWhenSeen  bool
	}{
		{name: "just written", size: 5, modified: at(0), seen: at(0), want: at(1)},
		{name: "seen after its last write", size: 5, modified: at(0), seen: at(0.7), want: at(1)},
		{
			name: "written long ago and moved here", size: 5,
			modified: at(-3600), seen: at(0), want: at(-3599), readyWhenSeen: true,
		},
		{name: "written a second ago", size: 5, modified: at(-1), seen: at(0), want: at(0), readyWhenSeen: true},
		{name: "renamed into place", size: 5, modified: at(0), seen: at(0), complete: true, want: at(0), readyWhenSeen: true},
		{name: "write reported after the file time", size: 5, modified: at(0), seen: at(0), wrote: at(0.4), want: at(1.4)},
		{name: "an old time set after writing", size: 5, modified: at(-3600), seen: at(0), wrote: at(0.4), want: at(1.4)},
		{name: "a time in the future", size: 5, modified: at(86400), seen: at(0), want: at(1)},
		{name: "changed since, with an old time", size: 5, modified: at(-3600), seen: at(0), grew: true, want: at(1)},
		{name: "empty", size: 0, modified: at(0), seen: at(0), want: at(10)},
		{name: "empty and renamed into place", size: 0, modified: at(0), seen: at(0), complete: true, want: at(10)},
		{name: "empty for long", size: 0, modified: at(-60), seen: at(0), want: at(-50), readyWhenSeen: true},
		{name: "empty with a time in the future", size: 0, modified: at(86400), seen: at(0), want: at(10)},
	} {
		info := blob.Info{Size: c.size, ModTime: c.modified}
		s := sighting{info: info, seen: c.seen, wrote: c.wrote, complete: c.complete, grew: c.grew}
		got := s.readyAt(quiet, emptyRecheck)
		if !got.Equal(c.want) {
			t.Errorf("%s: ready at %s, want %s", c.name, got, c.want)
		}
		if ready := !got.After(c.seen); ready != c.readyWhenSeen {
			t.Errorf("%s: ready when first seen: %v, want %v", c.name, ready, c.readyWhenSeen)
		}
	}
}

func TestEmptyFileWaitsAtLeastQuietTime(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	s := sighting{info: blob.Info{ModTime: noon}, seen: noon}
	if got := s.readyAt(time.Minute, time.Second); !got.Equal(noon.Add(time.Minute)) {
		t.Errorf("ready at %s, want a minute after noon", got)
	}
}

func TestAppendedFileWaitsLongerEachTime(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for appended, want := range []time.Duration{time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second} {
		s := sighting{info: blob.Info{Size: 5, ModTime: noon}, seen: noon, grew: true, appended: appended}
		if got := s.readyAt(time.Second, time.Minute).Sub(noon); got != want {
			t.Errorf("after %d announced beginnings: ready after %s, want %s", appended, got, want)
		}
	}
	if got := (sighting{appended: 1000}).quietFor(time.Second); got != 10*time.Minute {
		t.Errorf("at most %s, want 10 minutes", got)
	}
	if got := (sighting{appended: 1}).quietFor(time.Hour); got != time.Hour {
		t.Errorf("with a settle time of an hour: %s", got)
	}
}
