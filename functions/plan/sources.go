package plan

import (
	"bytes"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// errLate says that the call's time does not suffice to list the sources of a run of many
// inputs. What is listed stays, and the next call goes on from there.
var errLate = errors.New("the time of the call is over")

// atOnceArchives is how many archives of one run are unpacked side by side: each needs the
// memory of its window.
const atOnceArchives = 2

// lister lists the sources of a run of many inputs, in the parts of the manifest's list. It
// writes each part create-only, so that a call after a crash goes on behind the parts that are
// there.
type lister struct {
	*Planner
	manifest record.Manifest
	kind     kind.Kind
	// Of the call's time.
	inSecondHalf, inLastQuarter func(next time.Duration) bool
}

// listSources adds the sources of a run of many inputs to its plan.
func (p *Planner) listSources(ctx context.Context, m record.Manifest, k kind.Kind, doc *record.Plan) error {
	l := lister{Planner: p, manifest: m, kind: k}
	_, l.inSecondHalf = p.timer(ctx, 2)
	_, l.inLastQuarter = p.timer(ctx, 4)
	doc.List = &record.SourceList{Count: m.List.Count}
	for n, at := range m.List.Parts {
		part, err := input.ReadSources(ctx, p.Blobs, m.Run, n)
		if fault.Is(err, fault.NotFound) {
			part, err = l.write(ctx, n)
		}
		if err != nil {
			return err
		}
		doc.List.Parts = append(doc.List.Parts, record.SourceListPart{Input: at.First, Range: doc.Total})
		doc.Total += part.Count()
	}
	doc.List.Ranges = doc.Total
	return nil
}

// write writes a part, unless another call was faster, and returns it.
func (l lister) write(ctx context.Context, n int) (part record.SourcePart, err error) {
	inputs, err := l.inputs.Part(ctx, l.manifest, n)
	if err != nil {
		return part, err
	}
	part = record.SourcePart{Schema: record.Schema, Input: l.manifest.List.Parts[n].First,
		Ranges: make([]record.Ranges, len(inputs))}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	if l.manifest.List.Packed {
		group.SetLimit(atOnceArchives)
	}
	for i, in := range inputs {
		group.Go(func() error {
			src, err := l.source(groupCtx, part.Input+i, in)
			part.Ranges[i] = src
			return fault.Wrap(err, "%s", in.Label())
		})
	}
	if err := group.Wait(); err != nil {
		return part, err
	}
	key := record.SourcePartKey(l.manifest.Run, n)
	_, err = l.Blobs.Put(ctx, key, bytes.NewReader(record.Encode(part)), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) { // it may have pinned other versions
		return input.ReadSources(ctx, l.Blobs, l.manifest.Run, n)
	}
	return part, err
}

// source is Planner.source, or returns errLate: in the last quarter of the call's time, and for
// an archive that takes too long from the second half on, as the next call begins it earlier.
func (l lister) source(ctx context.Context, i int, in record.Input) (record.Ranges, error) {
	if l.inLastQuarter(0) {
		return record.Ranges{}, errLate
	}
	beganLate := l.inSecondHalf(0)
	src, err := l.Planner.source(ctx, l.manifest, l.kind, i, in)
	var slow *slowError
	if errors.As(err, &slow) && beganLate {
		err = errLate
	}
	return src, err
}
