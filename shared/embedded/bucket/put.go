package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Put streams r into an object; see blob.Store. The bytes go to a file without
// a name, or under a temporary one, which is synced and then gets its name in
// one step.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckPut(key, o); err != nil {
		return blob.Info{}, err
	}
	if err := b.expect(key, o); err != nil { // cheap refusals come before the stream is read
		return blob.Info{}, filesystem.Fault(err, "put %s", key)
	}
	temp, err := b.newObject(key, o)
	if err != nil {
		return blob.Info{}, filesystem.Fault(err, "put %s", key)
	}
	defer temp.discard()
	buffer := b.buffers.Get().(*[]byte)
	defer b.buffers.Put(buffer)
	if err := temp.fill(ctx, r, *buffer); err != nil {
		var source *readError
		if errors.As(err, &source) {
			return blob.Info{}, source.err
		}
		return blob.Info{}, filesystem.Fault(err, "put %s", key)
	}
	info, err := b.publish(ctx, temp, key, o)
	return info, filesystem.Fault(err, "put %s", key)
}

// Join makes dst of ranges of other objects; see blob.Store.
func (b *Bucket) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	if err := blob.CheckJoin(dst, parts); err != nil {
		return blob.Info{}, err
	}
	info, err := b.join(ctx, dst, parts)
	return info, filesystem.Fault(err, "join %s", dst)
}

// Copy makes dst a copy of src; see blob.Store. It copies bytes (by reference
// where the file system can) rather than linking the file, because a user may
// yet write to src in place.
func (b *Bucket) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	parts := []blob.Range{{Key: src}}
	if err := blob.CheckJoin(dst, parts); err != nil {
		return blob.Info{}, err
	}
	info, err := b.join(ctx, dst, parts)
	return info, filesystem.Fault(err, "copy %s to %s", src, dst)
}

func (b *Bucket) join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	createOnly := blob.PutOptions{CreateOnly: true}
	if err := b.expect(dst, createOnly); err != nil {
		return blob.Info{}, err
	}
	temp, err := b.newObject(dst, createOnly)
	if err != nil {
		return blob.Info{}, err
	}
	defer temp.discard()
	for _, part := range parts {
		if err := b.appendRange(ctx, temp, part); err != nil {
			return blob.Info{}, filesystem.Fault(err, "read %s", part.Key)
		}
	}
	return b.publish(ctx, temp, dst, createOnly)
}

// appendRange appends the range of an object to the temporary file.
func (b *Bucket) appendRange(ctx context.Context, temp *tempFile, part blob.Range) error {
	file, info, err := b.openObject(part.Key)
	if err != nil {
		return err
	}
	defer file.Close() // read only: nothing can be lost
	offset, length, err := part.Resolve(info.Size)
	if err != nil {
		return err
	}
	return temp.copyFrom(ctx, file, offset, length)
}

// newObject makes the temporary file of an object that is being written. Only
// a name that nobody has can be given to a file without one.
func (b *Bucket) newObject(key string, o blob.PutOptions) (temp *tempFile, err error) {
	err = whileFoldersVanish(func() (err error) {
		if b.nameless && o.CreateOnly {
			temp, err = b.newNameless(parentOf(key))
			return err
		}
		temps, err := b.enter(tempFolder, true)
		if err == nil {
			temp, err = newTemp(temps)
		}
		return err
	})
	return temp, err
}

// vanishings is how often in a row a folder may be gone that was just there or
// was just made: each time takes a removal in the moment between.
const vanishings = 100

// whileFoldersVanish repeats what makes or uses the folder of an object that is
// not there yet: whoever deletes the last object in a folder removes it.
func whileFoldersVanish(do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		if try == vanishings {
			return fault.WithKind(fault.Unavailable, err, "the folder or the temporary file vanished while the object was written")
		}
	}
}

// expect tells whether the put's condition holds now.
func (b *Bucket) expect(key string, o blob.PutOptions) error {
	if !o.CreateOnly && o.IfVersion == "" {
		return nil
	}
	info, err := b.stat(key)
	return checkCondition(info, err, o)
}

// checkCondition judges a put's condition by what stat said about the key.
func checkCondition(info blob.Info, err error, o blob.PutOptions) error {
	absent := errors.Is(err, unix.ENOENT)
	switch {
	case o.IfVersion == "" && !o.CreateOnly, o.CreateOnly && absent:
		return nil
	case o.CreateOnly && err == nil:
		return fault.New(fault.Conflict, "the object exists, at version %s", info.Version)
	case o.CreateOnly: // whatever is there instead shows when the name is taken
		return nil
	case absent:
		return fault.New(fault.Conflict, "version %s is gone: there is no such object now", o.IfVersion)
	case err != nil:
		return err
	case info.Version != o.IfVersion:
		return fault.New(fault.Conflict, "version %s is gone: the object is at version %s", o.IfVersion, info.Version)
	}
	return nil
}

// publish syncs the temporary file and gives it the key's name under the
// condition; when it returns, the object is durable.
func (b *Bucket) publish(ctx context.Context, temp *tempFile, key string, o blob.PutOptions) (blob.Info, error) {
	if err := temp.seal(b.clock.Now()); err != nil {
		return blob.Info{}, err
	}
	info, err := b.describeTemp(temp, key)
	if err != nil {
		return blob.Info{}, err
	}
	return info, b.place(ctx, temp, key, o)
}

func (b *Bucket) describeTemp(temp *tempFile, key string) (blob.Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(temp.file.Fd()), &st); err != nil {
		return blob.Info{}, err
	}
	return describe(key, &st)
}

// place gives the sealed temporary file its name. Its folder may vanish in
// between, and is then made again.
func (b *Bucket) place(ctx context.Context, temp *tempFile, key string, o blob.PutOptions) error {
	known := temp.nameless() // a file without a name is in its object's folder
	return whileFoldersVanish(func() error {
		if known {
			known = false
			return b.tryPlace(ctx, temp, temp.folder, key, o)
		}
		target, err := b.enter(parentOf(key), true)
		if err != nil {
			return err
		}
		defer target.close()
		return b.tryPlace(ctx, temp, target, key, o)
	})
}

func (b *Bucket) tryPlace(ctx context.Context, temp *tempFile, target *folder, key string, o blob.PutOptions) (err error) {
	if o.CreateOnly {
		err = placeNew(temp, target, nameOf(key))
	} else {
		err = b.placeOver(ctx, temp, target, key, o)
	}
	if err != nil {
		return err
	}
	return b.settle(target)
}

// placeNew gives the file a name that nobody has, or fails with Conflict.
func placeNew(temp *tempFile, target *folder, name string) error {
	err := temp.rename(target, name)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		// The file system can't rename that way. A link is create-only too;
		// discard then removes the temporary name.
		err = unix.Linkat(temp.folder.fd, temp.name, target.fd, name, 0)
	}
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if _, err := target.stat(name); err != nil && !errors.Is(err, unix.ENOENT) {
		return notAFile(name)
	}
	return fault.New(fault.Conflict, "the object exists")
}

// placeOver gives the file a name, replacing what has it now. The lock makes
// the check of the version and the renaming one step.
func (b *Bucket) placeOver(ctx context.Context, temp *tempFile, target *folder, key string, o blob.PutOptions) error {
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	info, err := target.stat(key)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return notAFile(nameOf(key))
	}
	if err := checkCondition(info, err, o); err != nil {
		return err
	}
	err = unix.Renameat(temp.folder.fd, temp.name, target.fd, nameOf(key))
	temp.placed = err == nil
	return err
}

func notAFile(name string) error {
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%q is no object but a folder, a link or a device", name), Remedy: "use another name"}
}
