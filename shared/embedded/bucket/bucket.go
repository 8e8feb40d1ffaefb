package bucket

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Options configure a Bucket.
type Options struct {
	Clock clock.Clock // default: the machine's
	// TempAge is the age of the last write at which Open removes a temporary file as
	// the leftover of a crashed process. Default: one hour.
	TempAge time.Duration
	Disk    disk.Disk // default: the machine's
	// Settle is how long a file that another program wrote must not have changed before it
	// counts as complete. Default: one second.
	Settle time.Duration
}

// Bucket is a folder as a blob.Store: the object "a/b" is the file "a/b" in it.
// Users may put files there with any tool. The objects that rollout writes appear
// complete and never change. Several processes may use one folder, and a Bucket is
// safe for concurrent use.
//
// A Bucket keeps no old versions. A version consists of the file's inode, size and
// modification time. Only regular files whose names do not begin with a dot are
// objects. A Bucket does not follow symbolic links, so every key stays inside it.
type Bucket struct {
	dir     string
	clock   clock.Clock
	disk    disk.Disk
	root    *os.File // the bucket's folder; also carries the lock between processes
	rootID  folderID
	mutex   chan struct{} // holds one token: the lock within this process
	syncs   folderSyncs
	durable durableFolders
	buffers sync.Pool // of *[]byte, copyBuffer long
	// unnamed reports whether new objects are written to files without a name until
	// they are complete (O_TMPFILE).
	unnamed bool
	settle  time.Duration
	closed  chan struct{}  // closed by Close, which ends the watches
	watches sync.WaitGroup // running watches
}

var (
	_ blob.Store         = (*Bucket)(nil)
	_ blob.SkippedLister = (*Bucket)(nil)
	_ blob.Settler       = (*Bucket)(nil)
)

// Open opens the folder as a bucket. It creates the folder if it does not exist, and
// removes old temporary files of crashed processes.
func Open(dir string, o Options) (*Bucket, error) {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.TempAge <= 0 {
		o.TempAge = time.Hour
	}
	if o.Disk == nil {
		o.Disk = disk.System{}
	}
	if o.Settle <= 0 {
		o.Settle = defaultSettle
	}
	dir, err := filepath.Abs(dir) // the working directory may change
	if err == nil {
		err = disk.MakeFolder(o.Disk, dir)
	}
	if err != nil {
		return nil, filesystem.Fault(err, "open bucket %s", dir)
	}
	root, err := openFolder(unix.AT_FDCWD, dir+"/.", "") // the bucket itself may be a link
	if err != nil {
		return nil, filesystem.Fault(err, "open bucket %s", dir)
	}
	b := &Bucket{
		dir:    dir,
		clock:  o.Clock,
		disk:   o.Disk,
		root:   os.NewFile(uintptr(root.fd), dir),
		rootID: root.id,
		mutex:  make(chan struct{}, 1),
		settle: o.Settle,
		closed: make(chan struct{}),
	}
	b.buffers.New = func() any { buffer := make([]byte, copyBuffer); return &buffer }
	b.unnamed = disk.SupportsUnnamed(root.fd)
	if err := b.removeLeftovers(o.TempAge); err != nil {
		_ = b.root.Close() // the first error takes precedence
		return nil, filesystem.Fault(err, "open bucket %s", dir)
	}
	return b, nil
}

// Dir returns the bucket's folder, as an absolute path.
func (b *Bucket) Dir() string { return b.dir }

// Close ends the bucket's watches and closes the folder. Call it once, after all other
// calls have returned. Open readers stay usable.
func (b *Bucket) Close() error {
	close(b.closed)
	b.watches.Wait()
	b.durable.close()
	return filesystem.Fault(b.root.Close(), "close bucket %s", b.dir)
}

// Stat describes an object; see blob.Store.
func (b *Bucket) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return blob.Info{}, fault.Wrap(err, "stat %s", key)
	}
	info, err := b.stat(key)
	if err == nil {
		err = wantVersion(info, version)
	}
	if err != nil {
		return blob.Info{}, filesystem.Fault(err, "stat %s", key)
	}
	return info, nil
}

// Get opens an object for reading; see blob.Store. The reader returns the bytes of the
// opened version, even if the object is replaced meanwhile.
func (b *Bucket) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckGet(key, o); err != nil {
		return nil, blob.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return nil, blob.Info{}, fault.Wrap(err, "get %s", key)
	}
	file, info, err := b.openObject(key)
	if err != nil {
		return nil, blob.Info{}, filesystem.Fault(err, "get %s", key)
	}
	if err := wantVersion(info, o.Version); err != nil {
		_ = file.Close() // nothing was read
		return nil, blob.Info{}, filesystem.Fault(err, "get %s", key)
	}
	offset := min(o.Offset, info.Size)
	length := info.Size - offset
	if o.Length > 0 {
		length = min(length, o.Length)
	}
	section := io.NewSectionReader(file, offset, length)
	return &objectReader{SectionReader: section, file: file, key: key}, info, nil
}

// objectReader reads a range of an open object.
type objectReader struct {
	*io.SectionReader
	file *os.File
	key  string
}

func (r *objectReader) Read(p []byte) (int, error) {
	n, err := r.SectionReader.Read(p)
	if err != nil && err != io.EOF {
		err = filesystem.Fault(err, "read %s", r.key)
	}
	return n, err
}

func (r *objectReader) Close() error { return filesystem.Fault(r.file.Close(), "close %s", r.key) }

// stat describes the object with a valid key.
func (b *Bucket) stat(key string) (blob.Info, error) {
	folder, err := b.enter(parentOf(key), false)
	if err != nil {
		return blob.Info{}, notDirAsNotExist(err)
	}
	defer folder.close()
	return folder.stat(key)
}

// openObject opens the object with a valid key.
func (b *Bucket) openObject(key string) (*os.File, blob.Info, error) {
	fd, err := b.openFile(key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd) // nothing was read
		return nil, blob.Info{}, err
	}
	info, err := describe(key, &st)
	if err != nil {
		_ = unix.Close(fd) // nothing was read
		return nil, blob.Info{}, err
	}
	return os.NewFile(uintptr(fd), key), info, nil
}

// openFile opens the file at the key, of any type but a symbolic link.
func (b *Bucket) openFile(key string) (fd int, err error) {
	// Without O_NONBLOCK, opening a named pipe would wait for its writer.
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if fd, err := openBelow(int(b.root.Fd()), key, flags); err == nil {
		return fd, nil
	}
	folder, err := b.enter(parentOf(key), false)
	if err != nil {
		return 0, notDirAsNotExist(err)
	}
	defer folder.close()
	err = disk.IgnoreEINTR(func() error {
		fd, err = unix.Openat(folder.fd, nameOf(key), flags|unix.O_CLOEXEC, 0)
		return err
	})
	return fd, err
}

// notDirAsNotExist turns ENOTDIR into ENOENT: if "a" is an object, then "a/b" does not
// exist.
func notDirAsNotExist(err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return unix.ENOENT
	}
	return err
}

// wantVersion fails with NotFound unless the object has the wanted version; "" accepts
// any.
func wantVersion(info blob.Info, want string) error {
	if want == "" || want == info.Version {
		return nil
	}
	return fault.New(fault.NotFound, "the version %s was replaced: the object has version %s", want, info.Version)
}

// parentOf returns the folder of the key, "" for the bucket itself.
func parentOf(key string) string {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i]
	}
	return ""
}

// nameOf returns the key's last segment.
func nameOf(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }
