package sqlite

import (
	"context"
	"log/slog"
	"os"

	"github.com/fsnotify/fsnotify"
)

// bell tells the processes of a state folder that one of them has committed. Whoever
// commits writes a byte into a file, which the others watch. It is a hint: where the
// system reports no changes of files, or another version of the program writes, nothing rings,
// and the notifier polls.
type bell struct {
	file  *os.File
	rings chan struct{} // receives a hint for each ring; nil if the file can't be watched
	watch *fsnotify.Watcher
	ended chan struct{} // closed when listen has ended
}

// startBell watches the file, which stays open and belongs to the caller.
func startBell(ctx context.Context, file *os.File, log *slog.Logger) *bell {
	b := &bell{file: file, ended: make(chan struct{})}
	watch, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watch.Add(file.Name()); err != nil {
			_ = watch.Close() // the first error says what is wrong
		}
	}
	if err != nil {
		log.DebugContext(ctx, "the state's file is polled, because it can't be watched", "path", file.Name(), "error", err)
		close(b.ended)
		return b
	}
	b.watch, b.rings = watch, make(chan struct{}, 1)
	go b.listen()
	return b
}

// ring tells the others. A ring that fails is found by their polls.
func (b *bell) ring() { _, _ = b.file.WriteAt([]byte{'\n'}, 0) }

// listen passes the system's events on until the watch is closed. An event that the system
// has dropped counts as a ring.
func (b *bell) listen() {
	defer close(b.ended)
	for {
		select {
		case e, ok := <-b.watch.Events:
			if !ok {
				return
			}
			if e.Has(fsnotify.Write) {
				hint(b.rings)
			}
		case _, ok := <-b.watch.Errors:
			if !ok {
				return
			}
			hint(b.rings)
		}
	}
}

// close ends the watch.
func (b *bell) close() {
	if b.watch != nil {
		_ = b.watch.Close() // it has nothing to lose
	}
	<-b.ended
}
