package plan

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"

	"rollout/shared/blob"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// startChild plans a child run: its plan is its parent's, whose objects it uses. The
// table at InheritedKey says for each shard where its rows are in the parent's files,
// and whether the child asks some of its items again. It is a function of immutable
// objects, so that repeating the call changes nothing.
func (p *Planner) startChild(ctx context.Context, m record.Manifest) (record.Plan, error) {
	doc, err := p.inherit(ctx, m)
	if err != nil {
		return p.recordProblem(ctx, m.Run, fault.Wrap(err, "inherit from run %s", m.Parent.Run))
	}
	if m.Parent.Amend != nil {
		if doc, err = p.amend(ctx, m, doc); err != nil {
			return p.recordProblem(ctx, m.Run, fault.Wrap(err, "amend run %s", m.Parent.Run))
		}
	}
	change := func(cur record.Plan, found bool) (record.Plan, bool, error) {
		if found && cur.Inherited != nil && cur.Problem == "" {
			return cur, false, nil // another call was faster, and its ranges may be merged
		}
		return doc, true, nil
	}
	return host.Update(ctx, p.Docs, record.PlanKey(m.Run), change)
}

// amend writes the object of the items that a child adds to the plan of its parent, unless it
// exists, and returns the plan with its ranges.
func (p *Planner) amend(ctx context.Context, m record.Manifest, doc record.Plan) (record.Plan, error) {
	k, err := p.opts.Kinds.Of(m.Kind)
	if err != nil {
		return doc, err
	}
	added := record.Appended{Input: doc.Sources(), First: doc.Total}
	added.Key = record.AppendedKey(m.Run, added.Input)
	info, err := p.Blobs.Stat(ctx, added.Key, "")
	if fault.Is(err, fault.NotFound) {
		a := kind.Amended{Appended: kind.Appended{Blobs: p.Blobs, Manifest: m, Input: added.Input}, First: doc.Items}
		if a.Tasks, err = p.inputs.Tasks(ctx, m, doc); err != nil {
			return doc, err
		}
		if err := p.stream(ctx, added.Key, func(w io.Writer) error { return k.Amend(ctx, a, w) }); err != nil {
			return doc, err
		}
		info, err = p.Blobs.Stat(ctx, added.Key, "")
	}
	if err != nil {
		return doc, err
	}
	added.Version, added.Size, added.Count = info.Version, info.Size, record.RangeCount(info.Size)
	in := *doc.Inherited
	in.Shards, in.IDs = doc.Shards, doc.IDLists()
	in.Amended = append(slices.Clone(in.Amended), record.AddedRanges{Run: m.Run, Source: added.Input, Range: added.First})
	doc.Inherited, doc.IDs = &in, nil
	doc.Appended, doc.Total = &added, doc.Total+added.Count
	p.Log.InfoContext(ctx, "plan is amended", observe.KeyRun, m.Run, "bytes", added.Size)
	return doc, nil
}

// inherit writes the table of a child, and returns its plan.
func (p *Planner) inherit(ctx context.Context, m record.Manifest) (doc record.Plan, err error) {
	parent := m.Parent.Run
	_, found, err := host.Load(ctx, p.Docs, record.PlanKey(parent), &doc)
	if err != nil {
		return doc, err
	}
	if !found || !doc.Complete() || doc.Problem != "" {
		return doc, fault.New(fault.NotFound, "run %s has no complete plan", parent)
	}
	var s run.State
	if _, _, err := host.Load(ctx, p.Docs, record.CoordinatorKey(parent), &s); err != nil {
		return doc, err
	}
	if !s.Phase.Ended() {
		return doc, fault.New(fault.Invalid, "run %s has not ended", parent)
	}
	t := inheritance{planner: p, manifest: m, shards: doc.Shards, index: input.NewIndex(p.Blobs, p.Docs)}
	table := func(w io.Writer) error { return t.write(ctx, w) }
	if err := p.streamWhole(ctx, record.InheritedKey(m.Run), table); err != nil {
		return doc, err
	}
	in := record.Inheritance{Plan: parent}
	if doc.Inherited != nil {
		in = *doc.Inherited
	}
	in.Kept, in.KeptRoles, in.Shards = t.kept, t.keptRoles, 0
	doc.Inherited = &in
	return doc, nil
}

// inheritance reads the output files of a child's parent.
type inheritance struct {
	planner  *Planner
	manifest record.Manifest
	shards   int
	index    *input.Index

	kept      shard.Counts   // of the shards that are not touched
	keptRoles []run.KeptRole // by role, in a run of several roles
	errors    *bufio.Reader
	outputs   *bufio.Reader // nil if no answer is selected by its row
}

// write writes the child's table.
func (t *inheritance) write(ctx context.Context, w io.Writer) error {
	parent := t.manifest.Parent.Run
	entries, closeEntries, err := t.open(ctx, record.FileEntriesKey(parent))
	if err != nil {
		return err
	}
	defer closeEntries()
	errs, closeErrors, err := t.open(ctx, record.OutputKey(parent, record.ErrorsFile))
	if err != nil {
		return err
	}
	defer closeErrors()
	t.errors, t.kept, t.keptRoles = errs, shard.Counts{}, nil
	if t.manifest.Parent.Selection.ReadsAnswers() {
		outputs, closeOutputs, err := t.open(ctx, record.OutputKey(parent, record.CompletionsFile))
		if err != nil {
			return err
		}
		defer closeOutputs()
		t.outputs = outputs
	}
	out := bufio.NewWriter(w)
	var in shardtable.Inherited
	buf, row := make([]byte, shardtable.FileEntrySize), make([]byte, 0, shardtable.InheritedSize)
	for n := range t.shards {
		if _, err := io.ReadFull(entries, buf); err != nil {
			return t.damaged(err)
		}
		in.FileEntry = shardtable.ParseFileEntry(buf)
		var kept shard.Counts
		if in.Touched, kept, err = t.touched(in); err == nil && !in.Touched {
			err = t.keep(ctx, n, kept)
		}
		if err != nil {
			return err
		}
		if _, err := out.Write(in.Append(row)); err != nil {
			return err
		}
		in.FirstItem += uint64(in.Items())
		in.OutputAt, in.ErrorAt = in.OutputAt+in.Outputs, in.ErrorAt+in.Errors
	}
	if err := t.checkEnd(ctx, entries, in); err != nil {
		return err
	}
	return out.Flush()
}

// keep counts a shard of which the child asks nothing again.
func (t *inheritance) keep(ctx context.Context, n int, c shard.Counts) error {
	t.kept.Add(c)
	if len(t.manifest.Roles) == 0 {
		return nil
	}
	parent := t.manifest
	parent.Run = t.manifest.Parent.Run // whose plan is there
	role, err := t.index.RoleOf(ctx, parent, n)
	if err != nil {
		return err
	}
	t.keptRoles = append(t.keptRoles, make([]run.KeptRole, max(0, int(role)+1-len(t.keptRoles)))...)
	t.keptRoles[role].Shards++
	t.keptRoles[role].Counts.Add(c)
	return nil
}

// open opens an object of the parent.
func (t *inheritance) open(ctx context.Context, key string) (*bufio.Reader, func() error, error) {
	r, _, err := t.planner.Blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return nil, nil, fault.Wrap(err, "read %s", key)
	}
	return bufio.NewReaderSize(r, 64<<10), r.Close, nil
}

// answers reports whether the child asks answered items of the shard again because of the rows of
// their answers. It reads the shard's output rows.
func (t *inheritance) answers(in shardtable.Inherited) (selected bool, err error) {
	if t.outputs == nil {
		return false, nil
	}
	sel := t.manifest.Parent.Selection
	left := in.Outputs
	rows := bufio.NewReader(io.LimitReader(t.outputs, int64(left))) // users may have changed the file
	for range in.OK {
		row, err := rows.ReadBytes('\n')
		if err != nil || uint64(len(row)) > left {
			return false, t.damaged(err)
		}
		left -= uint64(len(row))
		selected = selected || sel.SelectsAnswer(dialect.Name(t.manifest.Dialect), row)
	}
	if left > 0 {
		return false, t.damaged(nil)
	}
	return selected, nil
}

// touched reports whether the child asks items of the shard again. It reads the
// shard's error rows. kept are the counts of a shard of which it asks none.
func (t *inheritance) touched(in shardtable.Inherited) (touched bool, kept shard.Counts, err error) {
	sel := t.manifest.Parent.Selection
	if touched, err = t.answers(in); err != nil {
		return false, kept, err
	}
	touched = touched || sel.SelectsAll()
	for n := range in.Items() {
		if touched || sel.Items.Len() == 0 {
			break
		}
		touched = sel.Items.Has(int(in.FirstItem) + n)
	}
	byClass := map[string]int{}
	for left := in.Errors; left > 0; {
		row, err := t.errors.ReadBytes('\n')
		if err != nil || uint64(len(row)) > left {
			return false, kept, t.damaged(err)
		}
		left -= uint64(len(row))
		f, ok := dialect.ReadFailure(dialect.Name(t.manifest.Dialect), row)
		if !ok {
			return false, kept, t.damaged(nil)
		}
		touched = touched || sel.Selects(f.Place.Item, f.Class)
		byClass[string(f.Class)]++
	}
	return touched, shard.Counts{OK: int(in.OK), Kept: int(in.OK), Failed: int(in.Failed), KeptFailed: int(in.Failed),
		ByClass: byClass}, nil
}

// checkEnd checks that the entries end with the shards, and the files with the rows.
func (t *inheritance) checkEnd(ctx context.Context, entries io.Reader, end shardtable.Inherited) error {
	if n, err := io.ReadFull(entries, make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return t.damaged(err)
	}
	for file, size := range map[string]uint64{record.CompletionsFile: end.OutputAt, record.ErrorsFile: end.ErrorAt} {
		info, err := t.planner.Blobs.Stat(ctx, record.OutputKey(t.manifest.Parent.Run, file), "")
		if err != nil {
			return err
		}
		if uint64(info.Size) != size {
			return t.damaged(nil)
		}
	}
	return nil
}

// damaged is the error of a parent whose files are not those that it wrote.
func (t *inheritance) damaged(err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return fault.New(fault.Corrupt, "the output files of run %s are not those that it wrote", t.manifest.Parent.Run)
}
