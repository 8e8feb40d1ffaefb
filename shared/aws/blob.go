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

// BucketOptions configure a Bucket.
type BucketOptions struct {
	// Prefix is prepended to every key in the bucket and is not part of the port's
	// keys. Example: "team-a/". Default: "".
	Prefix string
	// PartBytes is the size of the parts of an upload; 0 means 16 MiB, the minimum
	// is 5 MiB. A Put holds at most two parts in memory and stores at most 10,000
	// parts: 156 GiB by default.
	PartBytes int
	// SDK are further options of the client, for tests.
	SDK []func(*s3.Options)
}

// Bucket is a versioned S3 bucket as a blob.Store. A version is S3's version id.
//
// S3 compares the ETag of an object, not its version: IfVersion also succeeds if
// the object was replaced by the same bytes since.
type Bucket struct {
	s3     *s3.Client
	name   string
	prefix string
	part   int

	mu        sync.Mutex
	versioned bool // versioning is known to be enabled
}

var _ blob.Store = (*Bucket)(nil)

// S3's limits, in bytes and parts.
const (
	minPart  = 5 << 20
	maxPart  = 5 << 30
	maxParts = 10_000
	// maxOffset is beyond the end of any object.
	maxOffset = int64(1) << 50
)

// NewBucket returns the bucket; it sends no request.
func NewBucket(cfg awssdk.Config, name string, o BucketOptions) *Bucket {
	options := append([]func(*s3.Options){func(s *s3.Options) {
		s.UsePathStyle = s.BaseEndpoint != nil // a custom endpoint has no subdomain for each bucket
		s.DisableLogOutputChecksumValidationSkipped = true
	}}, o.SDK...)
	return &Bucket{
		s3:     s3.NewFromConfig(cfg, options...),
		name:   name,
		prefix: o.Prefix,
		part:   max(cmp.Or(o.PartBytes, 16<<20), minPart),
	}
}

// Get opens an object; see blob.Store.
func (b *Bucket) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if err := blob.CheckGet(key, o); err != nil {
		return nil, blob.Info{}, err
	}
	if o.Offset >= maxOffset {
		return b.getEmpty(ctx, key, o.Version)
	}
	in := &s3.GetObjectInput{Bucket: &b.name, Key: b.full(key), VersionId: optional(o.Version)}
	if o.Offset > 0 || o.Length > 0 {
		to := ""
		if o.Length > 0 && o.Length < maxOffset {
			to = strconv.FormatInt(o.Offset+o.Length-1, 10)
		}
		in.Range = awssdk.String("bytes=" + strconv.FormatInt(o.Offset, 10) + "-" + to)
	}
	out, err := b.s3.GetObject(ctx, in)
	if statusOf(err) == http.StatusRequestedRangeNotSatisfiable {
		return b.getEmpty(ctx, key, o.Version)
	}
	if err != nil {
		return nil, blob.Info{}, missingVersion(translate(ctx, err, "get object %s", key), err, o.Version)
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
	_ = out.Body.Close() // the bytes are not used
	return nil, blob.Info{}, fault.Wrap(err, "get object %s", key)
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

// body reads the bytes of an object. A broken connection is Unavailable. Its error
// does not wrap the cause, because readers would take a wrapped
// io.ErrUnexpectedEOF for the end of the object.
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

// head is Stat that also returns S3's response, with the ETag and the metadata.
func (b *Bucket) head(ctx context.Context, key, version string) (blob.Info, *s3.HeadObjectOutput, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, nil, err
	}
	out, err := b.s3.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: b.full(key), VersionId: optional(version)})
	if lacksErrorBody(err) {
		err = b.explainHead(ctx, key, version, err)
	}
	if err != nil {
		return blob.Info{}, nil, missingVersion(translate(ctx, err, "stat object %s", key), err, version)
	}
	info, err := b.info(key, awssdk.ToInt64(out.ContentLength), out.VersionId, out.LastModified)
	return info, out, fault.Wrap(err, "stat object %s", key)
}

// lacksErrorBody reports whether S3 refused a HEAD without giving the reason: the
// response to a HEAD has no body. Expired credentials then look like an unknown
// version, and a bucket in another region like a missing object.
func lacksErrorBody(err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusMovedPermanently:
		return true
	}
	return false
}

// explainHead repeats a refused HEAD as a GET, whose response has an error code,
// and returns the more specific error of both.
func (b *Bucket) explainHead(ctx context.Context, key, version string, err error) error {
	out, specific := b.s3.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.name, Key: b.full(key), VersionId: optional(version), Range: awssdk.String("bytes=0-0"),
	})
	if specific == nil {
		_ = out.Body.Close() // the bytes are not used
		return err
	}
	if statusOf(specific) == http.StatusRequestedRangeNotSatisfiable { // the object exists and is empty
		return err
	}
	return specific
}

// missingVersion turns S3's errors about a version that does not exist into
// NotFound: S3 calls an unknown version id an invalid argument, and a delete
// marker a method that is not allowed.
func missingVersion(translated, err error, version string) error {
	if version != "" && (statusOf(err) == http.StatusMethodNotAllowed || codeOf(err) == "InvalidArgument") {
		return fault.WithKind(fault.NotFound, translated, "version %q", version)
	}
	return translated
}

// Delete removes a key; see blob.Store. Old versions stay until the bucket's
// lifecycle rules remove them.
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

// info returns the info of a version. It fails if S3 returned no version id: the
// bucket then does not keep versions, and a read could not be pinned to one.
func (b *Bucket) info(key string, size int64, version *string, modified *time.Time) (blob.Info, error) {
	if awssdk.ToString(version) == "" {
		return blob.Info{}, b.unversioned()
	}
	return blob.Info{Key: key, Size: size, Version: *version, ModTime: awssdk.ToTime(modified)}, nil
}

func (b *Bucket) unversioned() error {
	return &fault.Error{Kind: fault.Invalid, Err: errors.New("the bucket " + b.name + " does not keep versions"),
		Remedy: "run aws s3api put-bucket-versioning --bucket " + b.name + " --versioning-configuration Status=Enabled"}
}

// Check fails with Invalid if the bucket does not keep versions. A Bucket calls it
// before its first write.
func (b *Bucket) Check(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.versioned {
		return nil
	}
	out, err := b.s3.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &b.name})
	if err != nil {
		return translate(ctx, err, "read the versioning of the bucket %s", b.name)
	}
	if b.versioned = out.Status == types.BucketVersioningStatusEnabled; !b.versioned {
		return b.unversioned()
	}
	return nil
}

// optional returns nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// nonce returns a random name of one write, so that a retry recognizes its own
// result.
func nonce() string { return rand.Text() }
