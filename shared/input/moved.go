package input

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// PlannedVersion returns the version under which a source of the plan can be read: the
// pinned one or, if that is gone, the one that is there now, provided that it has the
// planned bytes. known is false if nothing of the source is planned yet, so that nobody
// can tell; the version is then the one that is there now. A missing object is NotFound,
// and one with other bytes is Corrupt with the class input_changed.
func (x *Inputs) PlannedVersion(ctx context.Context, m record.Manifest, p record.Plan,
	source int) (version string, known bool, err error) {
	src, err := x.Source(ctx, m.Run, p, source)
	if err != nil {
		return "", false, err
	}
	r, err := OpenPinned(ctx, x.blobs, src.Key, blob.GetOptions{Version: src.Version, Length: 1})
	if err == nil {
		return src.Version, true, r.Close()
	}
	if fault.ClassOf(err) != fault.InputChanged {
		return "", false, err
	}
	info, err := x.blobs.Stat(ctx, src.Key, "")
	if err != nil {
		return "", false, err
	}
	if IsOwn(src.Key) {
		return info.Version, true, nil
	}
	same, planned, err := x.SameAsPlanned(ctx, m, p, source, info.Version)
	if err == nil && planned && !same {
		err = Changed(src.Key)
	}
	return info.Version, planned, err
}

// IsOwn reports whether only rollout writes the object, create-only, so that any version
// of it has the same bytes.
func IsOwn(key string) bool { return strings.HasPrefix(key, record.WorkPrefix) }

// SameAsPlanned reports whether a version of an input of the run has the bytes that were
// planned of it: its size and, of every range that was cut, the digests in the shard
// table. It reads the object up to the last of these ranges, unpacked. planned is false
// if no range was cut, or the objects of the plan were deleted: then there is nothing to
// compare with.
func (x *Inputs) SameAsPlanned(ctx context.Context, m record.Manifest, p record.Plan, i int,
	version string) (same, planned bool, err error) {
	if i >= m.InputCount() || p.Sources() == 0 {
		return false, false, nil
	}
	in, err := x.Input(ctx, m, i)
	if err != nil {
		return false, false, err
	}
	src, err := x.Source(ctx, m.Run, p, i)
	if err != nil {
		return false, false, err
	}
	r, info, err := x.blobs.Get(ctx, in.Key, blob.GetOptions{Version: version})
	if err != nil {
		return false, false, fault.Wrap(err, "open input %s", in.Key)
	}
	defer r.Close()
	u, err := Unpack(r, in.Packed)
	if err != nil && !fault.Is(err, fault.Corrupt) {
		return false, false, err
	}
	damaged := err != nil
	if !damaged {
		defer u.Close()
	}
	if src.Key == record.JobKey(m.Run) {
		return sameAsJob(ctx, x.blobs, m, u, !damaged && info.Size == in.Size)
	}
	if src.Digest != "" {
		same, err := hasDigest(u, src.Digest, !damaged && info.Size == in.Size)
		return same, true, err
	}
	owner := p.SourceOwner(m.Run, i)
	first, err := x.firstRange(ctx, m.Run, p, i)
	if err != nil {
		return false, false, err
	}
	c := comparison{ctx: ctx, blobs: x.blobs, equal: !damaged && info.Size == in.Size}
	if c.equal {
		c.content = bufio.NewReaderSize(u, compareBuffer)
	}
	for k := first; k < first+src.Count; k++ {
		cut, err := c.compare(owner, k)
		planned = planned || cut
		if err != nil {
			return false, planned, fault.Wrap(err, "compare %s with its plan", in.Key)
		}
	}
	return c.equal && planned, planned, nil
}

// sameAsJob reports whether content is the dataset that the planned job of a training
// names. equal is false if it cannot be.
func sameAsJob(ctx context.Context, blobs blob.Store, m record.Manifest, content io.Reader,
	equal bool) (same, planned bool, err error) {
	var job record.Job
	err = ReadJSON(ctx, blobs, record.JobKey(m.Run), &job)
	if fault.Is(err, fault.NotFound) || err == nil && job.Dataset.Digest == "" {
		return false, false, nil
	}
	if err != nil {
		return false, true, err
	}
	same, err = hasDigest(content, job.Dataset.Digest, equal)
	return same, true, err
}

// hasDigest reports whether content has the digest. equal is false if it cannot have it.
func hasDigest(content io.Reader, digest string, equal bool) (bool, error) {
	if !equal {
		return false, nil
	}
	h := identity.NewHasher()
	_, err := io.Copy(h, content)
	if fault.Is(err, fault.Corrupt) { // a damaged archive
		return false, nil
	}
	return h.Sum().String() == digest, err
}

// DigestOf returns the digest of an object's bytes.
func DigestOf(ctx context.Context, blobs blob.Store, key, version string) (identity.ContentID, error) {
	r, err := OpenPinned(ctx, blobs, key, blob.GetOptions{Version: version})
	if err != nil {
		return identity.ContentID{}, err
	}
	defer r.Close()
	h := identity.NewHasher()
	_, err = io.Copy(h, r)
	return h.Sum(), fault.Wrap(err, "read %s", key)
}

// compareBuffer is how much of an input is read at once, in bytes.
const compareBuffer = 1 << 20

// comparison reads an input from its begin on, and compares it with shard tables.
type comparison struct {
	ctx     context.Context
	blobs   blob.Store
	content *bufio.Reader
	at      uint64 // offset of the next byte of content
	equal   bool   // so far
}

// compare compares a range, and reports whether it was cut.
func (c *comparison) compare(run identity.RunID, rng int) (cut bool, err error) {
	if _, err := c.blobs.Stat(c.ctx, record.RangeKey(run, rng), ""); err != nil {
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		return false, err
	}
	if !c.equal {
		return true, nil
	}
	table, _, err := c.blobs.Get(c.ctx, record.ShardTableKey(run, rng), blob.GetOptions{Offset: shardtable.RowOffset(0)})
	if err != nil {
		return true, err
	}
	defer table.Close()
	page := make([]byte, pageRows*shardtable.RowSize)
	for c.equal {
		n, err := io.ReadFull(table, page)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return true, err
		}
		rows, parseErr := shardtable.Parse(page[:n])
		if parseErr != nil {
			return true, parseErr
		}
		for _, row := range rows {
			if c.equal, err = c.matches(row); err != nil || !c.equal {
				return true, err
			}
		}
		if n < len(page) {
			break
		}
	}
	return true, nil
}

// matches reports whether the bytes of a row are in the content.
func (c *comparison) matches(row shardtable.Row) (bool, error) {
	h := identity.NewHasher()
	for _, part := range []struct {
		to  io.Writer
		end uint64
	}{{io.Discard, row.Offset}, {h, row.Offset + row.Length}} {
		if part.end < c.at {
			return false, nil
		}
		n, err := io.CopyN(part.to, c.content, int64(part.end-c.at))
		c.at += uint64(n)
		switch {
		case errors.Is(err, io.EOF), fault.Is(err, fault.Corrupt): // it is shorter, or a damaged archive
			return false, nil
		case err != nil:
			return false, err
		}
	}
	return h.Sum() == row.Digest, nil
}
