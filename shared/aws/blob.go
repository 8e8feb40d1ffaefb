package aws

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// BucketOptions are what a Bucket is not told by its port.
type BucketOptions struct {
	// Prefix stands before every key in the bucket, and is not part of the
	// port's keys: "team-a/". "" is none.
	Prefix string
	// PartBytes is the size of an upload's parts; 0 is 16 MiB, the least is
	// 5 MiB. A Put holds at most two parts in memory, and stores at most
	// 10,000 of them: 156 GiB by default.
	PartBytes int
	// SDK are further options of the client, for tests.
	SDK []func(*s3.Options)
}

// Bucket is a versioned S3 bucket as a blob.Store; a version is S3's version
// id.
//
// S3 compares an object's ETag, not its version: an IfVersion also holds if
// the object was replaced by the same bytes since.
type Bucket struct {
	s3     *s3.Client
	name   string
	prefix string
	part   int

	mu        sync.Mutex
	versioned bool // seen to keep versions
}

var _ blob.Store = (*Bucket)(nil)

// S3's limits, in bytes and parts.
const (
	minPart  = 5 << 20
	maxPart  = 5 << 30
	maxParts = 10_000
	// farAway is beyond the end of any object.
	farAway = int64(1) << 50
)

// NewBucket returns the bucket; it asks for nothing yet.
func NewBucket(cfg awssdk.Config, name string, o BucketOptions) *Bucket {
	options := append([]func(*s3.Options){func(s *s3.Options) {
		s.UsePathStyle = s.BaseEndpoint != nil // an endpoint by address has no names below it
		s.DisableLogOutputChecksumValidationSkipped = true
	}}, o.SDK...)
	return &Bucket{s3: s3.NewFromConfig(cfg, options...), name: name, prefix: o.Prefix, part: max(cmp.Or(o.PartBytes, 16<<20), minPart)}
}

// Get opens an object; see blob.Store.
func (b *Bucket) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckGet(key, o); err != nil {
		return nil, blob.Info{}, err
	}
	if o.Offset >= farAway {
		return b.getNothing(ctx, key, o.Version)
	}
	in := &s3.GetObjectInput{Bucket: &b.name, Key: b.full(key), VersionId: optional(o.Version)}
	if o.Offset > 0 || o.Length > 0 {
		to := ""
		if o.Length > 0 && o.Length < farAway {
			to = strconv.FormatInt(o.Offset+o.Length-1, 10)
		}
		in.Range = awssdk.String("bytes=" + strconv.FormatInt(o.Offset, 10) + "-" + to)
	}
	out, err := b.s3.GetObject(ctx, in)
	if statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		return b.getNothing(ctx, key, o.Version)
	}
	if err != nil {
		return nil, blob.Info{}, absent(translate(ctx, err, "get object %s", key), err, o.Version)
	}
	size := awssdk.ToInt64(out.ContentLength)
	if _, total, ok := strings.Cut(awssdk.ToString(out.ContentRange), "/"); ok {
		size, err = strconv.ParseInt(total, 10, 64)
	}
	if err == nil {
		var info blob.Info
		if info, err = b.info(key, size, out.VersionId, out.LastModified); err == nil {
			return &body{ctx, out.Body, key}, info, nil
		}
	}
	_ = out.Body.Close() // it was not asked for
	return nil, blob.Info{}, fault.Wrap(err, "get object %s", key)
}

// getNothing is a Get of no bytes.
func (b *Bucket) getNothing(ctx context.Context, key, version string) (io.ReadCloser, blob.Info, error) {
	info, err := b.Stat(ctx, key, version)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return http.NoBody, info, nil
}

// body is an object's bytes on their way; a connection that breaks is
// Unavailable. What it broke of is told in words alone: an io.ErrUnexpectedEOF
// would pass for the end of the object.
type body struct {
	ctx context.Context
	io.ReadCloser
	key string
}

func (r *body) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if r.ctx.Err() != nil {
		return n, fault.WithKind(fault.Canceled, r.ctx.Err(), "read object %s", r.key)
	}
	return n, fault.New(fault.Unavailable, "read object %s: %v", r.key, err)
}

// Stat describes an object; see blob.Store.
func (b *Bucket) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	info, _, err := b.head(ctx, key, version)
	return info, err
}

// head also returns what the port does not show.
func (b *Bucket) head(ctx context.Context, key, version string) (blob.Info, *s3.HeadObjectOutput, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, nil, err
	}
	out, err := b.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: b.full(key), VersionId: optional(version)})
	if lacksErrorBody(err) {
		err = b.explainHead(ctx, key, version, err)
	}
	if err != nil {
		return blob.Info{}, nil, absent(translate(ctx, err, "stat object %s", key), err, version)
	}
	info, err := b.info(key, awssdk.ToInt64(out.ContentLength), out.VersionId, out.LastModified)
	return info, out, fault.Wrap(err, "stat object %s", key)
}

// lacksErrorBody reports whether S3 refused a HEAD for a reason that it did not say:
// the answer to a HEAD has no body. Expired credentials look like a version that
// is none, and a bucket in another region like nothing at all.
func lacksErrorBody(err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMovedPermanently:
		return true
	}
	return false
}

// explainHead asks for the same in a way that has words, and returns the better error.
func (b *Bucket) explainHead(ctx context.Context, key, version string, err error) error {
	out, better := b.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: b.full(key), VersionId: optional(version), Range: awssdk.String("bytes=0-0")})
	if better == nil {
		_ = out.Body.Close() // it was not asked for
		return err
	}
	if statusOf(better) == http.StatusRequestedRangeNotSatisfiable { // it is there, and empty
		return err
	}
	return better
}

// absent turns what S3 says of versions that are none into NotFound: a version
// id that it did not make is a bad argument to it, a mark of deletion not
// allowed.
func absent(translated, err error, version string) error {
	if version != "" && (statusOf(err) == http.StatusMethodNotAllowed || codeOf(err) == "InvalidArgument") {
		return fault.WithKind(fault.NotFound, translated, "version %q", version)
	}
	return translated
}

// Delete removes a key; see blob.Store. Old versions stay, for the bucket's
// lifecycle to remove.
func (b *Bucket) Delete(ctx context.Context, key, version string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	in := &s3.DeleteObjectInput{Bucket: &b.name, Key: b.full(key)}
	if version != "" {
		info, head, err := b.head(ctx, key, "")
		switch {
		case fault.Is(err, fault.NotFound):
			return nil
		case err != nil:
			return err
		case info.Version != version:
			return fault.New(fault.Conflict, "delete object %s: its version is %s, not %s", key, info.Version, version)
		}
		in.IfMatch = head.ETag
	}
	_, err := b.s3.DeleteObject(ctx, in)
	if err = translate(ctx, err, "delete object %s", key); fault.Is(err, fault.NotFound) && codeOf(err) != "NoSuchBucket" {
		return nil
	}
	return err
}

// full returns the key in the bucket.
func (b *Bucket) full(key string) *string { return awssdk.String(b.prefix + key) }

// info describes a version as S3 told it. Without a version id the bucket keeps
// no versions, and nothing that is read can be pinned.
func (b *Bucket) info(key string, size int64, version *string, modified *time.Time) (blob.Info, error) {
	if awssdk.ToString(version) == "" {
		return blob.Info{}, b.unversioned()
	}
	return blob.Info{Key: key, Size: size, Version: *version, ModTime: awssdk.ToTime(modified)}, nil
}

func (b *Bucket) unversioned() error {
	return &fault.Error{Kind: fault.Invalid, Err: errors.New("the bucket " + b.name + " does not keep versions"),
		Remedy: "aws s3api put-bucket-versioning --bucket " + b.name + " --versioning-configuration Status=Enabled"}
}

// Check refuses a bucket that keeps no versions, as Invalid. A Bucket calls it
// before it first writes.
func (b *Bucket) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.versioned {
		return nil
	}
	out, err := b.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.name})
	if err != nil {
		return translate(ctx, err, "look at the bucket %s", b.name)
	}
	if b.versioned = out.Status == types.BucketVersioningStatusEnabled; !b.versioned {
		return b.unversioned()
	}
	return nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// nonce names one write, so that its repetition can be told from another's.
func nonce() string { return rand.Text() }
