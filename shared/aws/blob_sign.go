package aws

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"rollout/shared/blob"
)

// SignGet returns an address at which anyone can read a version of an object for that time, or
// as long as the credentials of this process last, if that is less. It sends no request, so it
// also signs for an object that is absent.
func (b *Bucket) SignGet(ctx context.Context, key, version string, lasts time.Duration) (string, error) {
	if err := blob.CheckGet(key, blob.GetOptions{Version: version}); err != nil {
		return "", err
	}
	content := "application/octet-stream"
	r, err := s3.NewPresignClient(b.s3).PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: b.full(key),
		VersionId: optional(version), ResponseContentType: &content}, s3.WithPresignExpires(lasts))
	if err != nil {
		return "", translate(ctx, err, "sign the address of %s", key)
	}
	return r.URL, nil
}
