package bucket

import (
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

// WatchOptions configure Bucket.Watch; zero values are the product's.
type WatchOptions struct {
	Clock        clock.Clock   // nil is the machine's
	Quiet        time.Duration // how long a file that is being written must rest; 0 is 1 s
	EmptyRecheck time.Duration // how long an empty one must; 0 is 10 s
	Rescan       time.Duration // how often the folder is read through; 0 is 5 s
	Logger       *slog.Logger  // nil discards
}

func (o WatchOptions) withDefaults() WatchOptions {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Quiet <= 0 {
		o.Quiet = time.Second
	}
	if o.EmptyRecheck <= 0 {
		o.EmptyRecheck = 10 * time.Second
	}
	if o.Rescan <= 0 {
		o.Rescan = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Watch announces the objects under the prefix: those that are there when it
// begins, then new ones and new versions, until ctx ends, when the channel
// closes. It makes the prefix's folder if it is missing.
//
// Each version is announced once a watcher, and again by the next one: at
// least once in all. File notifications make it quick; reading the folder
// again and again makes it complete, also where there are no notifications. A
// file that is removed or replaced before its turn is not announced.
func (b *Bucket) Watch(ctx context.Context, prefix string, o WatchOptions) <-chan blob.Info {
	w := &watcher{
		bucket: b, prefix: prefix, options: o.withDefaults(),
		files: make(map[string]*watchedFile), pending: make(map[string]*watchedFile),
		hidden: make(map[string]string), reported: make(map[string]string),
	}
	out := make(chan blob.Info)
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
	notify  *fsnotify.Watcher // nil if the system gives none

	files   map[string]*watchedFile // every object, by key
	pending map[string]*watchedFile // those not ready yet
	queue   []string                // keys of those to announce, in order
	round   uint64                  // the number of the current reading of the folder
	due     time.Time               // when the timer goes off; zero if it is not set
	timer   *time.Timer

	hidden   map[string]string // inodes of files under hidden names, by path; bounded
	reported map[string]string // what was logged, by subject, to log it once; bounded
}

// watchedFile is an object and what has become of its present version.
type watchedFile struct {
	sighting
	state fileState
	round uint64 // the last reading of the folder that met it
}

type fileState uint8

const (
	filePending   fileState = iota // to be looked at when it is ready
	fileQueued                     // to be announced
	fileAnnounced                  // done
)

// maxRemembered bounds the maps that only spare work or log lines.
const maxRemembered = 1024

func (w *watcher) run(ctx context.Context, out chan<- blob.Info) {
	if err := blob.CheckPrefix(w.prefix); err != nil {
		w.report("prefix", err)
		return
	}
	var events chan fsnotify.Event
	var failures chan error
	notify, err := fsnotify.NewWatcher()
	if err == nil {
		defer notify.Close() // nothing to lose
		w.notify, events, failures = notify, notify.Events, notify.Errors
	} else {
		w.report("notifications", err)
	}
	w.timer = time.NewTimer(w.options.Rescan) // set anew whenever something is due
	defer w.timer.Stop()
	rescan := time.NewTicker(w.options.Rescan)
	defer rescan.Stop()
	if folder, err := w.bucket.enter(parentOf(w.prefix), true); err == nil {
		folder.close()
	} else {
		w.report(w.prefix, filesystem.Fault(err, "make folder"))
	}
	w.rescan(ctx)

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
			w.files[next.Key].state = fileAnnounced
			w.queue = w.queue[1:]
		case event := <-events:
			w.handle(ctx, event)
		case err := <-failures: // as a rule an overflow: some events are lost
			w.report("notifications", err)
			w.rescan(ctx)
		case <-w.timer.C:
			w.promote()
		case <-rescan.C:
			w.rescan(ctx)
		}
	}
}

// rescan reads the whole folder and forgets what is gone.
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

// scan reads what is under the prefix and has its folders watched; it reports
// whether it came to the end.
func (w *watcher) scan(ctx context.Context, prefix string) bool {
	err := w.bucket.walk(ctx, walkOptions{
		prefix:  prefix,
		entered: w.watchFolder,
		ignored: func(key string, err error) { w.report(key, err) },
	}, func(info blob.Info) error {
		w.sighted(info, false)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.report(prefix, filesystem.Fault(err, "read folder"))
	}
	w.promote()
	return err == nil
}

// watchFolder asks for notifications about the folder; asking again is cheap.
func (w *watcher) watchFolder(path string) {
	if w.notify == nil {
		return
	}
	if err := w.notify.Add(filepath.Join(w.bucket.dir, path)); err != nil && !errors.Is(err, unix.ENOENT) {
		w.report("notifications", err)
	}
}

// handle takes a notification as a hint to look at a file.
func (w *watcher) handle(ctx context.Context, event fsnotify.Event) {
	path, ok := strings.CutPrefix(event.Name, w.bucket.dir+"/")
	if !ok {
		return
	}
	if nameOf(path)[:1] == "." {
		w.noteHidden(path, event)
		return
	}
	if !strings.HasPrefix(path, w.prefix) || blob.CheckKey(path) != nil {
		return // a rescan says why
	}
	info, err := w.bucket.stat(path)
	switch {
	case err == nil:
		w.sighted(info, event.Has(fsnotify.Write))
		w.promote()
	case errors.Is(err, unix.ENOENT):
		w.forget(path)
	case fault.Is(err, fault.NotFound) && event.Has(fsnotify.Create): // perhaps a folder
		w.scan(ctx, path+"/")
	default:
		w.report(path, filesystem.Fault(err, "look at"))
	}
}

// noteHidden remembers files under hidden names, to know them again when they
// are renamed.
func (w *watcher) noteHidden(path string, event fsnotify.Event) {
	if event.Has(fsnotify.Remove) {
		delete(w.hidden, path) // its inode may be used again for something else
		return
	}
	if info, err := w.bucket.stat(path); err == nil {
		if len(w.hidden) >= maxRemembered {
			clear(w.hidden)
		}
		w.hidden[path] = inodeOf(info)
	}
}

// takeHidden tells whether the file was seen under a hidden name, once.
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

// inodeOf returns the part of the version that names the file.
func inodeOf(info blob.Info) string {
	inode, _, _ := strings.Cut(info.Version, "-")
	return inode
}

// sighted takes in what the object is like now.
func (w *watcher) sighted(info blob.Info, wrote bool) {
	now := w.options.Clock.Now()
	f := w.files[info.Key]
	if f == nil || f.info.Version != info.Version {
		f = &watchedFile{sighting: sighting{info: info, seen: now, whole: w.takeHidden(info)}}
		w.files[info.Key] = f
	}
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

// wakeAt sets the timer unless it goes off earlier anyway.
func (w *watcher) wakeAt(at, now time.Time) {
	if w.due.IsZero() || at.Before(w.due) {
		w.due = at
		w.timer.Reset(max(0, at.Sub(now)))
	}
}

// promote queues the pending files that are ready, in order of their keys.
func (w *watcher) promote() {
	now := w.options.Clock.Now()
	if now.Before(w.due) {
		return
	}
	w.due = time.Time{}
	var ready []string
	for key, f := range w.pending {
		if at := f.readyAt(w.options.Quiet, w.options.EmptyRecheck); at.After(now) {
			w.wakeAt(at, now)
			continue
		}
		delete(w.pending, key)
		f.state = fileQueued
		ready = append(ready, key)
	}
	slices.Sort(ready)
	w.queue = append(w.queue, ready...)
}

// next returns what to announce, as it is on the disk at this moment.
func (w *watcher) next() (blob.Info, bool) {
	for len(w.queue) > 0 {
		f := w.files[w.queue[0]]
		if f != nil && f.state == fileQueued {
			info, err := w.bucket.stat(f.info.Key)
			if err == nil && info.Version == f.info.Version {
				return info, true
			}
			if err == nil {
				w.sighted(info, false)
			} else {
				w.forget(f.info.Key) // if it is there after all, a rescan finds it
			}
		}
		w.queue = w.queue[1:]
	}
	w.queue = nil
	return blob.Info{}, false
}

func (w *watcher) forget(key string) {
	delete(w.files, key)
	delete(w.pending, key)
}

// report logs what is wrong with a subject, once as long as it stays the same.
func (w *watcher) report(subject string, err error) {
	if w.reported[subject] == err.Error() {
		return
	}
	if len(w.reported) >= maxRemembered {
		clear(w.reported)
	}
	w.reported[subject] = err.Error()
	w.options.Logger.Warn("watching the bucket", "prefix", w.prefix, "subject", subject, "error", err)
}
