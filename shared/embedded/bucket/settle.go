package bucket

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Times after the last change at which a file is complete.
const (
	defaultSettle       = time.Second
	defaultEmptyRecheck = 10 * time.Second
)

// Unsettled says why the object may still be written; see blob.Settler.
func (b *Bucket) Unsettled(ctx context.Context, key string) (string, error) {
	info, err := b.Stat(ctx, key, "")
	if err != nil {
		return "", err
	}
	if open, by := b.writer(key, &openFiles{}, true); open {
		if by == "" {
			by = "a process"
		}
		return by + " has it open for writing: it becomes a run when that has closed it", nil
	}
	s := sighting{info: info, seen: b.clock.Now()}
	if !s.readyAt(b.settle, defaultEmptyRecheck).After(s.seen) {
		return "", nil
	}
	if info.Size == 0 {
		return fmt.Sprintf("it is empty and was just made: it becomes a run if it stays empty for %s",
			max(b.settle, defaultEmptyRecheck)), nil
	}
	return fmt.Sprintf("it has just changed: it becomes a run when it has not changed for %s", b.settle), nil
}

// endSize is how many bytes at the end of a file tell whether another version continues it.
const endSize = 4 << 10

// bytesBefore returns the last bytes of the object before the offset, at most endSize; nil
// if they can't be read.
func (b *Bucket) bytesBefore(key string, offset int64) []byte {
	fd, err := b.openFile(key)
	if err != nil {
		return nil
	}
	defer unix.Close(fd) //nolint:errcheck // opened for reading; closing cannot lose data
	out := make([]byte, min(offset, endSize))
	n, err := unix.Pread(fd, out, offset-int64(len(out)))
	if err != nil || n < len(out) {
		return nil
	}
	return out
}

// writer reports whether a process has the object open for writing, as far as the system
// shows it, and which if named asks for that. files are looked up where the kernel grants no
// lease. An object that is gone has none.
func (b *Bucket) writer(key string, files *openFiles, named bool) (open bool, by string) {
	fd, err := b.openFile(key)
	if err != nil {
		return false, ""
	}
	defer unix.Close(fd) //nolint:errcheck // opened for reading; closing cannot lose data
	if !openForWriting(fd, files) {
		return false, ""
	}
	if named {
		by = files.writerOf(fd)
	}
	return true, by
}
