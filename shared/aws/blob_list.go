package aws

import (
	"context"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/text"
)

// listPage is S3's limit of entries in one response.
const listPage = 1000

// List lists current versions; see blob.Store. It leaves out keys that are not
// valid for the port, such as the folders that the S3 console creates.
//
// Only S3's listing of versions has version ids. It includes old versions; these
// are few, because almost all objects of a run are immutable.
func (b *Bucket) List(ctx context.Context, prefix, after string, limit int) ([]blob.Info, error) {
	if err := blob.CheckList(prefix, limit); err != nil {
		return nil, err
	}
	if after >= prefix && !strings.HasPrefix(after, prefix) {
		return nil, nil // after sorts behind all keys with the prefix
	}
	in := &s3.ListObjectVersionsInput{
		Bucket: &b.name, Prefix: optional(b.prefix + prefix),
		EncodingType: types.EncodingTypeUrl, MaxKeys: awssdk.Int32(int32(min(limit, listPage))),
	}
	if marker := marker(after); after > prefix && marker != "" {
		in.KeyMarker = b.full(marker)
	}
	var found []blob.Info
	for {
		out, err := b.s3.ListObjectVersions(ctx, in)
		if err != nil {
			return nil, translate(ctx, err, "list objects %q", prefix)
		}
		for _, v := range out.Versions {
			info, ok, err := b.listed(v, out.EncodingType, after)
			if err != nil {
				return nil, fault.Wrap(err, "list objects %q", prefix)
			}
			if !ok || !strings.HasPrefix(info.Key, prefix) {
				continue
			}
			if found = append(found, info); len(found) == limit {
				return found, nil
			}
		}
		if !awssdk.ToBool(out.IsTruncated) {
			return found, nil
		}
		next, err := decode(out.NextKeyMarker, out.EncodingType)
		if err != nil || out.NextKeyMarker == nil {
			return nil, fault.New(fault.Corrupt, "list objects %q: the marker of the next page is missing: %v", prefix, err)
		}
		in.KeyMarker, in.VersionIdMarker = &next, out.NextVersionIdMarker
	}
}

// listed converts an entry of S3's listing. It returns false for an old version,
// for a key that is not after the given one, and for a key that is not valid for
// the port.
func (b *Bucket) listed(v types.ObjectVersion, encoding types.EncodingType, after string) (blob.Info, bool, error) {
	full, err := decode(v.Key, encoding)
	if err != nil {
		return blob.Info{}, false, err
	}
	key, inside := strings.CutPrefix(full, b.prefix)
	if !awssdk.ToBool(v.IsLatest) || !inside || key <= after || blob.CheckKey(key) != nil {
		return blob.Info{}, false, nil
	}
	info, err := b.info(key, awssdk.ToInt64(v.Size), v.VersionId, v.LastModified)
	return info, true, err
}

// decode undoes the encoding of a key in a listing. List requests the encoding,
// because XML cannot represent every character; a server that does not support it
// omits it from the response.
func decode(encoded *string, encoding types.EncodingType) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return awssdk.ToString(encoded), nil
	}
	key, err := url.QueryUnescape(awssdk.ToString(encoded))
	return key, fault.WithKind(fault.Corrupt, err, "decode a key of S3's listing")
}

// marker returns the longest prefix of after that S3 accepts as a marker. The
// caller filters the keys between the marker and after.
func marker(after string) string {
	for i, r := range after {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return after[:i]
		}
	}
	return text.Truncate(after, blob.MaxKey, "")
}
