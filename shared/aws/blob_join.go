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
	// joiners is how many requests of one Join are under way at once: S3 copies
	// a gigabyte in some ten seconds, and as many at once as it is asked to.
	joiners = 16
	// gatherers is how many of them go through memory, each with at most a part
	// of minPart bytes.
	gatherers = 4
	// smallJoin is the largest Join that goes through memory as a whole: two
	// requests for a copy, where an upload of copied parts takes four.
	smallJoin = minPart
)

// piece is a part of one version of an object.
type piece struct {
	key, version   string
	offset, length int64
	size           int64 // of the object
}

// bytes is the piece's range as HTTP writes it; nil is the whole object: S3 takes
// no range of one that is not larger than the smallest part.
func (p piece) bytes() *string {
	if p.size <= minPart {
		return nil
	}
	return awssdk.String(fmt.Sprintf("bytes=%d-%d", p.offset, p.offset+p.length-1))
}

// source is the piece's object as S3's copy requests name it.
func (b *Bucket) source(p piece) string {
	return escape(b.name+"/"+b.prefix+p.key) + "?versionId=" + escape(p.version)
}

// escape percent-encodes everything but letters, digits, "-_.~" and slashes: a
// plus sign in a copy's source would be taken for a space.
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

// Join makes dst of the ranges; see blob.Store. S3 copies all but what is too
// small for a part of its own, which goes through memory.
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
		return blob.Info{}, fault.New(fault.Exhausted, "join %s: %d parts, the limit is %d", dst, len(plan), maxParts)
	}
	return b.upload(ctx, w, func(u *upload) error { return u.join(plan) })
}

// join sends the parts, several at once.
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

// pin looks each object up once: its version now is the one that is joined.
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

// gather reads small pieces into memory.
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
		_ = r.Close() // what was asked for is there, or an error says so
		if err != nil {
			if fault.Is(err, fault.Internal) {
				err = fault.WithKind(fault.Unavailable, err, "read object %s", p.key) // cut short
			}
			return nil, err
		}
		rest = rest[p.length:]
	}
	return content, nil
}

// planJoin says which pieces make which part: parts of at least minPart and at
// most maxPart bytes, but for the last, which may be smaller. A part of one
// piece of minPart or more is copied by S3; the others are gathered, and are
// no larger than minPart.
func planJoin(pieces []piece) (plan [][]piece) {
	var small []piece // not yet a part
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
				part.length = min(maxPart, p.length-minPart) // so that the rest is large enough
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
