package gcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// BucketOptions configure a Bucket.
type BucketOptions struct {
	// Prefix is prepended to every key in the bucket and is not part of the port's
	// keys. Example: "team-a/". Default: "".
	Prefix string
	// Intermediates is the folder below Prefix for objects that a Join or a large Put
	// makes and removes again; the bucket's lifecycle rules must delete what a crash
	// leaves there. Default: "pending/".
	Intermediates string
	// ChunkBytes is the size of the requests of a large upload, which are repeated
	// whole; 0 means 16 MiB. The SDK rounds it up to a multiple of 256 KiB. A Put holds
	// at most two chunks in memory.
	ChunkBytes int
	// Backoff is the wait between the SDK's tries; the zero value is its default.
	Backoff gax.Backoff
	// SDK are further options of the client, for tests.
	SDK []option.ClientOption
}

// Bucket is a bucket of Cloud Storage with versioning as a blob.Store. A version is
// the object's generation.
type Bucket struct {
	client        *storage.Client
	bucket        *storage.BucketHandle
	name          string
	prefix        string
	intermediates string
	chunk         int
	backoff       gax.Backoff

	mu        sync.Mutex
	versioned bool // versioning is known to be enabled
}

var _ blob.Store = (*Bucket)(nil)

const (
	// maxOffset is beyond the end of any object.
	maxOffset = int64(1) << 50
	// maxTries is the most tries of one request. The SDK alone would go on until the
	// context ends.
	maxTries = 5
)

// NewBucket returns the bucket; it sends no request. The client needs no closing.
func NewBucket(ctx context.Context, cfg Config, name string, o BucketOptions) (*Bucket, error) {
	// Reads keep the SDK's default, the XML interface: the JSON one cannot read an object
	// with a Content-Encoding as it is stored.
	client, err := storage.NewClient(ctx, cfg.httpOptions(StorageEmulatorVariable, o.SDK...)...)
	if err != nil {
		return nil, translate(ctx, err, "open the bucket %s", name)
	}
	client.SetRetry(storage.WithMaxAttempts(maxTries), storage.WithBackoff(o.Backoff))
	return &Bucket{
		client:        client,
		bucket:        client.Bucket(name),
		name:          name,
		prefix:        o.Prefix,
		intermediates: o.Prefix + cmp.Or(o.Intermediates, "pending/"),
		chunk:         cmp.Or(o.ChunkBytes, 16<<20),
		backoff:       o.Backoff,
	}, nil
}

// object returns the handle of a key.
func (b *Bucket) object(key string) *storage.ObjectHandle { return b.bucket.Object(b.prefix + key) }

// parseVersion returns the generation that a version names, and false if no object
// can have it.
func parseVersion(version string) (generation int64, ok bool) {
	generation, err := strconv.ParseInt(version, 10, 64)
	return generation, err == nil && generation > 0
}

func formatVersion(generation int64) string { return strconv.FormatInt(generation, 10) }

// at returns the handle of a version of a key, or of its current one for "".
func (b *Bucket) at(key, version string) (*storage.ObjectHandle, error) {
	if version == "" {
		return b.object(key), nil
	}
	generation, ok := parseVersion(version)
	if !ok {
		return nil, fault.New(fault.NotFound, "object %s has no version %q", key, version)
	}
	return b.object(key).Generation(generation), nil
}

// Get opens an object; see blob.Store. It returns the bytes as they are stored, also
// those of an object with a Content-Encoding.
func (b *Bucket) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckGet(key, o); err != nil {
		return nil, blob.Info{}, err
	}
	if o.Offset >= maxOffset {
		return b.getEmpty(ctx, key, o.Version)
	}
	object, err := b.at(key, o.Version)
	if err != nil {
		return nil, blob.Info{}, err
	}
	length := int64(-1) // to the end
	if o.Length > 0 && o.Length < maxOffset {
		length = o.Length
	}
	r, err := object.ReadCompressed(true).NewRangeReader(ctx, o.Offset, length)
	if statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		return b.getEmpty(ctx, key, o.Version)
	}
	if err != nil {
		return nil, blob.Info{}, b.missing(ctx, translate(ctx, err, "get object %s", key))
	}
	return &body{ctx: ctx, ReadCloser: r, key: key, left: r.Remain()}, blob.Info{
		Key: key, Size: r.Attrs.Size, Version: formatVersion(r.Attrs.Generation), ModTime: r.Attrs.LastModified,
	}, nil
}

// getEmpty returns an empty reader and the info of the object: the requested
// range is past its end.
func (b *Bucket) getEmpty(ctx context.Context, key, version string) (io.ReadCloser, blob.Info, error) {
	info, err := b.Stat(ctx, key, version)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return http.NoBody, info, nil
}

// body reads the bytes of an object. The SDK has already repeated a read that broke.
// Its error does not wrap the cause, because readers would take a wrapped
// io.ErrUnexpectedEOF for the end of the object.
type body struct {
	ctx context.Context
	io.ReadCloser
	key  string
	left int64 // bytes that the answer still owes
}

// Read returns the next bytes. An error after the last byte is the SDK's about a wrong
// checksum: it is Corrupt, because a caller who resumes behind the last byte would
// never see it again. Any other one is Unavailable.
func (r *body) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.left -= int64(n)
	switch {
	case err == nil, err == io.EOF:
		return n, err
	case r.ctx.Err() != nil:
		return n, fault.WithKind(fault.Canceled, r.ctx.Err(), "read object %s", r.key)
	case r.left == 0:
		return n, fault.New(fault.Corrupt, "read object %s: %v", r.key, err)
	}
	return n, fault.New(fault.Unavailable, "read object %s: %v", r.key, err)
}

// Stat describes an object; see blob.Store.
func (b *Bucket) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	attributes, err := b.attributes(ctx, key, version)
	if err != nil {
		return blob.Info{}, err
	}
	return describe(key, attributes), nil
}

// attributes is Stat that returns what Cloud Storage says of the object.
func (b *Bucket) attributes(ctx context.Context, key, version string) (*storage.ObjectAttrs, error) {
	if err := blob.CheckKey(key); err != nil {
		return nil, err
	}
	object, err := b.at(key, version)
	if err != nil {
		return nil, err
	}
	attributes, err := object.Attrs(ctx)
	if err != nil {
		return nil, b.missing(ctx, translate(ctx, err, "stat object %s", key))
	}
	return attributes, nil
}

// describe returns the info of the object with these attributes.
func describe(key string, a *storage.ObjectAttrs) blob.Info {
	return blob.Info{Key: key, Size: a.Size, Version: formatVersion(a.Generation), ModTime: a.Created}
}

// missing makes an error about a missing object one about the bucket if the bucket is
// missing too.
func (b *Bucket) missing(ctx context.Context, err error) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	if checkErr := b.Check(ctx); fault.Is(checkErr, fault.NotFound) {
		return checkErr
	}
	return err
}

// Delete removes a key; see blob.Store. Its bytes stay as an old version until the
// bucket's lifecycle rules remove them.
func (b *Bucket) Delete(ctx context.Context, key, version string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	for range maxRaces {
		now, err := b.attributes(ctx, key, "")
		switch {
		case fault.Is(err, fault.NotFound) && !errors.Is(err, errNoBucket):
			return nil
		case err != nil:
			return err
		case version != "" && formatVersion(now.Generation) != version:
			return fault.New(fault.Conflict, "delete object %s: its version is %d, not %s", key, now.Generation, version)
		}
		err = b.object(key).If(storage.Conditions{GenerationMatch: now.Generation}).Delete(ctx)
		if err = translate(ctx, err, "delete object %s", key); !fault.Is(err, fault.Conflict) {
			if fault.Is(err, fault.NotFound) {
				return nil
			}
			return err
		}
		// Somebody replaced or deleted it meanwhile.
	}
	return fault.New(fault.Throttled, "delete object %s: other writers replaced it %d times meanwhile", key, maxRaces)
}

// errNoBucket is in the chain of an error about a missing bucket.
var errNoBucket = errors.New("the bucket does not exist")

// Check fails with Invalid if the bucket does not keep versions: runs refer to
// versions of their inputs. A Bucket calls it before its first write.
func (b *Bucket) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.versioned {
		return nil
	}
	attributes, err := b.bucket.Attrs(ctx)
	op := "read the versioning of the bucket " + b.name
	err = translate(ctx, err, "%s", op)
	switch {
	case fault.Is(err, fault.NotFound):
		return &fault.Error{Kind: fault.NotFound, Op: op, Err: errNoBucket,
			Remedy: "deploy the installation, or check cloud.gcs.bucket"}
	case err != nil:
		return err
	}
	if b.versioned = attributes.VersioningEnabled; b.versioned {
		return nil
	}
	return &fault.Error{Kind: fault.Invalid, Err: errors.New("the bucket " + b.name + " does not keep versions"),
		Remedy: "run gcloud storage buckets update gs://" + b.name + " --versioning"}
}

// nonce returns a random name of one write, so that a retry recognizes its own
// result.
func nonce() string { return rand.Text() }
