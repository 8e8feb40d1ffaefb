package gcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"cloud.google.com/go/storage"
	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

const (
	// composeParts is the most objects that Cloud Storage joins in one request.
	composeParts = 32
	// composeMin is the size from which a whole object is joined by Cloud Storage.
	// Reading a smaller one takes less time than one more round of joins, and costs less.
	composeMin = 1 << 20
	// joiners is the most concurrent requests of one Join.
	joiners = 16
	// streamers is how many intermediates of one Join are uploaded at once, each with up
	// to two chunks in memory.
	streamers = 2
	// discardTime is the time limit of removing an intermediate. The bucket's lifecycle
	// rules remove what stays.
	discardTime = 15 * time.Second
)

// source is one version of an object in the bucket.
type source struct {
	full       string // the name in the bucket
	generation int64
	// Of the whole object; a copy keeps them.
	contentType, contentEncoding string
}

// piece is a byte range of a source. Its length is not 0.
type piece struct {
	source
	key            string
	offset, length int64
	size           int64 // of the source
}

// whole reports whether Cloud Storage is to join the piece without its bytes going
// through this process: it joins whole objects alone.
func (p piece) whole() bool { return p.offset == 0 && p.length == p.size && p.size >= composeMin }

// Copy makes dst a copy of src within Cloud Storage; see blob.Store.
func (b *Bucket) Copy(ctx context.Context, dst, src string) (blob.Info, error) {
	if err := blob.CheckKey(dst); err != nil {
		return blob.Info{}, err
	}
	if err := b.Check(ctx); err != nil {
		return blob.Info{}, err
	}
	from, err := b.attributes(ctx, src, "")
	if err != nil {
		return blob.Info{}, fault.Wrap(err, "copy object %s", dst)
	}
	return b.copy(ctx, b.create(dst), source{b.prefix + src, from.Generation, from.ContentType, from.ContentEncoding})
}

// create returns a write that makes a key that does not exist.
func (b *Bucket) create(key string) write {
	return write{key: key, full: b.prefix + key, nonce: nonce(), condition: created}
}

// copy makes an object of a source.
func (b *Bucket) copy(ctx context.Context, w write, from source) (blob.Info, error) {
	copier := b.handle(w).CopierFrom(b.bucket.Object(from.full).Generation(from.generation))
	copier.Metadata = map[string]string{nonceKey: w.nonce}
	copier.ContentType, copier.ContentEncoding = from.contentType, from.contentEncoding
	made, err := copier.Run(ctx)
	if err != nil {
		return b.settle(ctx, w, err)
	}
	return describe(w.key, made), nil
}

// Join makes dst of the ranges; see blob.Store.
//
//	ranges ──▶ pieces: whole, large ─────────────────────────▶ ┐  32 at a time,
//	           runs of others ──read, upload──▶ intermediates ▶┴▶ in rounds ──▶ dst
//
// A Join without a large whole object is a single upload of what is read. Intermediates
// are removed at the end.
func (b *Bucket) Join(ctx context.Context, dst string, parts []blob.Range) (blob.Info, error) {
	if err := blob.CheckJoin(dst, parts); err != nil {
		return blob.Info{}, err
	}
	if err := b.Check(ctx); err != nil {
		return blob.Info{}, err
	}
	pieces, err := b.pin(ctx, parts)
	if err != nil {
		return blob.Info{}, fault.Wrap(err, "join %s", dst)
	}
	info, err := b.join(ctx, b.create(dst), planJoin(pieces))
	return info, fault.Wrap(err, "join %s", dst)
}

// join makes the object of the parts of the plan.
func (b *Bucket) join(ctx context.Context, w write, plan [][]piece) (blob.Info, error) {
	switch {
	case len(plan) == 0:
		return b.putWhole(ctx, w, nil)
	case len(plan) > 1:
	case plan[0][0].whole():
		return b.copy(ctx, w, plan[0][0].source)
	default:
		return b.stream(ctx, w, plan[0])
	}
	j := &joining{Bucket: b, dst: w}
	defer j.clean(ctx)
	sources, err := j.materialize(ctx, plan)
	if err != nil {
		return blob.Info{}, err
	}
	return j.compose(ctx, sources)
}

// planJoin groups the pieces into parts, in order: a piece that Cloud Storage joins, or
// a run of those that it does not.
func planJoin(pieces []piece) (plan [][]piece) {
	open := false // the last part is a run
	for _, p := range pieces {
		if open && !p.whole() {
			plan[len(plan)-1] = append(plan[len(plan)-1], p)
			continue
		}
		plan = append(plan, []piece{p})
		open = !p.whole()
	}
	return plan
}

// pin looks up each object once and pins its ranges to its current version. It leaves
// out empty ranges.
func (b *Bucket) pin(ctx context.Context, parts []blob.Range) ([]piece, error) {
	found := map[string]*piece{}
	for _, p := range parts {
		found[p.Key] = &piece{key: p.Key}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(joiners)
	for key, whole := range found {
		group.Go(func() error {
			a, err := b.attributes(groupCtx, key, "")
			if err != nil {
				return err
			}
			whole.source = source{b.prefix + key, a.Generation, a.ContentType, a.ContentEncoding}
			whole.size = a.Size
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var pieces []piece
	for _, part := range parts {
		p := *found[part.Key]
		var err error
		if p.offset, p.length, err = part.Resolve(p.size); err != nil {
			return nil, err
		}
		if p.length > 0 {
			pieces = append(pieces, p)
		}
	}
	return pieces, nil
}

// stream makes an object of the pieces' bytes.
func (b *Bucket) stream(ctx context.Context, w write, pieces []piece) (blob.Info, error) {
	r := b.gather(ctx, pieces)
	defer r.Close()
	first, more, err := readChunk(r, b.chunk)
	switch {
	case err != nil:
		return blob.Info{}, err
	case !more:
		return b.putWhole(ctx, w, first)
	}
	return b.upload(ctx, w, io.MultiReader(bytes.NewReader(first), r))
}

// intermediate returns the write of an object that w needs on its way. Its name is no
// key of the port.
func (b *Bucket) intermediate(w write, name string) write {
	full := b.intermediates + ".rollout-" + w.nonce + "-" + name
	return write{key: w.key, full: full, nonce: nonce(), condition: created}
}

// discard removes an intermediate, without leaving an old version, even after ctx has
// ended. It ignores errors: the bucket's lifecycle rules remove what stays.
func (b *Bucket) discard(ctx context.Context, full string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	object := b.bucket.Object(full)
	if now, err := object.Attrs(ctx); err == nil {
		_ = object.Generation(now.Generation).If(storage.Conditions{GenerationMatch: now.Generation}).Delete(ctx)
	}
}

// joining is a join with intermediates.
type joining struct {
	*Bucket
	dst  write
	made []string // names of intermediates, to be removed
}

// begin returns the write of an intermediate, and notes that it is to be removed.
func (j *joining) begin(name string) write {
	w := j.intermediate(j.dst, name)
	j.made = append(j.made, w.full)
	return w
}

// clean removes the intermediates.
func (j *joining) clean(ctx context.Context) {
	var group errgroup.Group
	group.SetLimit(joiners)
	for _, full := range j.made {
		group.Go(func() error {
			j.discard(ctx, full)
			return nil
		})
	}
	_ = group.Wait() // no call returns an error
}

// materialize returns an object for each part of the plan. It uploads the runs.
func (j *joining) materialize(ctx context.Context, plan [][]piece) ([]source, error) {
	sources := make([]source, len(plan))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(streamers)
	for i, pieces := range plan {
		if pieces[0].whole() {
			sources[i] = pieces[0].source
			continue
		}
		w := j.begin(fmt.Sprintf("run-%d", i))
		group.Go(func() error {
			info, err := j.stream(ctx, w, pieces)
			sources[i] = made(w, info)
			return err
		})
	}
	return sources, group.Wait()
}

// compose joins the sources into dst, composeParts at a time, in rounds.
func (j *joining) compose(ctx context.Context, sources []source) (blob.Info, error) {
	for round := 0; len(sources) > composeParts; round++ {
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(joiners)
		batches := slices.Collect(slices.Chunk(sources, composeParts))
		next := make([]source, len(batches))
		for i, batch := range batches {
			w := j.begin(fmt.Sprintf("round-%d-%d", round, i))
			group.Go(func() error {
				info, err := j.composeOnce(groupCtx, w, batch)
				next[i] = made(w, info)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return blob.Info{}, err
		}
		sources = next
	}
	return j.composeOnce(ctx, j.dst, sources)
}

// composeOnce joins up to composeParts sources.
func (b *Bucket) composeOnce(ctx context.Context, w write, sources []source) (blob.Info, error) {
	handles := make([]*storage.ObjectHandle, len(sources))
	for i, s := range sources {
		handles[i] = b.bucket.Object(s.full).Generation(s.generation)
	}
	composer := b.handle(w).ComposerFrom(handles...)
	composer.Metadata = map[string]string{nonceKey: w.nonce}
	joined, err := composer.Run(ctx)
	if err != nil {
		return b.settle(ctx, w, err)
	}
	return describe(w.key, joined), nil
}

// made returns the object that the write made.
func made(w write, info blob.Info) source {
	generation, _ := parseVersion(info.Version)
	return source{full: w.full, generation: generation}
}
