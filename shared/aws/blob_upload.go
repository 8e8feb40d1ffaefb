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

// abortTime is how long giving an upload up may take. What is left over after
// that, the bucket's lifecycle removes.
const abortTime = 15 * time.Second

// upload is a multipart upload on its way.
type upload struct {
	*Bucket
	ctx  context.Context
	key  string
	id   *string
	size int64

	mu    sync.Mutex
	parts []types.CompletedPart
}

// upload makes an object of the parts that send sends; if anything fails,
// nothing is left of it.
func (b *Bucket) upload(ctx context.Context, w write, send func(*upload) error) (blob.Info, error) {
	made, err := b.s3.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &b.name, Key: b.full(w.key), Metadata: map[string]string{nonceKey: w.nonce}, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err != nil {
		return blob.Info{}, translate(ctx, err, "put object %s", w.key)
	}
	u := &upload{Bucket: b, ctx: ctx, key: w.key, id: made.UploadId}
	if err := send(u); err != nil {
		u.abort()
		return blob.Info{}, err
	}
	slices.SortFunc(u.parts, func(a, b types.CompletedPart) int { return cmp.Compare(*a.PartNumber, *b.PartNumber) })
	out, err := b.s3.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &b.name, Key: b.full(w.key), UploadId: u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
		IfNoneMatch: w.ifNoneMatch, IfMatch: w.ifMatch,
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

// abort gives the upload up, also when its context has ended. That it fails
// costs storage alone, until the lifecycle removes the parts.
func (u *upload) abort() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTime)
	defer cancel()
	_, _ = u.s3.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.name, Key: u.full(u.key), UploadId: u.id})
}

// stream sends what r has after the first part: one part is sent while the
// next is read, into the other of two buffers.
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
			<-sent // the reader's error is the one that counts
			return err
		}
		if len(part) == 0 {
			return <-sent
		}
		if number == maxParts {
			<-sent
			return &fault.Error{Kind: fault.Exhausted, Err: fault.New(fault.Exhausted, "put object %s: it is larger than %d parts of %d MiB", u.key, maxParts, u.part>>20),
				Remedy: "use larger parts"}
		}
	}
}

// send uploads one part.
func (u *upload) send(number int32, content []byte) error {
	out, err := u.s3.UploadPart(u.ctx, &s3.UploadPartInput{
		Bucket: &u.name, Key: u.full(u.key), UploadId: u.id, PartNumber: &number,
		Body: bytes.NewReader(content), ContentLength: awssdk.Int64(int64(len(content))), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err != nil {
		return translate(u.ctx, err, "put object %s, part %d", u.key, number)
	}
	u.done(int64(len(content)), completed(number, out.ETag, types.CopyPartResult{ChecksumCRC32: out.ChecksumCRC32}))
	return nil
}

// copy has S3 make a part of a piece of another object.
func (u *upload) copy(number int32, p piece) error {
	out, err := u.s3.UploadPartCopy(u.ctx, &s3.UploadPartCopyInput{
		Bucket: &u.name, Key: u.full(u.key), UploadId: u.id, PartNumber: &number,
		CopySource: awssdk.String(u.source(p)), CopySourceRange: p.bytes(),
	})
	if err != nil {
		return translate(u.ctx, err, "join %s: copy a part of %s", u.key, p.key)
	}
	if out.CopyPartResult == nil {
		return fault.New(fault.Unavailable, "join %s: copying a part of %s had no result", u.key, p.key)
	}
	u.done(p.length, completed(number, out.CopyPartResult.ETag, *out.CopyPartResult))
	return nil
}

func (u *upload) done(size int64, part types.CompletedPart) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.size += size
	u.parts = append(u.parts, part)
}
