package models

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Cache is the models in a bucket. Its methods may be called concurrently.
type Cache struct {
	Blobs blob.Store
	// Done is told how many bytes more are stored or fetched, from several goroutines at
	// once; optional.
	Done func(n int)
}

const (
	// storesAtOnce bounds the blocks that are stored at once, and with them the memory: a
	// driver holds a copy of each, twice as large.
	storesAtOnce = 5
	filesAtOnce  = 3 // that are read at once
)

// Listed is a file of a source.
type Listed struct {
	Path string
	Size int64
	// Digest is the file's SHA-256, or another digest that no other content has, in
	// hexadecimal digits, if the source knows it beforehand and verifies it; else "".
	Digest string
}

// Source is where the files of a model come from.
type Source interface {
	// Open opens a file for reading from its beginning. A reader of a file with a digest
	// fails instead of ending if the bytes do not have it.
	Open(ctx context.Context, f Listed) (io.ReadCloser, error)
}

// Stored says what a Store did.
type Stored struct {
	Key     string // of the manifest
	Already bool   // the model was there, whole
	New     int64  // bytes that the bucket did not have
}

// Store puts a model into the bucket and returns its manifest. name and revision are as in
// Manifest. It holds some 100 MiB at most. A store that broke is repeated as a whole, and
// takes what is there already; one of a model that lost blocks brings those of the files.
// Any number of concurrent stores of a model are harmless. It is Unavailable if a Remove
// deleted blocks meanwhile.
func (c Cache) Store(
	ctx context.Context, name, revision string, files []Listed, from Source,
) (m Manifest, s Stored, err error) {
	m = Manifest{Schema: schema, Name: name, Revision: revision}
	if err := checkListed(name, revision, files); err != nil {
		return m, s, err
	}
	if revision != "" {
		there, err := c.FindWhole(ctx, name, revision)
		if !fault.Is(err, fault.NotFound) {
			return there, Stored{Key: HubKey(name, revision), Already: err == nil}, err
		}
	}
	if m.Files, s.New, err = c.storeFiles(ctx, files, from); err != nil {
		return m, s, fault.Wrap(err, "store the model %s", name)
	}
	if err := m.check(); err != nil {
		return m, s, err
	}
	text, key, err := m.encode()
	if err != nil {
		return m, s, err
	}
	s.Key = key
	_, err = c.Blobs.Put(ctx, key, bytes.NewReader(text), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // it was there, or another one stored it meanwhile
		s.Already = s.New == 0
		m, err = c.load(ctx, key)
	}
	if err != nil {
		return m, s, err
	}
	// A Remove that began before the manifest was there deletes old blocks that were found.
	err = c.whole(ctx, m)
	if fault.Is(err, fault.NotFound) {
		err = &fault.Error{Kind: fault.Unavailable, Op: "blocks were removed meanwhile", Err: err,
			Remedy: "repeat it; if it fails again, remove the model with `rollout model rm` and cache it again"}
	}
	return m, s, err
}

var digestName = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// checkListed refuses what no manifest can hold, before anything is read.
func checkListed(name, revision string, files []Listed) error {
	if err := checkNamed(name, revision); err != nil {
		return err
	}
	if revision != "" && !IsCommit(revision) {
		return fault.New(fault.Invalid, "%.64q is not a commit of a model", revision)
	}
	if len(files) == 0 || len(files) > maxFiles {
		return fault.New(fault.Invalid, "the model %s has %d files, want 1 to %d", name, len(files), maxFiles)
	}
	paths, all := make([]string, 0, len(files)), 0
	for _, f := range files {
		if f.Size < 0 || f.Size > maxBlocks*BlockBytes {
			return fault.New(fault.Invalid, "%.128q has %d bytes", f.Path, f.Size)
		}
		if f.Digest != "" && !digestName.MatchString(f.Digest) {
			return fault.New(fault.Invalid, "%.128q is not a digest", f.Digest)
		}
		paths, all = append(paths, f.Path), all+blocks(f.Size)
	}
	if all > maxBlocks {
		return fault.New(fault.Invalid, "the model %s is too large: at most %d TiB are taken", name,
			int64(maxBlocks)*BlockBytes>>40)
	}
	return checkPaths(paths)
}

// storeFiles stores the blocks of all files.
func (c Cache) storeFiles(ctx context.Context, files []Listed, from Source) (out []File, added int64, err error) {
	out = make([]File, len(files))
	s := storing{Cache: c, buffers: make(chan []byte, storesAtOnce), added: make([]int64, len(files))}
	for range storesAtOnce {
		s.buffers <- nil // made when it is needed
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(filesAtOnce)
	for i, f := range files {
		group.Go(func() (err error) {
			out[i], err = s.storeFile(ctx, i, f, from)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	for _, n := range s.added {
		added += n
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out, added, nil
}

// storing is a Store in progress. Who reads a block takes a buffer, and gives it back when
// the block is stored.
type storing struct {
	Cache
	buffers chan []byte
	added   []int64 // of each file
}

// storeFile stores the blocks of a file, unless the bucket has them.
func (s storing) storeFile(ctx context.Context, number int, f Listed, from Source) (File, error) {
	if known, ok, err := s.known(ctx, f); ok || err != nil {
		return known, err
	}
	file := File{Path: f.Path, Size: f.Size, Blocks: make([]string, blocks(f.Size))}
	puts, putting := errgroup.WithContext(ctx)
	r, err := from.Open(putting, f) // which ends if a block can't be stored
	if err != nil {
		return file, err
	}
	defer r.Close() // read only
	added := make([]int64, len(file.Blocks))
	err = s.cut(putting, r, file, func(block int, b []byte) {
		puts.Go(func() error {
			defer func() { s.buffers <- b }()
			id := identity.Content(b).String()
			isNew, err := s.put(putting, id, b)
			if file.Blocks[block] = id; isNew {
				added[block] = int64(len(b))
			}
			s.done(len(b))
			return err
		})
	})
	// A block that can't be stored ends the reading, so that its error is the first one.
	if err := cmp.Or(puts.Wait(), err); err != nil {
		return file, fault.Wrap(err, "%s", f.Path)
	}
	for _, n := range added {
		s.added[number] += n
	}
	return file, s.remember(ctx, f, file)
}

// cut reads the file's blocks, each into a buffer, and ends where the reader must end.
func (s storing) cut(ctx context.Context, r io.Reader, file File, put func(block int, b []byte)) error {
	for block := range file.Blocks {
		var b []byte
		select {
		case b = <-s.buffers:
		case <-ctx.Done():
			return fault.WithKind(fault.Canceled, context.Cause(ctx), "read")
		}
		if b == nil {
			b = make([]byte, BlockBytes)
		}
		b = b[:file.blockSize(block)]
		if n, err := io.ReadFull(r, b); err != nil {
			s.buffers <- b[:BlockBytes]
			return shorter(err, file, int64(block)*BlockBytes+int64(n))
		}
		put(block, b)
	}
	var more [1]byte
	n, err := io.ReadFull(r, more[:])
	if n > 0 {
		return fault.New(fault.Corrupt, "the file is longer than the %d bytes that its source told", file.Size)
	}
	if err != io.EOF {
		return fault.Wrap(err, "read to the end")
	}
	return nil
}

// shorter translates the error of a read that should have been whole.
func shorter(err error, file File, at int64) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fault.New(fault.Corrupt, "the file ends after %d bytes, and its source told %d", at, file.Size)
	}
	return err
}

// put stores a block, and reports whether the bucket did not have it.
func (c Cache) put(ctx context.Context, id string, b []byte) (isNew bool, err error) {
	there, err := c.has(ctx, id, int64(len(b)))
	if there || err != nil {
		return false, err
	}
	_, err = c.Blobs.Put(ctx, contentKey(id), bytes.NewReader(b), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // another one stored it meanwhile
		return false, nil
	}
	return err == nil, err
}

// has reports whether the bucket has a block. It does not read it: who fetches it does.
func (c Cache) has(ctx context.Context, id string, size int64) (bool, error) {
	info, err := c.Blobs.Stat(ctx, contentKey(id), "")
	switch {
	case fault.Is(err, fault.NotFound):
		return false, nil
	case err == nil && info.Size != size:
		return false, &fault.Error{Kind: fault.Corrupt,
			Err:    fault.New(fault.Corrupt, "%s has %d bytes instead of %d", contentKey(id), info.Size, size),
			Remedy: "delete that object"}
	}
	return err == nil, err
}

// known returns the blocks of a file that was stored before, if its source knows the
// digest, and the bucket still has them all.
func (s storing) known(ctx context.Context, f Listed) (file File, ok bool, err error) {
	if f.Digest == "" {
		return file, false, nil
	}
	text, err := s.read(ctx, fileKey(f.Digest))
	if fault.Is(err, fault.NotFound) {
		return file, false, nil
	}
	if err != nil {
		return file, false, err
	}
	if json.Unmarshal(text, &file) != nil || file.Size != f.Size || len(file.Blocks) != blocks(f.Size) ||
		slices.ContainsFunc(file.Blocks, notID) {
		return file, false, nil // damaged: the source has it
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(storesAtOnce)
	lacks := make([]bool, len(file.Blocks))
	for i, id := range file.Blocks {
		group.Go(func() error {
			there, err := s.has(ctx, id, file.blockSize(i))
			lacks[i] = !there
			return err
		})
	}
	if err := group.Wait(); err != nil || slices.Contains(lacks, true) {
		return file, false, err
	}
	for n := f.Size; n > 0; n -= BlockBytes {
		s.done(int(min(n, BlockBytes)))
	}
	file.Path = f.Path
	return file, true, nil
}

// remember writes down the blocks of a file whose digest its source knows.
func (c Cache) remember(ctx context.Context, f Listed, file File) error {
	if f.Digest == "" {
		return nil
	}
	text, err := json.Marshal(File{Size: file.Size, Blocks: file.Blocks})
	if err != nil {
		return fault.WithKind(fault.Internal, err, "write the blocks of %s", f.Path)
	}
	_, err = c.Blobs.Put(ctx, fileKey(f.Digest), bytes.NewReader(text), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

func (c Cache) done(n int) {
	if c.Done != nil {
		c.Done(n)
	}
}
