package bucket

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// WatchOptions configure Bucket.Watch.
type WatchOptions struct {
	Clock        clock.Clock   // default: the machine's
	Quiet        time.Duration // time without writes after which a file is announced; default: Options.Settle
	EmptyRecheck time.Duration // the same for an empty file; default: 10 s
	Rescan       time.Duration // interval between scans of the whole folder; default: 5 s
	Logger       *slog.Logger  // default: discards
}

func (o WatchOptions) withDefaults(settle time.Duration) WatchOptions {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Quiet <= 0 {
		o.Quiet = settle
	}
	if o.EmptyRecheck <= 0 {
		o.EmptyRecheck = defaultEmptyRecheck
	}
	if o.Rescan <= 0 {
		o.Rescan = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Watch announces the objects under the prefix: the existing ones, then new objects and
// new versions, until ctx ends or the bucket is closed, when it closes the channel. It
// creates the folder of the prefix if it does not exist.
//
// Each Watch announces each version once; a later Watch announces it again, so that
// delivery is at least once. File notifications make it fast. Repeated scans make it
// complete, even without notifications. A file that is removed or replaced before its
// turn is not announced.
//
// A file is announced when it has not changed for a while, and no process that the system
// shows has it open for writing (see openForWriting); at once if it was written under the
// name of a partial file (.x, x.part, x.tmp) and renamed. Files with such names are not
// announced.
//
// An announcement says whether the object may be one that was announced before, under a new
// version: see blob.Found.
func (b *Bucket) Watch(ctx context.Context, prefix string, o WatchOptions) <-chan blob.Upload {
	w := &watcher{
		bucket: b, prefix: prefix, options: o.withDefaults(b.settle),
		files: make(map[string]*watchedFile), pending: make(map[string]*watchedFile),
		hidden: make(map[string]string), reported: make(map[string]string), gone: make(map[string]bool),
	}
	out := make(chan blob.Upload)
	ctx, end := context.WithCancel(ctx)
	b.watches.Go(func() {
		defer close(out)
		defer end()
		w.run(ctx, out)
	})
	go func() {
		select {
		case <-b.closed:
			end()
		case <-ctx.Done():
		}
	}()
	return out
}

// watcher is the state of one Watch; only its goroutine touches it.
type watcher struct {
	bucket  *Bucket
	prefix  string
	options WatchOptions
	notify  *fsnotify.Watcher // nil if the system has no notifications

	files   map[string]*watchedFile // every object, by key
	pending map[string]*watchedFile // those not ready yet
	queue   []string                // keys to announce, in order
	round   uint64                  // the number of the current scan
	begins  bool                    // the first scan is in progress
	gone    map[string]bool         // keys without an object that had one; bounded
	due     time.Time               // when the timer fires; zero if it is not set
	timer   *time.Timer

	hidden   map[string]string // inodes of files under hidden names, by path; bounded
	reported map[string]string // logged errors by subject, to log each once; bounded
}

// watchedFile is an object and the state of its current version.
type watchedFile struct {
	sighting
	state   fileState
	found   blob.Found
	changed int64  // see Bucket.changeTime
	round   uint64 // the last scan that found it
	end     []byte // the last bytes of an announced version
}

type fileState uint8

// States of a version, in order.
const (
	filePending   fileState = iota // may still be written
	fileQueued                     // will be announced
	fileAnnounced                  // was announced
)

// maxRemembered limits the maps that only save work or log lines.
const maxRemembered = 1024

func (w *watcher) run(ctx context.Context, out chan<- blob.Upload) {
	if err := blob.CheckPrefix(w.prefix); err != nil {
		w.report("prefix", err)
		return
	}
	var events chan fsnotify.Event
	var failures chan error
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		defer notify.Close() // its error is not useful
		w.notify, events, failures = notify, notify.Events, notify.Errors
	} else {
		w.report("notifications", err)
	}
	w.timer = time.NewTimer(w.options.Rescan) // wakeAt resets it
	defer w.timer.Stop()
	rescan := time.NewTicker(w.options.Rescan)
	defer rescan.Stop()
	if folder, err := w.bucket.enter(parentOf(w.prefix), true); err == nil {
		folder.close()
	} else {
		w.report(w.prefix, filesystem.Fault(err, "create folder"))
	}
	w.begins = true
	w.rescan(ctx)
	w.begins = false

	for {
		next, ok := w.next()
		send := out
		if !ok {
			send = nil
		}
		select {
		case <-ctx.Done():
			return
		case send <- next:
			f := w.files[next.Key]
			f.state, f.end = fileAnnounced, w.bucket.bytesBefore(next.Key, next.Size)
			w.queue = w.queue[1:]
		case event := <-events:
			w.handle(ctx, event)
		case err := <-failures: // usually an overflow, which loses events
			w.report("notifications", err)
			w.rescan(ctx)
		case <-w.timer.C:
			w.promote()
		case <-rescan.C:
			w.rescan(ctx)
		}
	}
}

// rescan scans the whole folder and forgets files that no longer exist.
func (w *watcher) rescan(ctx context.Context) {
	w.round++
	if !w.scan(ctx, w.prefix) {
		return
	}
	for key, f := range w.files {
		if f.round != w.round {
			w.forget(key)
		}
	}
}

// scan reads the objects under the prefix and subscribes to its folders. It reports
// whether it read all of them.
func (w *watcher) scan(ctx context.Context, prefix string) bool {
	err := w.bucket.walk(ctx, walkOptions{
		prefix:  prefix,
		entered: w.watchFolder,
		ignored: func(key string, err error) { w.report(key, err) },
	}, func(info blob.Info) error {
		if !blob.IsPartial(info.Key) {
			w.record(info, false)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.report(prefix, filesystem.Fault(err, "read folder"))
	}
	w.promote()
	return err == nil
}

// watchFolder subscribes to notifications about the folder. Repeating it is cheap.
func (w *watcher) watchFolder(path string) {
	if w.notify == nil {
		return
	}
	if err := w.notify.Add(filepath.Join(w.bucket.dir, path)); err != nil && !errors.Is(err, unix.ENOENT) {
		w.report("notifications", err)
	}
}

// handle examines the file that a notification names.
func (w *watcher) handle(ctx context.Context, event fsnotify.Event) {
	path, ok := strings.CutPrefix(event.Name, w.bucket.dir+"/")
	if !ok {
		return
	}
	if blob.IsPartial(path) {
		w.noteHidden(path, event)
		return
	}
	if !strings.HasPrefix(path, w.prefix) || blob.CheckKey(path) != nil {
		return // a rescan reports the reason
	}
	if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		w.noteGone(path)
	}
	info, err := w.bucket.stat(path)
	switch {
	case err == nil:
		w.record(info, event.Has(fsnotify.Write))
		w.promote()
	case errors.Is(err, unix.ENOENT):
		w.forget(path)
	case fault.Is(err, fault.NotFound) && event.Has(fsnotify.Create): // may be a folder
		w.scan(ctx, path+"/")
	default:
		w.report(path, filesystem.Fault(err, "stat"))
	}
}

// noteHidden remembers files under hidden names, to recognize them after a rename.
func (w *watcher) noteHidden(path string, event fsnotify.Event) {
	if event.Has(fsnotify.Remove) {
		delete(w.hidden, path) // its inode may be reused
		return
	}
	if info, err := w.bucket.stat(path); err == nil {
		if len(w.hidden) >= maxRemembered {
			clear(w.hidden)
		}
		w.hidden[path] = inodeOf(info)
	}
}

// takeHidden reports whether the file was seen under a hidden name, and forgets that.
func (w *watcher) takeHidden(info blob.Info) bool {
	inode := inodeOf(info)
	for path, hidden := range w.hidden {
		if hidden == inode {
			delete(w.hidden, path)
			return true
		}
	}
	return false
}

// inodeOf returns the part of the version that is the inode.
func inodeOf(info blob.Info) string {
	inode, _, _ := strings.Cut(info.Version, "-")
	return inode
}

// record updates the state of an object from its current info. wrote reports whether a
// notification said that the file was written.
func (w *watcher) record(info blob.Info, wrote bool) {
	now := w.options.Clock.Now()
	f := w.files[info.Key]
	if f == nil || f.info.Version != info.Version {
		next := &watchedFile{sighting: sighting{info: info, seen: now, complete: w.takeHidden(info)},
			changed: w.bucket.changeTime(info.Key)}
		if f != nil && inodeOf(f.info) == inodeOf(info) {
			next.grew, next.appended = true, w.appendedTo(f, info)
		}
		next.found = w.foundOf(f, next)
		f, w.files[info.Key] = next, next
	}
	delete(w.gone, info.Key)
	f.round = w.round
	if f.state == fileAnnounced {
		return
	}
	if wrote {
		f.wrote, f.state = now, filePending
	}
	if f.state == filePending {
		w.pending[info.Key] = f
		w.wakeAt(f.readyAt(w.options.Quiet, w.options.EmptyRecheck), now)
	}
}

// appendedTo returns how many announced versions of the file were its beginnings, now that it
// changed in place from old to now.
func (w *watcher) appendedTo(old *watchedFile, now blob.Info) int {
	if old.state != fileAnnounced {
		return old.appended // the same change goes on
	}
	if len(old.end) == 0 || now.Size <= old.info.Size ||
		!bytes.Equal(w.bucket.bytesBefore(now.Key, old.info.Size), old.end) {
		return 0
	}
	n := old.appended + 1
	w.options.Logger.Info("a file grew after it became a run: it becomes one again when it has stopped growing",
		"subject", now.Key, "quiet", sighting{appended: n}.quietFor(w.options.Quiet))
	return n
}

// foundOf returns how a version appeared, whose key had the file old before; nil if it had
// none. A file system whose inode numbers change shows the same file: renaming another one
// over it would have changed its change time.
func (w *watcher) foundOf(old, now *watchedFile) blob.Found {
	switch {
	case w.begins, old != nil && Moved(old.info.Version, now.info.Version) && old.changed == now.changed:
		return blob.Kept
	case w.gone[now.info.Key], old != nil && old.state != fileAnnounced && old.found == blob.Returned:
		return blob.Returned
	}
	return blob.Written
}

// noteGone remembers that the key has no object any more, if it had one.
func (w *watcher) noteGone(key string) {
	if w.files[key] == nil {
		return
	}
	if len(w.gone) >= maxRemembered {
		clear(w.gone)
	}
	w.gone[key] = true
}

// wakeAt sets the timer, unless it fires earlier.
func (w *watcher) wakeAt(at, now time.Time) {
	if w.due.IsZero() || at.Before(w.due) {
		w.due = at
		w.timer.Reset(max(0, at.Sub(now)))
	}
}

// promote moves the pending files that are ready to the queue, in order of their keys.
func (w *watcher) promote() {
	now := w.options.Clock.Now()
	if now.Before(w.due) {
		return
	}
	w.due = time.Time{}
	var ready []string
	var files openFiles // read at most once: thousands of files may be ready
	for key, f := range w.pending {
		if at := f.readyAt(w.options.Quiet, w.options.EmptyRecheck); at.After(now) {
			w.wakeAt(at, now)
			continue
		}
		if open, _ := w.bucket.writer(key, &files, false); open {
			w.wakeAt(now.Add(f.recheck(w.options.Quiet)), now)
			continue
		}
		delete(w.pending, key)
		f.state = fileQueued
		ready = append(ready, key)
	}
	slices.Sort(ready)
	w.queue = append(w.queue, ready...)
}

// next returns the next object to announce, after checking that it is still current.
func (w *watcher) next() (blob.Upload, bool) {
	for len(w.queue) > 0 {
		f := w.files[w.queue[0]]
		if f != nil && f.state == fileQueued {
			info, err := w.bucket.stat(f.info.Key)
			if err == nil && info.Version == f.info.Version {
				return blob.Upload{Info: info, Found: f.found}, true
			}
			if err == nil {
				w.record(info, false)
			} else {
				w.forget(f.info.Key) // a rescan finds it again if it exists
			}
		}
		w.queue = w.queue[1:]
	}
	w.queue = nil
	return blob.Upload{}, false
}

func (w *watcher) forget(key string) {
	w.noteGone(key)
	delete(w.files, key)
	delete(w.pending, key)
}

// report logs an error about a subject, unless its last one was the same.
func (w *watcher) report(subject string, err error) {
	if w.reported[subject] == err.Error() {
		return
	}
	if len(w.reported) >= maxRemembered {
		clear(w.reported)
	}
	w.reported[subject] = err.Error()
	w.options.Logger.Warn("cannot watch the bucket", "prefix", w.prefix, "subject", subject, "error", err)
}
