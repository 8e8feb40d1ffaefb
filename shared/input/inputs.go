package input

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Inputs reads the inputs of runs and the sources of their plans. Of a run of many files both
// are in parts, which are read when they are needed; a run of few files needs no read. Parts
// never change, so that it caches them. It is safe for concurrent use.
type Inputs struct {
	blobs blob.Store

	mu      sync.Mutex
	lists   map[partOf]record.InputPart
	sources map[partOf]record.SourcePart
}

// partOf identifies a part of a list of a run.
type partOf struct {
	run  identity.RunID
	part int
}

// maxParts bounds the cached parts of either list. A part has about 100 KB.
const maxParts = 32

// NewInputs returns a reader over the bucket.
func NewInputs(blobs blob.Store) *Inputs {
	return &Inputs{blobs: blobs, lists: map[partOf]record.InputPart{}, sources: map[partOf]record.SourcePart{}}
}

// Input returns an input of the run. A part of the list that is gone, or damaged, is Corrupt.
func (x *Inputs) Input(ctx context.Context, m record.Manifest, i int) (record.Input, error) {
	if i < 0 || i >= m.InputCount() {
		return record.Input{}, fault.New(fault.Corrupt, "run %s has no input %d", m.Run, i)
	}
	if m.List == nil {
		return m.Inputs[i], nil
	}
	k, from := m.List.PartOf(i)
	p, err := x.listPart(ctx, *m.List, k)
	if err != nil {
		return record.Input{}, err
	}
	return p.Inputs[i-from], nil
}

// InputName returns the name of an input for users, or that of what the run's kind appended.
func (x *Inputs) InputName(ctx context.Context, m record.Manifest, i int) (string, error) {
	if m.List == nil || i >= m.List.Count {
		return m.InputName(i), nil
	}
	in, err := x.Input(ctx, m, i)
	return in.Label(), err
}

// All yields the inputs of the run in their order. It holds one part at a
// time.
func (x *Inputs) All(ctx context.Context, m record.Manifest) iter.Seq2[record.Input, error] {
	return func(yield func(record.Input, error) bool) {
		if m.List == nil {
			for _, in := range m.Inputs {
				if !yield(in, nil) {
					return
				}
			}
			return
		}
		for k := range m.List.Parts {
			inputs, err := x.Part(ctx, m, k)
			if err != nil {
				yield(record.Input{}, err)
				return
			}
			for _, in := range inputs {
				if !yield(in, nil) {
					return
				}
			}
		}
	}
}

// Part returns the inputs of a part of a run's List.
func (x *Inputs) Part(ctx context.Context, m record.Manifest, part int) ([]record.Input, error) {
	p, err := x.listPart(ctx, *m.List, part)
	return p.Inputs, err
}

// listPart returns a part of a list.
func (x *Inputs) listPart(ctx context.Context, l record.InputList, k int) (p record.InputPart, err error) {
	at := partOf{l.Run, k}
	x.mu.Lock()
	p, ok := x.lists[at]
	x.mu.Unlock()
	if ok {
		return p, nil
	}
	key := record.InputPartKey(l.Run, l.Parts[k].Content)
	b, err := ReadObject(ctx, x.blobs, key, maxSmall)
	if err == nil && identity.Content(b).String() != l.Parts[k].Content {
		err = fault.New(fault.Corrupt, "%s does not have the content that its name says", key)
	}
	if err == nil {
		err = record.Decode(b, &p, key)
	}
	if err == nil {
		err = l.Check(k, p)
	}
	if err != nil {
		return p, lostPart(err, "part %d of the input list of run %s", k, l.Run)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.lists, at, p, maxParts)
	return p, nil
}

// PutList writes the parts of the list of a run of many inputs, and returns its manifest,
// which names them. Repeating it is harmless. It returns a manifest of few inputs as it is.
func PutList(ctx context.Context, blobs blob.Store, m record.Manifest,
	limits record.InputLimits) (record.Manifest, error) {
	out, parts := record.SplitInputs(m, limits)
	for k, p := range parts {
		key := record.InputPartKey(m.Run, out.List.Parts[k].Content)
		_, err := blobs.Put(ctx, key, bytes.NewReader(record.Encode(p)), blob.PutOptions{CreateOnly: true})
		if err != nil && !fault.Is(err, fault.Conflict) {
			return out, fault.Wrap(err, "list the inputs of run %s", m.Run)
		}
	}
	return out, nil
}

// lostPart is the error of a part that cannot be read: callers would take NotFound for a
// missing input.
func lostPart(err error, format string, args ...any) error {
	if fault.Is(err, fault.NotFound) {
		return fault.WithKind(fault.Corrupt, err, format, args...)
	}
	return fault.Wrap(err, format, args...)
}

// Source returns an object of the run's plan. One that the plan does not have is Corrupt.
func (x *Inputs) Source(ctx context.Context, run identity.RunID, p record.Plan, i int) (record.Ranges, error) {
	if k, ok := p.PartOfInput(i); ok {
		part, err := x.sourcePart(ctx, run, p, k)
		if err != nil {
			return record.Ranges{}, err
		}
		return part.Ranges[i-part.Input], nil
	}
	src, ok := p.Source(run, i)
	if !ok {
		return src, fault.New(fault.Corrupt, "the plan of run %s has %d sources, and no source %d", run, p.Sources(), i)
	}
	return src, nil
}

// Tasks returns the input of a run of trials as it is planned, and the files of tasks that
// amendments added. Its errors are those of PlannedVersion.
func (x *Inputs) Tasks(ctx context.Context, m record.Manifest, p record.Plan) ([]record.Ranges, error) {
	src, err := x.Source(ctx, m.Run, p, 0)
	if err == nil {
		src.Version, _, err = x.PlannedVersion(ctx, m, p, 0)
	}
	out := []record.Ranges{src}
	for _, in := range m.Tasks {
		out = append(out, record.Ranges{Key: in.Key, Version: in.Version, Size: in.Size})
	}
	return out, err
}

// Locate returns the place of a range that the plan has; see record.Plan.Locate. It is Corrupt
// for any other range.
func (x *Inputs) Locate(ctx context.Context, run identity.RunID, p record.Plan, rng int) (record.Place, error) {
	at, ok := p.Locate(rng)
	if k, first, inPart := p.PartOfRange(rng); inPart {
		part, err := x.sourcePart(ctx, run, p, k)
		if err != nil {
			return at, err
		}
		at, ok = part.Locate(rng - first)
	}
	if !ok {
		return at, fault.New(fault.Corrupt, "the plan of run %s has no range %d", run, rng)
	}
	return at, nil
}

// firstRange returns the first range of an input of the run, which is not appended.
func (x *Inputs) firstRange(ctx context.Context, run identity.RunID, p record.Plan, i int) (first int, err error) {
	before := p.Ranges
	if k, ok := p.PartOfInput(i); ok {
		part, err := x.sourcePart(ctx, run, p, k)
		if err != nil {
			return 0, err
		}
		first, before, i = p.List.Parts[k].Range, part.Ranges, i-part.Input
	}
	for _, src := range before[:i] {
		first += src.Count
	}
	return first, nil
}

// Remember keeps in the cache under which version a source in a part was found to have the
// planned bytes, so that they are not compared again for each range.
func (x *Inputs) Remember(run identity.RunID, plan record.Plan, i int, version string) {
	k, ok := plan.PartOfInput(i)
	if !ok {
		return
	}
	if plan.Inherited != nil {
		run = plan.Inherited.Plan
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	p, ok := x.sources[partOf{run, k}]
	if !ok {
		return
	}
	p.Ranges = slices.Clone(p.Ranges) // readers have the others
	p.Ranges[i-p.Input].Version = version
	x.sources[partOf{run, k}] = p
}

// sourcePart returns a part of the plan's sources.
func (x *Inputs) sourcePart(ctx context.Context, run identity.RunID, plan record.Plan,
	k int) (p record.SourcePart, err error) {
	if plan.Inherited != nil {
		run = plan.Inherited.Plan
	}
	at := partOf{run, k}
	x.mu.Lock()
	p, ok := x.sources[at]
	x.mu.Unlock()
	if ok {
		return p, nil
	}
	if p, err = ReadSources(ctx, x.blobs, run, k); err == nil {
		err = plan.List.Check(k, p)
	}
	if err != nil {
		return p, lostPart(err, "part %d of the sources of run %s", k, run)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	put(x.sources, at, p, maxParts)
	return p, nil
}

// ReadSources reads a part of the sources of a plan whose objects are those of the run.
// NotFound says that it is not written yet, or was deleted.
func ReadSources(ctx context.Context, blobs blob.Store, run identity.RunID, part int) (p record.SourcePart, err error) {
	key := record.SourcePartKey(run, part)
	b, err := ReadObject(ctx, blobs, key, maxSmall)
	if err == nil {
		err = record.Decode(b, &p, key)
	}
	return p, err
}
