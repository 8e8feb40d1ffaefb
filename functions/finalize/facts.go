package finalize

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"rollout/events"
	"rollout/functions/finalize/facts"
	"rollout/shared/blob"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// Facts of a run are written in parts, Parquet files of consecutive shards:
//
//	shards  0 1 2 │ 3 4 │ 5 6 7 8 │ 9 …        commit frontier at 10
//	parts   part 0 │ part 1 │ part 2 │ not whole yet
//
// Where a part ends is a function of the shard tables and of the config. So is what it
// has, because it lies before the commit frontier, or the run is over. A part that is
// written again, after a crash or by two calls at once, has the same bytes, and parts are
// create-only: each item is in one part, once. Behind a part its mark is created, by which
// the next call finds where to go on. A call that does not find the mark writes the part
// again. The last part is short, and is written when the run is over.

// partBytes is how many bytes of lines a part has at most, but for its last shard.
const partBytes = 64 << 20

// parts writes the facts of a run. It is not safe for concurrent use.
type parts struct {
	*Finalizer
	manifest record.Manifest
	kind     kind.Kind
	found    bool // where to go on
	number   int  // of the next part
	from     int  // its first shard
	// The shards from from to to are in no part, and have so many items and bytes of lines.
	to           int
	items, bytes uint64
}

// newParts returns a writer of a run's facts; nil for a run that has none.
func (f *Finalizer) newParts(m record.Manifest, k kind.Kind) *parts {
	if !m.Config.Facts.Parquet {
		return nil
	}
	return &parts{Finalizer: f, manifest: m, kind: k}
}

// factsSoFar writes the whole parts of a run that goes on.
func (f *Finalizer) factsSoFar(ctx context.Context, s run.State) error {
	if s.Phase.Ended() || s.Done.Frontier() == 0 {
		return nil
	}
	m, err := host.LoadManifest(ctx, f.Docs, s.Run)
	if err != nil {
		return err
	}
	k, err := f.kinds.Of(m.Kind)
	if err != nil {
		return err
	}
	_, err = f.newParts(m, k).advance(ctx, s, f.timer(ctx))
	if errors.Is(err, errEnded) {
		return nil
	}
	return fault.Wrap(err, "write the facts of run %s", s.Run)
}

// allFacts writes the facts of a run that is Finalizing. If there is no time for all of
// them, it asks for Finalize again, and whole is false.
func (f *Finalizer) allFacts(ctx context.Context, m record.Manifest, k kind.Kind, s run.State) (whole bool, err error) {
	whole, err = f.newParts(m, k).advance(ctx, s, f.timer(ctx))
	if err != nil || whole {
		return whole, err
	}
	return false, f.Send(ctx, host.TaskQueue, events.Finalize{Run: string(m.Run)})
}

// advance writes the parts that are whole with the state s, until it is late. It reports
// whether all are written that can be.
func (p *parts) advance(ctx context.Context, s run.State, late func() bool) (whole bool, err error) {
	if p == nil {
		return true, nil
	}
	over := s.Phase == run.Finalizing
	if !over && len(p.manifest.Config.Judges()) > 0 {
		return true, nil // answers wait for their scores
	}
	if !p.found {
		if err := p.find(ctx); err != nil {
			return false, err
		}
	}
	final := s.Done.Frontier()
	if over {
		final = s.Shards
	}
	for {
		full, err := p.collect(ctx, final)
		if err != nil {
			return false, err
		}
		if last := over && p.to == final && (p.items > 0 || p.number == 0); !full && !last {
			return true, nil
		}
		written, err := p.write(ctx, s)
		if err != nil || !written {
			return err == nil, fault.Wrap(err, "part %d of the facts", p.number)
		}
		p.next()
		if over && p.from == final {
			return true, nil
		}
		if late() {
			return false, nil
		}
	}
}

// next begins the part behind the one that is collected.
func (p *parts) next() { p.number, p.from, p.items, p.bytes = p.number+1, p.to, 0, 0 }

// find reads from the marks where to go on.
func (p *parts) find(ctx context.Context) error {
	dir := record.FactsMarkDir(p.manifest.Run)
	for after := ""; ; {
		infos, err := p.Blobs.List(ctx, dir, after, blob.MaxList)
		if err != nil {
			return err
		}
		for _, info := range infos {
			after = info.Key
			first, end, _ := strings.Cut(path.Base(info.Key), "-")
			from, errFrom := strconv.Atoi(first)
			to, errTo := strconv.Atoi(end)
			if errors.Join(errFrom, errTo) != nil || record.FactsMarkKey(p.manifest.Run, from, to) != info.Key {
				return fault.New(fault.Corrupt, "object %s is not the mark of a part", info.Key)
			}
			if from != p.from || to < from { // one before it is gone: write from there on
				break
			}
			p.to = to
			p.next()
		}
		if len(infos) < blob.MaxList {
			p.found = true
			return nil
		}
	}
}

// collect adds shards below final to the part, and reports whether it is full.
func (p *parts) collect(ctx context.Context, final int) (full bool, err error) {
	for p.to < final {
		e, row, err := p.index.FindShard(ctx, p.manifest.Run, p.to)
		if err != nil {
			return false, err
		}
		rows, err := p.index.Rows(ctx, p.manifest.Run, e, row, min(final-p.to, e.Shards-row, docsAtOnce))
		if err != nil {
			return false, err
		}
		for _, cut := range rows {
			if p.full() {
				return true, nil
			}
			p.to++
			if p.manifest.HasOutput(cut.Role) {
				p.items, p.bytes = p.items+uint64(cut.Items), p.bytes+cut.Length
			}
		}
	}
	return p.full(), nil
}

func (p *parts) full() bool {
	return p.items >= p.manifest.Config.Facts.ItemsOfPart() || p.bytes >= partBytes
}

// write writes the part that is collected, and its mark. Written is false if the run ends
// and has sealed a shard of the part, whose items have their rows when it is over.
func (p *parts) write(ctx context.Context, s run.State) (written bool, err error) {
	reader := *p.Finalizer
	reader.Blobs = openRun{p.Blobs, p.Docs, p.manifest.Run}
	judges, err := reader.newVerdicts(p.manifest)
	if err != nil {
		return false, err
	}
	var names []string
	for _, g := range p.manifest.Config.Grades {
		names = append(names, g.Name)
	}
	var own []kind.Column
	if p.kind.Facts != nil {
		own = p.kind.Facts.Columns
	}
	to := p.open(ctx, record.FactsKey(p.manifest.Run, p.number))
	file := facts.NewWriter(to, facts.Position{Part: p.number, FirstShard: p.from, Shards: p.to - p.from}, names, own)
	rows := newFactRows(&reader, p.manifest, p.kind, s, file)
	rows.writer.verdicts, rows.writer.first = judges, p.from
	written, err = rows.shards(ctx, p.from, p.to)
	switch {
	case err != nil:
	case !written:
		err = errSealed // it drops what is written
	default:
		err = file.Close()
	}
	if err := errors.Join(err, to.finish(err)); errors.Is(err, errSealed) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	_, err = p.Blobs.Put(ctx, record.FactsMarkKey(p.manifest.Run, p.from, p.to), strings.NewReader(""),
		blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		err = nil
	}
	return err == nil, err
}

// errSealed ends a part with a shard that the run's end has sealed.
var errSealed = errors.New("a shard is sealed, and its run is not over")

// isFinal reports whether the rows of a shard before the commit frontier are known: only
// the run's end says what became of those that it left.
func isFinal(s run.State, d shard.Doc) bool { return s.Phase == run.Finalizing || !isSealed(d) }
