package aws

import (
	"bytes"
	"context"
	"io"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// nonceKey is the metadata key of an object that holds its write's nonce.
const nonceKey = "rollout-put"

// write is a Put or Join in progress: its key, its condition and its nonce. S3's
// response may be lost after the write took effect. The SDK then retries the
// write, the condition fails on the object that the first attempt made, and the
// nonce shows that the object is the write's own.
type write struct {
	key         string
	nonce       string
	ifNoneMatch *string
	ifMatch     *string // an ETag
}

// Put streams an object; see blob.Store. An object that fits in one part takes one
// request. A larger one is a multipart upload that sends one part while it reads
// the next.
func (b *Bucket) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckPut(key, o); err != nil {
		return blob.Info{}, err
	}
	w, err := b.begin(ctx, key, o)
	if err != nil {
		return blob.Info{}, err
	}
	first, more, err := readPart(r, nil, b.part)
	if err != nil {
		return blob.Info{}, err
	}
	if !more {
		return b.putWhole(ctx, w, first)
	}
	return b.upload(ctx, w, func(u *upload) error { return u.stream(r, first) })
}

// begin checks the bucket and translates the condition into headers of S3.
func (b *Bucket) begin(ctx context.Context, key string, o blob.PutOptions) (write, error) {
	w := write{key: key, nonce: nonce()}
	if err := b.Check(ctx); err != nil {
		return w, err
	}
	if o.CreateOnly {
		w.ifNoneMatch = awssdk.String("*")
	}
	if o.IfVersion != "" {
		info, head, err := b.head(ctx, key, "")
		switch {
		case fault.Is(err, fault.NotFound):
			return w, fault.WithKind(fault.Conflict, err, "put object %s over version %s", key, o.IfVersion)
		case err != nil:
			return w, err
		case info.Version != o.IfVersion:
			return w, fault.New(fault.Conflict, "put object %s: its version is %s, not %s", key, info.Version, o.IfVersion)
		}
		w.ifMatch = head.ETag
	}
	return w, nil
}

// putWhole stores an object in one request.
func (b *Bucket) putWhole(ctx context.Context, w write, content []byte) (blob.Info, error) {
	out, err := b.s3.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: b.full(w.key), IfNoneMatch: w.ifNoneMatch, IfMatch: w.ifMatch,
		Body: bytes.NewReader(content), ContentLength: awssdk.Int64(int64(len(content))),
		Metadata: map[string]string{nonceKey: w.nonce},
	}, func(o *s3.Options) {
		// Concurrent conditional requests may all be refused before one succeeds.
		// The bytes are in memory, so the request can be retried.
		o.Retryer = retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict")
	})
	if err != nil {
		return b.settle(ctx, w, err)
	}
	return b.written(w, int64(len(content)), out.VersionId, out.ResultMetadata)
}

// written returns the info of the object that a request created. S3 does not
// return its modification time; written takes the time of the response.
func (b *Bucket) written(w write, size int64, version *string, answer middleware.Metadata) (blob.Info, error) {
	at, ok := awsmiddleware.GetServerTime(answer)
	if !ok {
		at = time.Now()
	}
	info, err := b.info(w.key, size, version, &at)
	return info, fault.Wrap(err, "put object %s", w.key)
}

// settle decides the result of a write that S3 refused. The write succeeded if the
// conflicting object has its nonce.
func (b *Bucket) settle(ctx context.Context, w write, err error) (blob.Info, error) {
	translated := translate(ctx, err, "put object %s", w.key)
	if !fault.Is(translated, fault.Conflict) && codeOf(err) != "NoSuchUpload" {
		return blob.Info{}, translated
	}
	info, head, headErr := b.head(ctx, w.key, "")
	if headErr == nil && head.Metadata[nonceKey] == w.nonce {
		return info, nil
	}
	if headErr != nil && !fault.Is(headErr, fault.NotFound) {
		return blob.Info{}, fault.Wrap(headErr, "read the object after a conflict")
	}
	return blob.Info{}, translated
}

// readPart reads up to size bytes into buffer, which it grows as needed. more
// reports whether the reader may have more. readPart returns the reader's error
// unchanged.
func readPart(r io.Reader, buffer []byte, size int) (part []byte, more bool, err error) {
	part = buffer[:0]
	empty := 0
	for len(part) < size {
		if len(part) == cap(part) {
			grown := make([]byte, len(part), min(size, max(64<<10, 2*cap(part))))
			copy(grown, part)
			part = grown
		}
		n, err := r.Read(part[len(part):min(cap(part), size)])
		part = part[:len(part)+n]
		if n > 0 {
			empty = 0
		} else if empty++; empty > 100 && err == nil {
			return nil, false, io.ErrNoProgress
		}
		switch {
		case err == io.EOF:
			return part, false, nil
		case err != nil:
			return nil, false, err
		}
	}
	return part, true, nil
}

// completed returns a part as CompleteMultipartUpload names it.
func completed(number int32, etag *string, sums types.CopyPartResult) types.CompletedPart {
	return types.CompletedPart{
		PartNumber:        &number,
		ETag:              etag,
		ChecksumCRC32:     sums.ChecksumCRC32,
		ChecksumCRC32C:    sums.ChecksumCRC32C,
		ChecksumCRC64NVME: sums.ChecksumCRC64NVME,
		ChecksumSHA1:      sums.ChecksumSHA1,
		ChecksumSHA256:    sums.ChecksumSHA256,
	}
}
