package aws

import (
	"context"
	"fmt"
	"io"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

const (
	// joiners is the most concurrent requests of one Join. S3 copies a gigabyte in
	// about ten seconds, independently of the number of concurrent copies.
	joiners = 16
	// gatherers is how many of these requests may go through memory, each with a
	// part of at most minPart bytes.
	gatherers = 4
	// smallJoin is the largest Join that goes through memory as a whole. Copying one
	// object then takes two requests; an upload of copied parts takes four.
	smallJoin = minPart
)

// piece is a byte range of one version of an object.
type piece struct {
	key, version   string
	offset, length int64
	size           int64 // of the object
}

// bytes returns the range as an HTTP header value, nil for the whole object: S3
// refuses a range of an object that is not larger than the smallest part.
func (p piece) bytes() *string {
	if p.size <= minPart {
		return nil
	}
	return awssdk.String(fmt.Sprintf("bytes=%d-%d", p.offset, p.offset+p.length-1))
}

// source returns the piece's object and version as S3's copy requests name them.
func (b *Bucket) source(p piece) string {
	return escape(b.name+"/"+b.prefix+p.key) + "?versionId=" + escape(p.version)
}

// escape percent-encodes everything but letters, digits, "-_.~" and slashes. S3
// would take a plus sign in the source of a copy for a space.
func escape(s string) string {
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~/", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// Copy makes dst a copy of src; see blob.Store.
func (b *Bucket) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	return b.Join(ctx, dst, []blob.Range{{Key: src}})
}

// Join makes dst of the ranges; see blob.Store. S3 copies the ranges; only those
// that are too small for a part of their own go through memory.
func (b *Bucket) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	if err := blob.CheckJoin(dst, parts); err != nil {
		return blob.Info{}, err
	}
	w, err := b.begin(ctx, dst, blob.PutOptions{CreateOnly: true})
	if err != nil {
		return blob.Info{}, err
	}
	pieces, total, err := b.pin(ctx, parts)
	if err != nil {
		return blob.Info{}, fault.Wrap(err, "join %s", dst)
	}
	if total <= smallJoin {
		content, err := b.gather(ctx, pieces)
		if err != nil {
			return blob.Info{}, fault.Wrap(err, "join %s", dst)
		}
		return b.putWhole(ctx, w, content)
	}
	plan := planJoin(pieces)
	if len(plan) > maxParts {
		return blob.Info{}, fault.New(fault.Exhausted, "join %s: needs %d parts, the limit is %d", dst, len(plan), maxParts)
	}
	return b.upload(ctx, w, func(u *upload) error { return u.join(plan) })
}

// join sends the parts, up to joiners at once.
func (u *upload) join(plan [][]piece) error {
	group, ctx := errgroup.WithContext(u.ctx)
	group.SetLimit(joiners)
	memory := make(chan struct{}, gatherers)
	for i, pieces := range plan {
		if ctx.Err() != nil {
			break // another part's error
		}
		group.Go(func() error {
			number := int32(i + 1)
			if len(pieces) == 1 && pieces[0].length >= minPart {
				return u.copy(number, pieces[0])
			}
			memory <- struct{}{}
			defer func() { <-memory }()
			content, err := u.gather(ctx, pieces)
			if err != nil {
				return fault.Wrap(err, "join %s", u.key)
			}
			return u.send(number, content)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return fault.Wrap(u.ctx.Err(), "join %s", u.key)
}

// pin looks up each object once and pins its ranges to its current version.
func (b *Bucket) pin(ctx context.Context, parts []blob.Range) (pieces []piece, total int64, err error) {
	keys := map[string]int{}
	var order []string
	for _, p := range parts {
		if _, ok := keys[p.Key]; !ok {
			keys[p.Key] = len(order)
			order = append(order, p.Key)
		}
	}
	infos := make([]blob.Info, len(order))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(joiners)
	for i, key := range order {
		group.Go(func() error {
			info, err := b.Stat(groupCtx, key, "")
			infos[i] = info
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, 0, err
	}
	for _, p := range parts {
		info := infos[keys[p.Key]]
		offset, length, err := p.Resolve(info.Size)
		if err != nil {
			return nil, 0, err
		}
		if length > 0 {
			pieces = append(pieces, piece{p.Key, info.Version, offset, length, info.Size})
			total += length
		}
	}
	return pieces, total, nil
}

// gather reads the pieces into memory.
func (b *Bucket) gather(ctx context.Context, pieces []piece) ([]byte, error) {
	total := int64(0)
	for _, p := range pieces {
		total += p.length
	}
	content := make([]byte, total)
	rest := content
	for _, p := range pieces {
		r, _, err := b.Get(ctx, p.key, blob.GetOptions{Version: p.version, Offset: p.offset, Length: p.length})
		if err != nil {
			return nil, err
		}
		_, err = io.ReadFull(r, rest[:p.length])
		_ = r.Close() // ReadFull got all bytes, or failed
		if err != nil {
			if fault.Is(err, fault.Internal) {
				err = fault.WithKind(fault.Unavailable, err, "read object %s", p.key) // truncated
			}
			return nil, err
		}
		rest = rest[p.length:]
	}
	return content, nil
}

// planJoin groups pieces into parts of at least minPart and at most maxPart bytes;
// the last part may be smaller. S3 copies a part that is one piece of at least
// minPart bytes. All other parts go through memory and have at most minPart bytes.
func planJoin(pieces []piece) (plan [][]piece) {
	var small []piece // collected for the next part
	var size int64
	flush := func() {
		if size > 0 {
			plan, small, size = append(plan, small), nil, 0
		}
	}
	for _, p := range pieces {
		if size > 0 {
			head := p
			head.length = min(p.length, minPart-size)
			small, size = append(small, head), size+head.length
			p.offset, p.length = p.offset+head.length, p.length-head.length
			if size == minPart {
				flush()
			}
		}
		for p.length >= minPart {
			part := p
			if part.length > maxPart {
				part.length = min(maxPart, p.length-minPart) // leaves a rest that is large enough
			}
			plan = append(plan, []piece{part})
			p.offset, p.length = p.offset+part.length, p.length-part.length
		}
		if p.length > 0 {
			small, size = append(small, p), p.length
		}
	}
	flush()
	return plan
}
