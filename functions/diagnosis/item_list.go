package diagnosis

import (
	"context"
	"errors"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

// lister goes over a run's items in input order.
type lister struct {
	x *Explainer
	p status.Progress
	// errorsOnly says that only failed items are wanted, whose rows are read alone.
	errorsOnly bool
	// skips reports that no item of a done shard is wanted, by its document.
	skips func(shard.Doc) bool

	docs    map[int]shard.Doc     // read ahead
	entries *result.JoinedEntries // of an ended run's files; nil if there are none
	began   time.Time
	scanned uint64
	unread  uint64 // of these, items whose rows are too long to be read
	bytes   int64
}

// listed is an item on the way into a list.
type listed struct {
	item    uint64
	state   ListedState
	class   fault.Class
	row     []byte // nil without one
	line    []byte // of the input, if it has no row
	dialect dialect.Name
}

// id returns the item's own id, or its item id if its row has only that; "" if both are unknown.
func (it listed) id() string {
	from := it.row
	if from == nil {
		from = it.line
	}
	id, _ := dialect.ScanID(it.dialect, from)
	return string(id)
}

func (x *Explainer) list(p status.Progress) *lister {
	return &lister{x: x, p: p, docs: map[int]shard.Doc{}, began: x.ports.Clock.Now()}
}

// open opens the files of a run that has ended, as far as it has some.
func (l *lister) open(ctx context.Context) (err error) {
	if !l.p.State.Phase.Ended() {
		return nil
	}
	l.entries, err = result.OpenJoined(ctx, l.x.ports.Blobs, l.p.Manifest.Run)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

func (l *lister) close() {
	if l.entries != nil {
		_ = l.entries.Close() // opened for reading: closing loses nothing
	}
}

// each calls visit for the items from an index on, until it returns false, in which case that item
// is next, or until the bounds of a page are reached. next is nil at the end of what is planned.
func (l *lister) each(ctx context.Context, from uint64, visit func(listed) (bool, error)) (next *uint64, err error) {
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	last := max(l.p.State.Shards, l.p.Plan.Shards)
	if l.p.State.Phase.Ended() {
		last = l.p.State.Shards // the end leaves out what the plan gets after it
	}
	for at, shards := from, 0; ; shards++ {
		if shards > 0 && (shards == maxListShards || l.bytes > maxListBytes ||
			l.x.ports.Clock.Now().Sub(l.began) > maxListTime) {
			return &at, nil
		}
		loc, err := l.x.index.LocateItem(ctx, l.p.Manifest.Run, at)
		if fault.Is(err, fault.NotFound) {
			if at == from && at < l.p.Plan.Items { // it was planned
				return nil, &fault.Error{Kind: fault.NotFound, Err: fault.Wrap(err, "the plan of the run is gone"),
					Remedy: "its files have all rows"}
			}
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if loc.Shard() >= last {
			return nil, nil
		}
		end := loc.FirstItem() + uint64(loc.Cut.Items)
		if l.p.Manifest.HasOutput(loc.Cut.Role) {
			stopped, err := l.shard(ctx, loc, at, visit)
			if err != nil || stopped != nil {
				return stopped, err
			}
		}
		at = end
	}
}

// shard visits the items of a shard from an index on. It returns the index at which visit stopped.
func (l *lister) shard(ctx context.Context, loc input.Location, from uint64,
	visit func(listed) (bool, error)) (stopped *uint64, err error) {
	rows, rest, err := l.rows(ctx, loc)
	if err != nil {
		return nil, err
	}
	items := int(loc.Cut.Items)
	name := dialect.Name(l.p.Manifest.Dialect)
	var lines []input.Line
	if len(rows) < items && rest.wanted {
		sh, err := l.x.index.LoadShard(ctx, l.p.Manifest, loc.Entry.Range, loc.Row)
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Corrupt) {
			return nil, err
		}
		lines = sh.Lines // none if the input is gone or changed
		l.bytes += int64(loc.Cut.Length)
	}
	for k := int(from - loc.FirstItem()); k < items; k++ {
		it := listed{item: loc.FirstItem() + uint64(k), dialect: name}
		row, has := rows[k]
		switch {
		case has:
			it.state, it.class, it.row = rest.withRow, row.Class, row.Bytes
			if row.Class != "" && it.state == ListedDone {
				it.state = ListedFailed
			}
		case !rest.wanted:
			l.scanned++
			l.unread += rest.unread
			continue
		default:
			it.state, it.class = rest.state, rest.class
			if k < len(lines) {
				if it.line = lines[k].Bytes; it.line == nil {
					it.line = lines[k].Head
				}
			}
		}
		goesOn, err := visit(it)
		if err != nil || !goesOn {
			return &it.item, err
		}
		l.scanned++
		if !has {
			l.unread += rest.unread
		}
	}
	return nil, nil
}

// rest is what holds for the items of a shard: for those without a row, and whether they are
// wanted, and for those with one.
type rest struct {
	state   ListedState
	class   fault.Class
	wanted  bool
	withRow ListedState
	unread  uint64 // 1 if those without a row may have one that is too long to be read
}

// mark says whether all rows were read.
func (r *rest) mark(whole bool) {
	if !whole {
		r.unread = 1
	}
}

// rows returns the rows of a shard that are there, by the item's position, and what the others are.
func (l *lister) rows(ctx context.Context, loc input.Location) (map[int]result.Row, rest, error) {
	of := rest{state: ListedDone, wanted: !l.errorsOnly, withRow: ListedDone}
	if l.entries != nil {
		rows, found, whole, err := l.joined(ctx, loc)
		if of.mark(whole); err != nil || found {
			return rows, of, err
		}
	}
	d, err := l.doc(ctx, loc.Shard())
	if err != nil {
		return nil, of, err
	}
	if kept, ok, whole, err := l.kept(ctx, loc, d); err != nil || ok {
		if of.mark(whole); d.State != shard.Done && !l.p.State.Done.Set.Has(d.Shard) {
			of.state = ListedWaiting
			if d.State == shard.Running {
				of.state = ListedInHand
			}
		}
		return kept, of, err
	}
	switch {
	case d.State == shard.Done && d.Result != nil:
		if l.skips != nil && l.skips(d) {
			of.wanted = false
			return nil, of, nil
		}
		rows, whole, err := l.committed(ctx, loc, d)
		of.mark(whole)
		return rows, of, err
	case d.State == shard.Done:
		of.state, of.class, of.wanted = ListedFailed, d.Sealed, true
	case l.p.State.Done.Set.Has(d.Shard),
		l.p.State.Phase.Ended() && l.p.State.Pruned.Has(loc.Cut.Variant, d.Shard):
		of.state, of.class, of.wanted = ListedFailed, fault.Pruned, true
	case l.p.State.Phase.Ended():
		of.state, of.class, of.wanted = ListedFailed, l.p.State.Reason.Class(), true
	case d.State == shard.Running:
		of.state, of.withRow = ListedInHand, ListedInHand
	default:
		of.state, of.withRow = ListedWaiting, ListedInHand
	}
	rows := map[int]result.Row{}
	if d.Checkpoint == nil || d.State != shard.Done && l.errorsOnly {
		return rows, of, nil
	}
	of.mark(l.affords(d.Checkpoint.Length))
	if of.unread == 0 {
		read, err := result.ReadCheckpoint(ctx, l.x.ports.Blobs, *d.Checkpoint, int(loc.Cut.Items))
		if err != nil && !errors.Is(err, result.ErrLost) {
			return nil, of, err
		}
		addRows(rows, read)
	}
	return rows, of, nil
}

// affords counts bytes that are to be read, and reports whether they fit into memory at once.
func (l *lister) affords(n int64) bool {
	l.bytes += min(n, maxListBytes)
	return n <= maxListBytes
}

func addRows(to map[int]result.Row, rows []result.Row) {
	for _, r := range rows {
		if r.Copy == nil {
			to[r.Item] = r
		}
	}
}

// joined returns the rows of a shard in the files of an ended run. found is false if they have none.
// whole is false if some are too long to be read.
func (l *lister) joined(ctx context.Context, loc input.Location) (rows map[int]result.Row, found, whole bool,
	err error) {
	j, err := l.entries.Find(loc.Shard(), loc.FirstItem())
	if fault.Is(err, fault.NotFound) {
		return nil, false, true, nil
	}
	if err != nil || j.Items() != int(loc.Cut.Items) {
		return nil, false, true, err
	}
	rows = map[int]result.Row{}
	if l.errorsOnly || !l.affords(int64(j.Outputs+j.Errors)) {
		read, whole, err := l.joinedErrors(ctx, l.p.Manifest.Run, loc, j.Inherited)
		addRows(rows, read)
		return rows, true, whole && l.errorsOnly, err
	}
	name := dialect.Name(l.p.Manifest.Dialect)
	read, err := result.ReadJoined(ctx, l.x.ports.Blobs, l.p.Manifest.Run, name, j.Inherited)
	addRows(rows, read)
	return rows, true, true, gone(err)
}

// joinedErrors returns the error rows of a shard in the files of an ended run, as many as may be read.
// whole is false if there are more.
func (l *lister) joinedErrors(ctx context.Context, run identity.RunID, loc input.Location, in shardtable.Inherited) (
	rows []result.Row, whole bool, err error) {
	length := min(int64(in.Errors), maxListBytes)
	if length == 0 {
		return nil, true, nil
	}
	l.bytes += length
	b, err := input.ReadPart(ctx, l.x.ports.Blobs, record.OutputKey(run, record.ErrorsFile), int64(in.ErrorAt), length)
	if err != nil {
		return nil, true, gone(err)
	}
	return errorRows(dialect.Name(l.p.Manifest.Dialect), b, loc), length == int64(in.Errors), nil
}

// errorRows returns the error rows of a shard, which name their items.
func errorRows(name dialect.Name, b []byte, loc input.Location) (rows []result.Row) {
	for len(b) > 0 {
		n := len(b)
		for i, c := range b {
			if c == '\n' {
				n = i + 1
				break
			}
		}
		f, ok := dialect.ReadFailure(name, b[:n])
		if at := f.Place.Item - loc.FirstItem(); ok && f.Place.Item >= loc.FirstItem() && at < uint64(loc.Cut.Items) {
			rows = append(rows, result.Row{Item: int(at), Class: f.Class, Bytes: b[:n]})
		}
		b = b[n:]
	}
	return rows
}

// committed returns the rows of a shard's result. Copies, which get their rows at the run's end, are
// left out. Of rows that are too large to be read at once it has the failures; whole is then false.
func (l *lister) committed(ctx context.Context, loc input.Location, d shard.Doc) (rows map[int]result.Row,
	whole bool, err error) {
	if l.errorsOnly || !l.affords(d.Result.Length) {
		rows, whole, err = l.failures(ctx, loc, d)
		return rows, whole && l.errorsOnly, err
	}
	rows = map[int]result.Row{}
	b, err := result.Read(ctx, l.x.ports.Blobs, *d.Result)
	if err != nil {
		return rows, true, gone(err)
	}
	if !l.p.Manifest.Config.Dedupe.Enabled {
		name := dialect.Name(l.p.Manifest.Dialect)
		read, err := result.Of{Dialect: name, First: loc.FirstItem(), Items: int(loc.Cut.Items)}.Rows(b, d.OutputLen)
		addRows(rows, read)
		return rows, true, gone(err)
	}
	parts, _, err := result.ParseIndex(b, d.Result.Length, int(loc.Cut.Items))
	for k, part := range parts {
		if part.Kind != result.RowCopy {
			rows[k] = result.Row{Item: k, Class: part.Class, Bytes: b[part.Offset : part.Offset+part.Length]}
		}
	}
	return rows, true, gone(err)
}

// failures returns the error rows of a shard's result, as many as may be read. whole is false if there
// are more.
func (l *lister) failures(ctx context.Context, loc input.Location, d shard.Doc) (rows map[int]result.Row,
	whole bool, err error) {
	rows = map[int]result.Row{}
	length, from := d.Result.Length-d.OutputLen, d.OutputLen
	n := min(length, maxListBytes)
	if n <= 0 {
		return rows, true, nil
	}
	indexed := l.p.Manifest.Config.Dedupe.Enabled
	if indexed { // it ends in its index
		from = d.Result.Length - n
	}
	l.bytes += n
	b, err := input.ReadPart(ctx, l.x.ports.Blobs, d.Result.Key, from, n)
	if err != nil {
		return rows, true, gone(err)
	}
	if !indexed {
		addRows(rows, errorRows(dialect.Name(l.p.Manifest.Dialect), b, loc))
		return rows, n == length, nil
	}
	parts, _, err := result.ParseIndex(b, d.Result.Length, int(loc.Cut.Items))
	for k, part := range parts {
		if at := part.Offset - from; part.Kind == result.RowError && at >= 0 {
			rows[k] = result.Row{Item: k, Class: part.Class, Bytes: b[at : at+part.Length]}
		}
	}
	return rows, n == length, gone(err)
}

// kept returns the rows that a child run has from its parent. ok is false for a run without a
// parent, and for a shard whose own result has all rows. whole is false if some are too long to be read.
func (l *lister) kept(ctx context.Context, loc input.Location, d shard.Doc) (rows map[int]result.Row, ok, whole bool,
	err error) {
	m := l.p.Manifest
	if m.Parent == nil || d.State == shard.Done && d.Result != nil {
		return nil, false, true, nil
	}
	in, err := l.x.index.Inherited(ctx, m.Run, loc.Shard())
	if err != nil {
		return nil, false, true, gone(err)
	}
	rows, whole = map[int]result.Row{}, true
	var read []result.Row
	switch {
	case !l.affords(int64(in.Outputs + in.Errors)):
		read, whole, err = l.joinedErrors(ctx, m.Parent.Run, loc, in)
		whole, read = whole && l.errorsOnly, slices.DeleteFunc(read, func(r result.Row) bool { // those that it asks again
			item := in.FirstItem + uint64(r.Item)
			return in.Touched && m.Parent.Selection.SelectsRow(item, r.Class, dialect.Name(m.Dialect), r.Bytes)
		})
	case in.Touched:
		read, _, err = result.ReadKept(ctx, l.x.ports.Blobs, m, in)
	default:
		read, err = result.ReadJoined(ctx, l.x.ports.Blobs, m.Parent.Run, dialect.Name(m.Dialect), in)
	}
	addRows(rows, read)
	return rows, true, whole, gone(err)
}

// Shards whose documents are read together: few for a page of a list, many to look for something.
const (
	docsForPage   = 4
	docsForSearch = 100
)

// doc returns the document of a shard, and reads those behind it along with it.
func (l *lister) doc(ctx context.Context, n int) (shard.Doc, error) {
	if d, ok := l.docs[n]; ok {
		return d, nil
	}
	many := docsForPage
	if l.scanned > 0 || l.errorsOnly {
		many = docsForSearch
	}
	clear(l.docs)
	docs, err := l.x.reader.Shards(ctx, l.p.Manifest.Run, []interval.Range{{Lo: n, Hi: n + many}}, many)
	for _, d := range docs {
		l.docs[d.Shard] = d
	}
	if d, ok := l.docs[n]; ok {
		return d, err
	}
	return shard.New(l.p.Manifest.Run, n), err
}
