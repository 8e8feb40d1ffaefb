package gcp

import (
	"bytes"
	"cmp"
	"context"
	"hash/crc32"
	"io"
	"sync/atomic"

	"cloud.google.com/go/storage"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

const (
	// nonceKey is the metadata key of an object that holds its write's nonce.
	nonceKey = "rollout-put"
	// maxRaces is how often an unconditional write is tried again after another writer
	// was first. Cloud Storage takes about one write a second of one name.
	maxRaces = 50
)

// write is a new object in the making: its place, its condition and its nonce. The
// reply of Cloud Storage may be lost after the write took effect. The SDK then repeats
// the write, the condition fails on the object that the first try made, and the nonce
// shows that the object is the write's own.
type write struct {
	key       string // for messages
	full      string // the name in the bucket
	nonce     string
	condition storage.Conditions
}

// created is the condition that the object does not exist.
var created = storage.Conditions{DoesNotExist: true}

// Put streams an object; see blob.Store. An object that fits in one chunk takes one
// request. A larger one takes a resumable upload.
//
// A put without a condition gets one: that the current version is still the one that
// Put found, because the SDK repeats no other write. If another writer was first, Put
// tries again with the bytes that it has in memory. Those of a large object would be
// gone: such an object is first made under another name, and then copied within Cloud
// Storage.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckPut(key, o); err != nil {
		return blob.Info{}, err
	}
	if err := b.Check(ctx); err != nil {
		return blob.Info{}, err
	}
	w := write{key: key, full: b.prefix + key, nonce: nonce()}
	conditional := true
	switch generation, ok := parseVersion(o.IfVersion); {
	case o.CreateOnly:
		w.condition = created
	case ok:
		w.condition = storage.Conditions{GenerationMatch: generation}
	case o.IfVersion != "":
		return blob.Info{}, fault.New(fault.Conflict, "put object %s: it has no version %q", key, o.IfVersion)
	default:
		conditional = false
	}
	first, more, err := readChunk(r, b.chunk)
	switch {
	case err != nil:
		return blob.Info{}, err
	case more && conditional:
		return b.upload(ctx, w, io.MultiReader(bytes.NewReader(first), r))
	case more:
		return b.replaceByCopy(ctx, w, io.MultiReader(bytes.NewReader(first), r))
	case conditional:
		return b.putWhole(ctx, w, first)
	}
	return b.replace(ctx, w, func(w write) (blob.Info, error) { return b.putWhole(ctx, w, first) })
}

// replace makes the object with the condition that nobody replaced the current
// version, again and again until nobody did.
func (b *Bucket) replace(ctx context.Context, w write, try func(write) (blob.Info, error)) (blob.Info, error) {
	var err error
	for range maxRaces {
		now, statErr := b.attributes(ctx, w.key, "")
		switch {
		case fault.Is(statErr, fault.NotFound):
			w.condition = created
		case statErr != nil:
			return blob.Info{}, statErr
		default:
			w.condition = storage.Conditions{GenerationMatch: now.Generation}
		}
		var info blob.Info
		if info, err = try(w); !fault.Is(err, fault.Conflict) {
			return info, err
		}
	}
	return blob.Info{}, fault.WithKind(fault.Throttled, err, "other writers replaced it %d times meanwhile", maxRaces)
}

// replaceByCopy makes a large object, whatever the current version is.
func (b *Bucket) replaceByCopy(ctx context.Context, w write, r io.Reader) (blob.Info, error) {
	whole := b.intermediate(w, "whole")
	defer b.discard(ctx, whole.full)
	info, err := b.upload(ctx, whole, r)
	if err != nil {
		return blob.Info{}, err
	}
	return b.replace(ctx, w, func(w write) (blob.Info, error) { return b.copy(ctx, w, made(whole, info)) })
}

// putWhole stores an object in one request.
func (b *Bucket) putWhole(ctx context.Context, w write, content []byte) (blob.Info, error) {
	out := b.writer(ctx, w)
	// The SDK copies the object into one buffer of this size.
	out.ChunkSize = len(content) + 1
	out.CRC32C, out.SendCRC32C = crc32.Checksum(content, castagnoli), true
	_, err := out.Write(content)
	if err = cmp.Or(out.Close(), err); err != nil { // Close knows the cause
		return b.settle(ctx, w, err)
	}
	return describe(w.key, out.Attrs()), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// upload stores the bytes of r in a resumable upload. It returns an error of r as it
// is, and stores nothing then.
func (b *Bucket) upload(ctx context.Context, w write, r io.Reader) (blob.Info, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := b.writer(ctx, w)
	out.ChunkSize = b.chunk
	reader := &errorReader{r: r}
	_, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{reader}, make([]byte, copyBuffer))
	if reader.err != nil {
		cancel() // the unfinished upload vanishes within a week, and is not billed
		_ = out.Close()
		return blob.Info{}, reader.err
	}
	if err = cmp.Or(out.Close(), err); err != nil { // Close knows the cause
		return b.settle(ctx, w, err)
	}
	return describe(w.key, out.Attrs()), nil
}

// copyBuffer is the size of the steps in which bytes go to the SDK's own buffer.
const copyBuffer = 256 << 10

// errorReader remembers the error of a reader, to tell it from an error of the writer.
type errorReader struct {
	r   io.Reader
	err error
}

func (r *errorReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// handle returns the handle of the object to make, with its condition.
func (b *Bucket) handle(w write) *storage.ObjectHandle {
	return b.bucket.Object(w.full).If(w.condition)
}

// writer returns the SDK's writer of the object, which tries each request of an upload
// maxTries times: the limit of the client's other requests does not count there.
func (b *Bucket) writer(ctx context.Context, w write) *storage.Writer {
	var tries atomic.Int32
	out := b.handle(w).Retryer(storage.WithBackoff(b.backoff), storage.WithErrorFunc(func(err error) bool {
		return storage.ShouldRetry(err) && tries.Add(1) < maxTries
	})).NewWriter(ctx)
	out.ProgressFunc = func(int64) { tries.Store(0) }
	out.Metadata = map[string]string{nonceKey: w.nonce}
	return out
}

// settle decides the result of a write that Cloud Storage refused. The write succeeded
// if the object that stands in its way has its nonce.
//
// To write over an object takes the permission to delete it. Accounts without it may be
// refused for that before the write's condition is looked at: a refused creation is a
// conflict if the object exists.
func (b *Bucket) settle(ctx context.Context, w write, err error) (blob.Info, error) {
	translated := translate(ctx, err, "put object %s", w.key)
	denied := fault.Is(translated, fault.Denied) && w.condition.DoesNotExist
	if !denied && !fault.Is(translated, fault.Conflict) {
		return blob.Info{}, translated
	}
	now, statErr := b.bucket.Object(w.full).Attrs(ctx)
	statErr = translate(ctx, statErr, "read object %s after a conflict", w.key)
	switch {
	case statErr == nil && now.Metadata[nonceKey] == w.nonce:
		return describe(w.key, now), nil
	case denied && statErr == nil:
		return blob.Info{}, fault.WithKind(fault.Conflict, err, "put object %s, which exists", w.key)
	case denied:
		return blob.Info{}, translated
	case statErr != nil && !fault.Is(statErr, fault.NotFound):
		return blob.Info{}, statErr
	}
	return blob.Info{}, translated
}

// readChunk reads up to size bytes. more reports whether the reader may have more.
// readChunk returns the reader's error unchanged.
func readChunk(r io.Reader, size int) (chunk []byte, more bool, err error) {
	empty := 0
	for len(chunk) < size {
		if len(chunk) == cap(chunk) {
			grown := make([]byte, len(chunk), min(size, max(64<<10, 2*cap(chunk))))
			copy(grown, chunk)
			chunk = grown
		}
		n, err := r.Read(chunk[len(chunk):cap(chunk)])
		chunk = chunk[:len(chunk)+n]
		if n > 0 {
			empty = 0
		} else if empty++; empty > 100 && err == nil {
			return nil, false, io.ErrNoProgress
		}
		switch {
		case err == io.EOF:
			return chunk, false, nil
		case err != nil:
			return nil, false, err
		}
	}
	return chunk, true, nil
}
