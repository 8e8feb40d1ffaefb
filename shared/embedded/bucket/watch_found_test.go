package bucket

import (
	"testing"

	"rollout/shared/blob"
)

// An inode number that changed by itself tells of no upload. Any change to the file does,
// also if size and modification time are those of before.
func TestFoundOfANewVersion(t *testing.T) {
	t.Parallel()
	file := func(version string, changed int64, state fileState, found blob.Found) *watchedFile {
		return &watchedFile{sighting: sighting{info: blob.Info{Key: "k", Version: version}}, changed: changed, state: state,
			found: found}
	}
	now := file("2-5-9", 7, filePending, "")
	for name, c := range map[string]struct {
		old          *watchedFile
		begins, gone bool
		want         blob.Found
	}{
		"new":                              {want: blob.Written},
		"at the begin":                     {begins: true, want: blob.Kept},
		"another inode number":             {old: file("1-5-9", 7, fileAnnounced, ""), want: blob.Kept},
		"renamed over it, the same time":   {old: file("1-5-9", 6, fileAnnounced, ""), want: blob.Written},
		"written":                          {old: file("2-5-8", 6, fileAnnounced, ""), want: blob.Written},
		"removed before":                   {gone: true, want: blob.Returned},
		"removed before, still written":    {old: file("2-3-8", 6, filePending, blob.Returned), want: blob.Returned},
		"returned and announced, then new": {old: file("2-3-8", 6, fileAnnounced, blob.Returned), want: blob.Written},
	} {
		w := &watcher{begins: c.begins, gone: map[string]bool{"k": c.gone}}
		if got := w.foundOf(c.old, now); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
