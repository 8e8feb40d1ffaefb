package bucket

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

const (
	// readNames is how many entries of a folder one read returns.
	readNames = 1024
	// walkBatch is how many names of a folder are sorted in memory at once. A larger
	// folder is read several times.
	walkBatch = 8192
)

// errPageFull ends a walk early.
var errPageFull = errors.New("page is full")

// List returns objects in byte order of their keys; see blob.Store.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	if err := blob.CheckList(prefix, limit); err != nil {
		return nil, err
	}
	var page []blob.Info
	err := b.walk(ctx, walkOptions{prefix: prefix, after: after}, func(info blob.Info) error {
		page = append(page, info)
		if len(page) == limit {
			return errPageFull
		}
		return nil
	})
	if err != nil && err != errPageFull {
		return nil, filesystem.Fault(err, "list %s", prefix)
	}
	return page, nil
}

// ListSkipped returns entries that are not objects; see blob.SkippedLister.
func (b *Bucket) ListSkipped(ctx context.Context, prefix string, limit int) (out []blob.Skipped, err error) {
	if err := blob.CheckList(prefix, limit); err != nil {
		return nil, err
	}
	skipped := func(key string, why error) {
		if len(out) < limit {
			out = append(out, blob.Skipped{Key: key, Why: why})
		}
	}
	err = b.walk(ctx, walkOptions{prefix: prefix, ignored: skipped}, func(blob.Info) error {
		if len(out) == limit {
			return errPageFull
		}
		return nil
	})
	if err != nil && err != errPageFull {
		return nil, filesystem.Fault(err, "list %s", prefix)
	}
	return out, nil
}

// walkOptions configure walk.
type walkOptions struct {
	prefix, after string
	batch         int                         // names of a folder in memory; default: walkBatch
	entered       func(path string)           // called for each walked folder, if not nil
	ignored       func(key string, err error) // called for each visible entry that is not an object, if not nil
}

// walk visits the objects whose key has the prefix and sorts after `after`, in byte
// order of their keys. It leaves out objects that are removed meanwhile.
func (b *Bucket) walk(ctx context.Context, o walkOptions, visit func(blob.Info) error) error {
	top := parentOf(o.prefix)
	at, err := b.enter(top, false)
	if errors.Is(notDirAsNotExist(err), unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer at.close()
	if o.batch == 0 {
		o.batch = walkBatch
	}
	return at.walk(ctx, o, visit)
}

func (f *folder) walk(ctx context.Context, o walkOptions, visit func(blob.Info) error) error {
	if o.entered != nil {
		o.entered(f.path)
	}
	base := ""
	if f.path != "" {
		base = f.path + "/"
	}
	last := ""
	if strings.HasPrefix(o.after, base) {
		last = o.after[len(base):]
		if i := strings.IndexByte(last, '/'); i >= 0 {
			last = last[:i] // the folder that contains after must be entered again
		}
	}
	for strict := false; ; strict = true {
		if err := ctx.Err(); err != nil {
			return fault.Wrap(err, "walk %s", f.path)
		}
		entries, err := f.smallest(last, strict, o.batch)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if err := f.visit(ctx, base+entry, o, visit); err != nil {
				return err
			}
		}
		if len(entries) < o.batch {
			return nil
		}
		last = entries[len(entries)-1]
	}
}

// visit handles one entry of the folder. key is the key of an object, or the path of a
// folder with a slash at its end.
func (f *folder) visit(ctx context.Context, key string, o walkOptions, visit func(blob.Info) error) error {
	path, isFolder := strings.CutSuffix(key, "/")
	switch {
	case !strings.HasPrefix(key, o.prefix) && !(isFolder && strings.HasPrefix(o.prefix, key)):
		return nil
	case key <= o.after && !(isFolder && strings.HasPrefix(o.after, key)):
		return nil
	}
	if err := blob.CheckKey(path); err != nil {
		return o.ignore(path, err)
	}
	if isFolder {
		below, err := openFolder(f.fd, nameOf(path), path)
		if err == unix.ENOENT || err == unix.ENOTDIR {
			return nil
		}
		if err != nil {
			return o.ignore(path, err)
		}
		defer below.close()
		return below.walk(ctx, o, visit)
	}
	info, err := f.stat(key)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return o.ignore(path, err)
	}
	return visit(info)
}

// ignore reports an entry that is not an object, such as a symbolic link. It returns
// all other errors, which end the walk: a list must not leave out an object silently.
func (o walkOptions) ignore(key string, err error) error {
	err = filesystem.Fault(err, "walk %s", key)
	refusedLink := errors.Is(err, unix.ELOOP)
	if !refusedLink && !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.NotFound) {
		return err
	}
	if o.ignored != nil {
		o.ignored(key, err)
	}
	return nil
}

// smallest returns the first limit entries of the folder that sort after `after`, or
// at it unless strict, in order. Folders have a slash at their end, so that the order
// is that of complete keys: "a-b" sorts before "a/b".
func (f *folder) smallest(after string, strict bool, limit int) ([]string, error) {
	var entries []string
	keep := func() {
		slices.Sort(entries)
		entries = entries[:min(len(entries), limit)]
	}
	err := f.eachEntry(func(batch []os.DirEntry) error {
		for _, e := range batch {
			name := e.Name()
			if name[0] == '.' {
				continue
			}
			if e.IsDir() {
				name += "/"
			}
			if name > after || (!strict && name == after) {
				entries = append(entries, name)
			}
		}
		if len(entries) >= 2*limit {
			keep()
		}
		return nil
	})
	keep()
	return entries, err
}

// eachName calls do with the folder's names, up to readNames at a time.
func (f *folder) eachName(do func(names []string) error) error {
	var names []string
	return f.eachEntry(func(batch []os.DirEntry) error {
		names = names[:0]
		for _, e := range batch {
			names = append(names, e.Name())
		}
		return do(names)
	})
}

// eachEntry calls do with the folder's entries, up to readNames at a time.
func (f *folder) eachEntry(do func(batch []os.DirEntry) error) error {
	// A new file descriptor has its own read position.
	fd, err := unix.Openat(f.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// ReadDir uses the name of the file to stat an entry of unknown type, so the name
	// must be valid in any working directory.
	dir := os.NewFile(uintptr(fd), disk.PathOf(fd))
	defer dir.Close() // opened for reading; closing cannot lose data
	for {
		batch, err := dir.ReadDir(readNames)
		if len(batch) > 0 {
			if err := do(batch); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
