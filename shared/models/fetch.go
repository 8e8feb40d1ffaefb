package models

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/retry"
)

const (
	// fetchesAtOnce bounds the blocks that are read at once: S3 gives some 80 MB/s to each,
	// and a machine's own disk takes about 2 GB/s.
	fetchesAtOnce = 24
	// blockLimit bounds one try to read a block.
	blockLimit = 2 * time.Minute
	blockTries = 4
	copyBytes  = 256 << 10 // memory of one read
	// partsFolder has files that are not complete yet, until Fetch ends without a fault.
	partsFolder = ".rollout-parts"
)

// Fetched says what a Fetch did.
type Fetched struct {
	Files int   // that are complete
	Read  int64 // bytes that came from the bucket
	Kept  int64 // bytes that the folder had, of an earlier fetch
}

// Fetch writes the files of a model below a folder of root. It reads many blocks at once
// and writes each where it belongs; a file gets its name when all of its blocks have the
// content that the manifest says. Symbolic links that lead out of root are not followed.
//
// The first fault ends it: an absent block is NotFound, a damaged one Corrupt, a full disk
// Exhausted. Files that are complete by then stay. A later Fetch takes from an incomplete
// file the blocks that are right. Use one Fetch at a time for a root. Its memory is some MiB.
func (c Cache) Fetch(ctx context.Context, m Manifest, root *os.Root, folder string) (Fetched, error) {
	if err := m.check(); err != nil {
		return Fetched{}, err
	}
	f := fetching{Cache: c, root: root, folder: folder}
	group, ctx := errgroup.WithContext(ctx)
	jobs := make(chan job)
	group.Go(func() error {
		defer close(jobs)
		return f.list(ctx, m, jobs)
	})
	for range fetchesAtOnce {
		group.Go(func() error {
			buffer := make([]byte, copyBytes)
			for j := range jobs {
				if err := f.block(ctx, j, buffer); err != nil {
					return fault.Wrap(err, "fetch %s", j.file.Path)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	f.closeAll()
	got := Fetched{Files: int(f.complete.Load()), Read: f.read.Load(), Kept: f.kept.Load()}
	if err != nil {
		return got, fault.Wrap(err, "fetch the model %s", m.Name)
	}
	return got, onDisk(root.RemoveAll(partsFolder), "remove the folder of incomplete files")
}

// fetching is a Fetch in progress.
type fetching struct {
	Cache
	root       *os.Root
	folder     string
	open       []*target // of the files that were begun; only list appends
	complete   atomic.Int64
	read, kept atomic.Int64
}

// target is a file that is being written.
type target struct {
	File
	part   string   // its path until it is complete
	file   *os.File // is closed with the last block
	old    bool     // the file was there: its blocks may be right
	left   atomic.Int64
	closed atomic.Bool
}

// job is a block to fetch.
type job struct {
	file  *target
	block int
}

// list opens the files, one after another, and gives their blocks to the readers.
func (f *fetching) list(ctx context.Context, m Manifest, jobs chan<- job) error {
	if err := f.root.MkdirAll(partsFolder, 0o755); err != nil {
		return onDisk(err, "make the folder of incomplete files")
	}
	for i, file := range m.Files {
		t, err := f.begin(file, path.Join(partsFolder, strconv.Itoa(i)))
		if err != nil {
			return fault.Wrap(err, "fetch %s", file.Path)
		}
		if t == nil {
			continue
		}
		f.open = append(slices.DeleteFunc(f.open, func(t *target) bool { return t.closed.Load() }), t)
		for block := range file.Blocks {
			select {
			case jobs <- job{t, block}:
			case <-ctx.Done():
				return fault.WithKind(fault.Canceled, context.Cause(ctx), "fetch")
			}
		}
		if len(file.Blocks) == 0 {
			if err := f.end(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin makes a file to write to, of what an earlier fetch left if it did. It returns nil
// if another program has put a file of that size there, such as a server by a link to its
// own store, which it has verified.
func (f *fetching) begin(file File, part string) (*target, error) {
	name := path.Join(f.folder, file.Path)
	info, err := f.root.Lstat(name)
	switch {
	case err == nil && info.Mode().Type() == fs.ModeSymlink:
		if at, err := f.root.Stat(name); err == nil && at.Mode().IsRegular() && at.Size() == file.Size {
			f.complete.Add(1)
			f.kept.Add(file.Size)
			f.done(int(file.Size))
			return nil, nil
		}
		if err := f.root.Remove(name); err != nil {
			return nil, onDisk(err, "remove a link")
		}
	case err == nil: // its blocks are verified again: a failure of the power may have left holes
		if err := f.root.Rename(name, part); err != nil {
			return nil, onDisk(err, "move what is there")
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, onDisk(err, "look for the file")
	}
	t := &target{File: file, part: part}
	if before, err := f.root.Lstat(part); err == nil {
		if t.old = before.Mode().IsRegular(); !t.old {
			return nil, fault.New(fault.Invalid, "%s is not a regular file: remove it", part)
		}
	}
	if t.file, err = f.root.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, onDisk(err, "make the file")
	}
	t.left.Store(int64(len(file.Blocks)))
	if err := t.file.Truncate(file.Size); err != nil {
		_ = t.file.Close() // the error is told already
		return nil, onDisk(err, "make the file")
	}
	return t, nil
}

// block brings one block to its file.
func (f *fetching) block(ctx context.Context, j job, buffer []byte) error {
	size, at := j.file.blockSize(j.block), int64(j.block)*BlockBytes
	id := j.file.Blocks[j.block]
	hash := identity.NewHasher()
	right := false
	if j.file.old {
		n, err := io.CopyBuffer(onlyWriter{hash}, onlyReader{io.NewSectionReader(j.file.file, at, size)}, buffer)
		right = err == nil && n == size && hash.Sum().String() == id
	}
	if right {
		f.kept.Add(size)
	} else {
		policy := retry.Policy{Tries: blockTries}
		err := policy.Do(ctx, func(int) error {
			hash.Reset()
			return f.get(ctx, id, size, io.MultiWriter(hash, io.NewOffsetWriter(j.file.file, at)), buffer)
		})
		if err != nil {
			return err
		}
		if got := hash.Sum().String(); got != id {
			return &fault.Error{Kind: fault.Corrupt, Err: fault.New(fault.Corrupt, "%s has other bytes", contentKey(id)),
				Remedy: "remove the model with `rollout model rm` and cache it again"}
		}
		f.read.Add(size)
	}
	f.done(int(size))
	if j.file.left.Add(-1) > 0 {
		return nil
	}
	return f.end(j.file)
}

// get copies a block. A try that hangs is Unavailable.
func (f *fetching) get(ctx context.Context, id string, size int64, to io.Writer, buffer []byte) error {
	limited, cancel := context.WithTimeout(ctx, blockLimit)
	defer cancel()
	err := f.copyBlock(limited, id, size, to, buffer)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fault.WithKind(fault.Unavailable, err, "the bucket takes longer than %s for %d bytes", blockLimit, size)
	}
	return err
}

func (f *fetching) copyBlock(ctx context.Context, id string, size int64, to io.Writer, buffer []byte) error {
	r, info, err := f.Blobs.Get(ctx, contentKey(id), blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return &fault.Error{Kind: fault.NotFound, Err: err, Remedy: "cache the model again with `rollout model cache`"}
	}
	if err != nil {
		return err
	}
	defer r.Close() // read only
	if info.Size != size {
		return fault.New(fault.Corrupt, "%s has %d bytes instead of %d", contentKey(id), info.Size, size)
	}
	n, err := io.CopyBuffer(onlyWriter{to}, onlyReader{io.LimitReader(r, size)}, buffer)
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk) || errors.Is(err, syscall.ENOSPC):
		return onDisk(err, "write")
	case err == nil && n < size:
		return fault.New(fault.Unavailable, "%s ended after %d bytes of %d", contentKey(id), n, size)
	}
	return err
}

// onlyWriter and onlyReader hide the methods by which io.CopyBuffer would make buffers of
// its own.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// end gives a complete file its name.
func (f *fetching) end(t *target) error {
	t.closed.Store(true)
	if err := t.file.Close(); err != nil {
		return onDisk(err, "write")
	}
	name := path.Join(f.folder, t.Path)
	if err := f.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return onDisk(err, "make a folder")
	}
	if err := f.root.Rename(t.part, name); err != nil {
		return onDisk(err, "name the file")
	}
	f.complete.Add(1)
	return nil
}

// closeAll closes the files that did not become complete.
func (f *fetching) closeAll() {
	for _, t := range f.open {
		if !t.closed.Load() {
			_ = t.file.Close() // the fault that left it open is told already
		}
	}
}

// RemoveParts removes what a fetch that failed left of files.
func RemoveParts(root *os.Root) error {
	return onDisk(root.RemoveAll(partsFolder), "remove incomplete files")
}

// onDisk gives an error of the file system its kind. A full disk has a remedy.
func onDisk(err error, op string) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &fault.Error{Kind: fault.Exhausted, Op: op, Err: err, Remedy: "raise disk_gb of the pool"}
	}
	return fault.WithKind(fault.Invalid, err, "%s", op)
}
