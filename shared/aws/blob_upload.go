package aws

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// abortTime is the time limit of aborting an upload. The bucket's lifecycle rules
// remove the parts of an upload that was not aborted.
const abortTime = 15 * time.Second

// upload is a multipart upload in progress.
type upload struct {
	*Bucket
	ctx  context.Context
	key  string
	id   *string
	size int64

	mu    sync.Mutex
	parts []types.CompletedPart
}

// upload creates an object from the parts that send sends. It aborts the upload if
// a part fails.
func (b *Bucket) upload(ctx context.Context, w write, send func(*upload) error) (blob.Info, error) {
	created, err := b.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &b.name, Key: b.full(w.key), Metadata: map[string]string{nonceKey: w.nonce},
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err != nil {
		return blob.Info{}, translate(ctx, err, "put object %s", w.key)
	}
	u := &upload{Bucket: b, ctx: ctx, key: w.key, id: created.UploadId}
	if err := send(u); err != nil {
		u.abort()
		return blob.Info{}, err
	}
	slices.SortFunc(u.parts, func(a, b types.CompletedPart) int { return cmp.Compare(*a.PartNumber, *b.PartNumber) })
	out, err := b.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: b.full(w.key), UploadId: u.id, IfNoneMatch: w.ifNoneMatch, IfMatch: w.ifMatch,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	if err != nil {
		info, err := b.settle(ctx, w, err)
		if err != nil {
			u.abort()
		}
		return info, err
	}
	return b.written(w, u.size, out.VersionId, out.ResultMetadata)
}

// abort discards the upload, even after its context has ended. It ignores errors:
// leftover parts only cost storage until the lifecycle rules remove them.
func (u *upload) abort() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	_, _ = u.s3.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.name, Key: u.full(u.key), UploadId: u.id,
	})
}

// stream sends the first part and the rest of r. It sends one part while it reads
// the next into the other of two buffers.
func (u *upload) stream(r io.Reader, first []byte) error {
	buffers := make(chan []byte, 2)
	buffers <- nil
	sent := make(chan error, 1)
	sent <- nil
	part, more := first, true
	for number := int32(1); ; number++ {
		if err := <-sent; err != nil {
			return err
		}
		sending := part
		go func() {
			err := u.send(number, sending)
			buffers <- sending
			sent <- err
		}()
		if !more {
			return <-sent
		}
		var err error
		if part, more, err = readPart(r, <-buffers, u.part); err != nil {
			<-sent // the reader's error takes precedence
			return err
		}
		if len(part) == 0 {
			return <-sent
		}
		if number == maxParts {
			<-sent
			err := fault.New(
				fault.Exhausted,
				"put object %s: it is larger than %d parts of %d MiB",
				u.key,
				maxParts,
				u.part>>20,
			)
			return &fault.Error{
				Kind:   fault.Exhausted,
				Err:    err,
				Remedy: "store smaller objects, or set a larger BucketOptions.PartBytes",
			}
		}
	}
}

// send uploads one part.
func (u *upload) send(number int32, content []byte) error {
	out, err := u.s3.UploadPart(u.ctx, &s3.UploadPartInput{
		Bucket: &u.name, Key: u.full(u.key), UploadId: u.id, PartNumber: &number,
		Body: bytes.NewReader(content), ContentLength: awssdk.Int64(int64(len(content))),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err != nil {
		return translate(u.ctx, err, "put object %s, part %d", u.key, number)
	}
	u.done(int64(len(content)), completed(number, out.ETag, types.CopyPartResult{ChecksumCRC32: out.ChecksumCRC32}))
	return nil
}

// copy makes S3 copy a piece of another object into a part.
func (u *upload) copy(number int32, p piece) error {
	out, err := u.s3.UploadPartCopy(u.ctx, &s3.UploadPartCopyInput{
		Bucket: &u.name, Key: u.full(u.key), UploadId: u.id, PartNumber: &number,
		CopySource: awssdk.String(u.source(p)), CopySourceRange: p.bytes(),
	})
	if err != nil {
		return translate(u.ctx, err, "join %s: copy a part of %s", u.key, p.key)
	}
	if out.CopyPartResult == nil {
		return fault.New(
			fault.Unavailable,
			"join %s: S3 returned no result for the copy of a part of %s",
			u.key,
			p.key,
		)
	}
	u.done(p.length, completed(number, out.CopyPartResult.ETag, *out.CopyPartResult))
	return nil
}

// done records a stored part.
func (u *upload) done(size int64, part types.CompletedPart) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.size += size
	u.parts = append(u.parts, part)
}
