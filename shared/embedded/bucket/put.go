package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Put streams r into an object; see blob.Store. It writes the bytes to an unnamed or
// temporary file, syncs the file, and then gives it its name in one step.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckPut(key, o); err != nil {
		return blob.Info{}, err
	}
	short := o.CreateOnly && isShort(r)
	if !short {
		if err := b.precheck(key, o); err != nil { // fails before the stream is read, if possible
			return blob.Info{}, filesystem.Fault(err, "put %s", key)
		}
	}
	info, err := b.put(ctx, key, r, o)
	if short && fault.Is(err, fault.Exhausted) { // an object that exists needs no room
		if exists := b.precheck(key, o); exists != nil {
			return blob.Info{}, filesystem.Fault(exists, "put %s", key)
		}
	}
	return info, err
}

// isShort reports whether r is in memory and short. Then to write it costs less than to look
// first whether the object exists, since its new name tells as well.
func isShort(r io.Reader) bool {
	inMemory, ok := r.(*bytes.Reader)
	return ok && inMemory.Len() <= copyBuffer
}

// put writes the object, of which the condition may have been checked.
func (b *Bucket) put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	temp, err := b.newObject(key, o)
	if err != nil {
		return blob.Info{}, filesystem.Fault(err, "put %s", key)
	}
	defer temp.discard()
	if err := temp.fill(ctx, r, &b.buffers); err != nil {
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

// Copy makes dst a copy of src; see blob.Store. It copies the bytes, by reference if the
// file system supports it. It does not link the file, because a user may still write to
// src in place.
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
	if err := b.precheck(dst, createOnly); err != nil {
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

// appendRange appends a range of an object to the temporary file.
func (b *Bucket) appendRange(ctx context.Context, temp *tempFile, part blob.Range) error {
	file, info, err := b.openObject(part.Key)
	if err != nil {
		return err
	}
	defer file.Close() // opened for reading; closing cannot lose data
	offset, length, err := part.Resolve(info.Size)
	if err != nil {
		return err
	}
	return temp.copyFrom(ctx, file, offset, length)
}

// newObject creates the file to which a new object is written. It uses an unnamed file
// only for create-only puts, because linking one cannot replace an existing name.
func (b *Bucket) newObject(key string, o blob.PutOptions) (temp *tempFile, err error) {
	err = retryIfFolderRemoved(func() (err error) {
		if b.unnamed && o.CreateOnly {
			temp, err = b.newUnnamed(parentOf(key))
			return err
		}
		temps, err := b.enter(tempFolder, true)
		if err == nil {
			temp, err = b.newTemp(temps)
		}
		return err
	})
	return temp, err
}

// maxFolderRetries is the most attempts of retryIfFolderRemoved. Each retry takes a
// removal in the short time between the creation and the use of a folder.
const maxFolderRetries = 100

// retryIfFolderRemoved calls do, which creates or uses the folder of a new object, and
// repeats it after ENOENT: a concurrent Delete of the last object in a folder removes
// the folder.
func retryIfFolderRemoved(do func() error) error {
	for try := 1; ; try++ {
		err := do()
		if !errors.Is(err, unix.ENOENT) {
			return err
		}
		if try == maxFolderRetries {
			return fault.WithKind(fault.Unavailable, err,
				"the folder or the temporary file was removed while the object was written")
		}
	}
}

// precheck fails if the put's condition does not hold now.
func (b *Bucket) precheck(key string, o blob.PutOptions) error {
	if !o.CreateOnly && o.IfVersion == "" {
		return nil
	}
	info, err := b.stat(key)
	err = checkCondition(info, err, o)
	if !o.CreateOnly || !fault.Is(err, fault.Conflict) {
		return err
	}
	folder, enterErr := b.enter(parentOf(key), true)
	if enterErr != nil {
		return enterErr
	}
	defer folder.close()
	return b.conflict(folder, err)
}

// conflict returns the Conflict of a create-only put into the folder, after making the
// object durable that exists: callers take the Conflict for the success of an earlier
// put, whose process may have ended before it synced the folder.
func (b *Bucket) conflict(folder *folder, conflict error) error {
	if err := b.makeDurable(folder); err != nil {
		return err
	}
	return conflict
}

// checkCondition checks a put's condition against the result of stat for the key.
func checkCondition(info blob.Info, err error, o blob.PutOptions) error {
	absent := errors.Is(err, unix.ENOENT)
	switch {
	case o.IfVersion == "" && !o.CreateOnly, o.CreateOnly && absent:
		return nil
	case o.CreateOnly && err == nil:
		return fault.New(fault.Conflict, "the object exists, with version %s", info.Version)
	case o.CreateOnly: // placing the file fails if the name is that of a folder or device
		return nil
	case absent:
		return fault.New(fault.Conflict, "the version %s was deleted: the object does not exist", o.IfVersion)
	case err != nil:
		return err
	case info.Version != o.IfVersion:
		return fault.New(fault.Conflict, "the version %s was replaced: the object has version %s",
			o.IfVersion, info.Version)
	}
	return nil
}

// publish syncs the temporary file and gives it the key's name if the condition holds.
// When it returns, the object is durable.
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

// place gives the synced temporary file its name. It creates the folder again if a
// concurrent Delete removes it.
func (b *Bucket) place(ctx context.Context, temp *tempFile, key string, o blob.PutOptions) error {
	inFolder := temp.unnamed() // an unnamed file was created in its object's folder
	return retryIfFolderRemoved(func() error {
		if inFolder {
			inFolder = false
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

// tryPlace gives the temporary file its name in the folder target.
func (b *Bucket) tryPlace(
	ctx context.Context, temp *tempFile, target *folder, key string, o blob.PutOptions,
) (err error) {
	if o.CreateOnly {
		err = placeNew(temp, target, nameOf(key))
	} else {
		err = b.placeOver(ctx, temp, target, key, o)
	}
	if o.CreateOnly && fault.Is(err, fault.Conflict) {
		return b.conflict(target, err)
	}
	if err != nil {
		return err
	}
	return b.makeDurable(target)
}

// placeNew gives the file a new name. It fails with Conflict if the name exists.
func placeNew(temp *tempFile, target *folder, name string) error {
	err := temp.rename(target, name)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		// The file system does not support renaming without replacing. A link does not
		// replace either; discard then removes the temporary name.
		err = temp.disk.Link(temp.folder.fd, temp.name, target.fd, name)
	}
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	if _, err := target.stat(name); err != nil && !errors.Is(err, unix.ENOENT) {
		return notAFile(name)
	}
	return fault.New(fault.Conflict, "the object exists")
}

// placeOver gives the file a name and replaces the object that has it. The lock makes
// the check of the version and the rename atomic.
func (b *Bucket) placeOver(
	ctx context.Context, temp *tempFile, target *folder, key string, o blob.PutOptions,
) error {
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
	err = b.disk.Rename(temp.folder.fd, temp.name, target.fd, nameOf(key), true)
	temp.placed = err == nil
	return err
}

func notAFile(name string) error {
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%q is a folder, a link or a device, not an object", name),
		Remedy: "use another name"}
}
