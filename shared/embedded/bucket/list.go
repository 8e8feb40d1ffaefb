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
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

const (
	// readNames is how many names are read from a folder at once.
	readNames = 1024
	// walkBatch is how many of a folder's names are held in memory, sorted; a
	// larger folder is read several times.
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

// walkOptions say what to walk and whom to tell about what is no object.
type walkOptions struct {
	prefix, after string
	batch         int                         // names of a folder held at once; 0 is walkBatch
	entered       func(path string)           // a folder that is walked; may be nil
	ignored       func(key string, err error) // a visible entry that is no object; may be nil
}

// walk visits the objects whose key has the prefix and sorts after `after`, in
// byte order of keys. What vanishes meanwhile is left out.
func (b *Bucket) walk(ctx context.Context, o walkOptions, visit func(blob.Info) error) error {
	top := parentOf(o.prefix)
	at, err := b.enter(top, false)
	if errors.Is(absentBehindFile(err), unix.ENOENT) {
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
			last = last[:i] // that folder itself must be entered again
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

// visit handles one entry of the folder: an object's key, or a folder's with a
// slash at its end.
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

// ignore passes over an entry that is no object, such as a link. Other errors
// end the walk: leaving out an object silently would be worse.
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

// smallest returns, sorted, up to limit entries of the folder that sort
// after `after` (or at it, unless strict). Folders have a slash at their end,
// which is what gives the order of whole keys: "a-b" comes before "a/b".
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

// eachName calls do with the folder's names, a bounded number at a time.
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

// eachEntry calls do with the folder's entries, a bounded number at a time.
func (f *folder) eachEntry(do func(batch []os.DirEntry) error) error {
	fd, err := unix.Openat(f.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // with a position of its own
	if err != nil {
		return err
	}
	// ReadDir looks at an entry of unknown type by name, so the name must lead
	// there whatever the working folder is.
	dir := os.NewFile(uintptr(fd), fdPath(fd))
	defer dir.Close() // read only: nothing can be lost
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
