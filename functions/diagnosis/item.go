package diagnosis

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
)

// ItemState is where an item is. Example: "answered".
type ItemState string

// The states of an item.
const (
	NotPlanned   ItemState = "not_planned" // its part of the input is not planned yet
	Queued       ItemState = "queued"      // its shard is not sent yet
	Waiting      ItemState = "waiting"     // its shard waits for a worker
	Assigned     ItemState = "in_hand"     // a worker holds its shard: it is asked, or comes next
	Suspected    ItemState = "suspected"   // it may have crashed an engine: it is asked last
	OnProbation  ItemState = "trying"      // it is asked now, alone
	Checkpointed ItemState = "has_row"     // a checkpoint has its row
	Answered     ItemState = "answered"    // its answer is committed
	Failed       ItemState = "failed"      // its error row is committed
	Copied       ItemState = "copied"      // it gets the row of an earlier item that asks the same
	NotProcessed ItemState = "left_out"    // the run ended before it had a row
)

// ItemReport is where an item is, and why.
type ItemReport struct {
	Item   uint64      `json:"item"`    // its index
	ID     string      `json:"id"`      // the line's own id; "" without a readable one
	ItemID string      `json:"item_id"` // hex; "" if the line is not a request
	File   string      `json:"file"`
	Line   uint64      `json:"line"`
	Role   string      `json:"role,omitempty"` // "" for an item of the users
	State  ItemState   `json:"state"`
	Class  fault.Class `json:"class"` // why it failed, or will; "" otherwise
	Why    string      `json:"why"`   // the same in words
	// DuplicateOf is the first line with its id; null unless the item is a duplicate.
	DuplicateOf *LinePlace   `json:"duplicate_of"`
	Shard       *ShardReport `json:"shard"`    // null if it is not planned
	Position    int          `json:"position"` // in the shard, from 0
	Row         *RowPlace    `json:"row"`      // null before it has a row
	// Judges are what judges are asked about its answers; absent without any.
	Judges  []JudgeReport `json:"judges,omitempty"`
	History []string      `json:"story"`
	Next    string        `json:"next"` // what happens next, or what the user can do

	manifest record.Manifest // of its role; zero if its input is gone
	shard    int             // -1 if it is not planned
	again    Again
	copied   bool   // it asks the same as an earlier item
	line     []byte // nil if it is gone or too long
	row      []byte // of a checkpoint
}

// LinePlace is a line of an input.
type LinePlace struct {
	File string `json:"file"`
	Line uint64 `json:"line"` // from 1
}

// explainItem reports on the items that the text names.
func (x *Explainer) explainItem(ctx context.Context, p status.Progress, text string,
	now time.Time) ([]ItemReport, error) {
	if p.Manifest.Refused != "" {
		return nil, &fault.Error{Kind: fault.NotFound, Remedy: p.Manifest.Refused,
			Err: fmt.Errorf("run %s was refused: it has no items", p.Manifest.Run)}
	}
	w, err := x.parseItemRef(ctx, p, text)
	if err != nil {
		return nil, err
	}
	lines, err := x.find(ctx, p, w)
	if fault.Is(err, fault.NotFound) || fault.ClassOf(err) == fault.InputChanged {
		return x.explainFromOutputs(ctx, p, w, err)
	}
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, noSuchItem(p, w)
	}
	out := make([]ItemReport, 0, len(lines))
	for i, f := range lines {
		if i > 0 && f.line.Duplicate == nil { // as the plan will find out
			f.line.Duplicate = &lines[0].place
		}
		t, err := x.itemReport(ctx, p, f, now)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func noSuchItem(p status.Progress, w itemRef) error {
	e := &fault.Error{Kind: fault.NotFound}
	switch {
	case w.item != nil:
		e.Err = fmt.Errorf("run %s has no item %s", p.Manifest.Run, w.text)
		e.Remedy = fmt.Sprintf("it has %d so far, counted from 0", p.Plan.Items)
	case w.line > 0:
		e.Err = fmt.Errorf("line %d of %s is not an item", w.line, w.file)
		e.Remedy = "check that the file is that long; blank lines are not items"
	default:
		e.Err = fmt.Errorf("no line of run %s has the id %.128q", p.Manifest.Run, w.text)
		e.Remedy = "name the item by FILE:LINE or #INDEX; a line that is too long, or broken before its id, has no id: " +
			"look in errors.jsonl for rows whose id is null"
	}
	return e
}

// explainFromOutputs reports on an item whose input is gone, from the files of a
// run that has ended. It returns why for a run that has not ended.
func (x *Explainer) explainFromOutputs(ctx context.Context, p status.Progress, w itemRef,
	why error) ([]ItemReport, error) {
	if !p.State.Phase.Ended() {
		return nil, fault.Wrap(why, "look for the item")
	}
	t := ItemReport{History: []string{"the input is gone: only the run's files were read"}, shard: -1,
		again: againOf(p.Manifest)}
	name := dialect.Name(p.Manifest.Dialect)
	byID := func(row []byte) bool {
		id, ok := dialect.ScanID(name, row)
		return ok && string(id) == w.text
	}
	named := func(f dialect.Failure) bool {
		switch {
		case w.item != nil && f.Place.Item == *w.item, f.ID == w.text:
			return true
		}
		return w.line > 0 && f.Place.Line == w.line && f.Place.File == w.file
	}
	row, b, err := x.findRow(ctx, record.OutputKey(p.Manifest.Run, record.ErrorsFile), func(row []byte) bool {
		f, ok := dialect.ReadFailure(name, row)
		return ok && named(f)
	})
	if err != nil {
		return nil, err
	}
	if f, ok := dialect.ReadFailure(name, b); ok && row != nil {
		t.Item, t.ID, t.File, t.Line, t.Row = f.Place.Item, f.ID, f.Place.File, f.Place.Line, row
		t.failed(f)
		return []ItemReport{t}, nil
	}
	if w.item == nil && w.line == 0 {
		row, _, err = x.findRow(ctx, record.OutputKey(p.Manifest.Run, record.CompletionsFile), byID)
		if err != nil {
			return nil, err
		}
	}
	if row == nil {
		return nil, noSuchItem(p, w)
	}
	t.ID, t.State, t.Row = w.text, Answered, row
	t.say("its answer is in %s", row)
	return []ItemReport{t}, nil
}

// say appends a sentence to the history.
func (t *ItemReport) say(format string, args ...any) {
	t.History = append(t.History, fmt.Sprintf(format, args...))
}

// failed sets the fields that an error row determines.
func (t *ItemReport) failed(f dialect.Failure) {
	t.State, t.Class, t.Why, t.Next = Failed, f.Class, f.Message, Advice(f.Class, t.again)
	if status.Unanswered(f.Class) {
		t.State = NotProcessed
	}
	t.say("it failed as %s: %s", f.Class, f.Message)
}

// itemReport reports on one line.
func (x *Explainer) itemReport(ctx context.Context, p status.Progress, f foundLine, now time.Time) (ItemReport, error) {
	t := ItemReport{Item: f.place.Item, File: f.place.File, Line: f.place.Line, History: []string{}, shard: -1,
		again: againOf(p.Manifest)}
	loc, err := x.index.LocateItem(ctx, p.Manifest.Run, f.place.Item)
	planned := err == nil
	if err != nil && !fault.Is(err, fault.NotFound) {
		return t, err
	}
	if planned {
		marked, err := x.lineOf(ctx, p, loc, func(l input.Line) bool { return l.Place.Item == f.place.Item })
		if err == nil && len(marked) == 1 { // this line has the plan's marks of duplicates
			f = marked[0]
			t.Line = f.place.Line
		}
	}
	m := p.Manifest
	if role := loc.Cut.Role; planned && role > 0 {
		if m, err = m.InRole(role); err != nil {
			return t, err
		}
		if !p.Manifest.HasOutput(role) {
			t.Role = p.Manifest.Roles[role-1].Name
		}
		p.Manifest = m // its row is in the dialect of its role
	}
	t.read(m, f.line)
	if t.Role != "" {
		t.say("its role is %s: the run asks it for itself, and its row is in no output file", t.Role)
	}
	if !planned {
		return x.unplanned(ctx, p, t)
	}
	t.Position, t.shard = int(f.place.Item-loc.FirstItem()), loc.Shard()
	if kept, err := x.kept(ctx, p, &t, loc.Shard()); err != nil || kept {
		return t, err
	}
	d := shard.New(p.Manifest.Run, loc.Shard())
	if _, _, err := host.Load(ctx, x.ports.Docs, identity.ShardKey(d.Run, d.Shard), &d); err != nil {
		return t, err
	}
	sh := x.shardReport(p, d, now)
	sh.Items = int(loc.Cut.Items)
	t.Shard = &sh
	t.say("it is item %d of shard %d, which has %d", t.Position+1, sh.Shard, sh.Items)
	if pruned, err := x.pruned(ctx, p, &t, d, loc.Cut.Variant); err != nil || pruned {
		return t, err
	}
	if err := x.locateInShard(ctx, p, &t, d, now); err != nil || t.Role != "" {
		return t, err
	}
	return t, x.judged(ctx, p, &t, now)
}

// read sets the fields that the line itself determines.
func (t *ItemReport) read(m record.Manifest, l input.Line) {
	t.manifest, t.line = m, l.Bytes
	place := fmt.Sprintf("item %d is line %d of %s", t.Item, t.Line, t.File)
	if l.TooLong > 0 {
		if it, _ := dialect.Parse(dialect.Name(m.Dialect), l.Head); it.HasID {
			t.ID = it.ID
			place += fmt.Sprintf(", with the id %.128q", it.ID)
		}
		t.say("%s", place)
		t.Class, t.Why = fault.InvalidLine, fmt.Sprintf("the line has %d bytes, more than 16 MiB", l.TooLong)
		return
	}
	it, err := dialect.Parse(dialect.Name(m.Dialect), l.Bytes)
	if it.HasID {
		t.ID = it.ID
		place += fmt.Sprintf(", with the id %.128q", it.ID)
	}
	t.say("%s", place)
	if err == nil {
		t.ItemID = it.ItemID(m.DialectModel(), t.Item).String()
		t.say("its item id is %s", t.ItemID)
		err = it.CheckModel(m.ModelURI, m.Config.Request)
	}
	switch {
	case err != nil:
		t.Class, t.Why = fault.InvalidLine, err.Error()
		if c := fault.ClassOf(err); c != "" {
			t.Class = c
		}
		t.say("it is not a valid request: %s", t.Why)
	case l.Duplicate != nil:
		t.Class, t.DuplicateOf = fault.DuplicateID, &LinePlace{l.Duplicate.File, l.Duplicate.Line}
		t.Why = fmt.Sprintf("line %d of %s has the same id and came first", l.Duplicate.Line, l.Duplicate.File)
		t.say("it is a duplicate: %s", t.Why)
	case l.Original != nil:
		t.copied = true
		t.say("it asks the same as line %d of %s (item %d): that one is asked for both",
			l.Original.Line, l.Original.File, l.Original.Item)
	}
}

// unplanned reports on an item that is not in a shard yet, or whose plan was
// cleaned up.
func (x *Explainer) unplanned(ctx context.Context, p status.Progress, t ItemReport) (ItemReport, error) {
	if p.State.Phase.Ended() {
		return t, x.findInOutputs(ctx, p, &t)
	}
	t.State = NotPlanned
	progress := ""
	if p.Plan.Total > 0 {
		progress = fmt.Sprintf(": %s of %s", figures.Count(p.Plan.Merged),
			figures.OfMany(p.Plan.Total, "range is", "ranges are"))
	}
	t.say("its part of the input is not planned yet%s", progress)
	t.Next = "it is sent to a worker after that"
	return t, nil
}

// locateInShard sets where the item is, by its shard's document.
func (x *Explainer) locateInShard(ctx context.Context, p status.Progress, t *ItemReport, d shard.Doc,
	now time.Time) error {
	ended := p.State.Phase.Ended()
	t.say("%s", t.Shard.Describe(now))
	if ended && d.State == shard.Done && (d.Result != nil || d.Checkpoint != nil) && t.Role == "" {
		if found, err := x.fromJoined(ctx, p, t, d); err != nil || found {
			return err
		}
	}
	switch {
	case ended && p.State.Done.Set.Has(d.Shard) && d.State == shard.Pending: // its document is cleaned up
		return x.findInOutputs(ctx, p, t)
	case ended && (d.State != shard.Done || p.State.FrozenFrontier > 0 && d.Shard >= p.State.FrozenFrontier):
		t.markUnprocessed(p.State.Reason.Class(), "the run ended before its shard was sent")
		return x.findInOutputs(ctx, p, t)
	case ended && d.State == shard.Done && d.Result != nil && t.Role == "":
		return x.findInOutputs(ctx, p, t)
	case d.State == shard.Done && d.Result != nil:
		read := x.fromResult
		if p.Manifest.Config.Dedupe.Enabled {
			read = x.fromIndexed
		}
		if err := read(ctx, p, t, d); err != nil || !ended {
			return err
		}
		return x.findInOutputs(ctx, p, t)
	}
	if d.Checkpoint != nil {
		if has, err := x.fromCheckpoint(ctx, p, t, d); err != nil || has {
			return err
		}
	}
	switch {
	case d.State == shard.Done:
		t.markUnprocessed(d.Sealed, "the run ended before it had a row: its shard was sealed")
		if ended {
			return x.findInOutputs(ctx, p, t)
		}
	case slices.Contains(d.OnProbation, t.Position):
		t.State = OnProbation
		t.Next = "it is asked now with nothing else at the server: if the server dies of it twice, it is put aside as poison"
	case d.Suspects.Has(t.Position):
		t.State = Suspected
		t.Next = "an inference server died while it was asked: it is asked again when all others of its shard have their rows"
		if n := d.Crashes[t.Position]; n != (shard.Crashes{}) {
			t.say("the inference server died while it was on probation: %s", n)
		}
	case d.State == shard.Running && (t.Shard.Verdict == health.Alive || t.Shard.Verdict == ""):
		t.State, t.Next = Assigned, "it is being asked, or comes next"
		if t.Class != "" {
			t.Next = "it gets an error row: " + Advice(t.Class, t.again)
		}
	case d.State == shard.Running:
		t.State, t.Next = Waiting, "another worker takes its shard over in some seconds; rows in its checkpoint are kept"
	case !p.State.WasSent(d.Shard):
		t.State = Queued
		t.Next = fmt.Sprintf("its shard is sent when earlier ones are done: %d of %d are sent so far",
			p.State.Sent(), max(p.State.Shards, p.Plan.Shards))
	default:
		t.State, t.Next = Waiting, "the next worker with room takes its shard"
	}
	if held := blockers(p, status.Of(p, now), now); !ended && len(held) > 0 {
		t.Next += "; but " + held[0].Text
		if held[0].Remedy != "" {
			t.Next += " (" + held[0].Remedy + ")"
		}
	}
	return nil
}

// pruned reports on an item whose shard is done without having been sent, because its
// variant was pruned before, as the record of that says. It returns false for others.
func (x *Explainer) pruned(ctx context.Context, p status.Progress, t *ItemReport, d shard.Doc,
	variant uint32) (bool, error) {
	if d.State != shard.Pending || !p.State.Done.Set.Has(d.Shard) {
		return false, nil
	}
	var r record.PrunedVariant
	err := input.ReadJSON(ctx, x.ports.Blobs, record.PrunedKey(p.Manifest.Run, variant), &r)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil || !r.Has(d.Shard) {
		return false, err
	}
	t.markUnprocessed(fault.Pruned, fmt.Sprintf("its variant (%d) was pruned before its shard was sent: %s",
		variant, r.Why))
	if !p.State.Phase.Ended() {
		return true, nil
	}
	return true, x.findInOutputs(ctx, p, t)
}

// markUnprocessed sets the state of an item without a row in an ended run.
func (t *ItemReport) markUnprocessed(c fault.Class, why string) {
	t.State, t.Class, t.Why, t.Next = NotProcessed, c, why, Advice(c, t.again)
	t.say("%s: its class is %s", why, c)
}

// fromResult finds the item's row in a committed result, which has the output
// rows and then the error rows, each in item order.
func (x *Explainer) fromResult(ctx context.Context, p status.Progress, t *ItemReport, d shard.Doc) error {
	before, failure, at, err := x.errorRow(ctx, p, t, d)
	switch {
	case fault.Is(err, fault.NotFound): // freed: the run has ended since, and its files have the row
		t.State = Answered
		return x.endedSince(ctx, p, t)
	case err != nil:
		return err
	case failure != nil:
		t.Row = &RowPlace{Key: d.Result.Key, Offset: d.OutputLen + at}
		t.failed(*failure)
		return nil
	}
	offset, err := x.skipRows(ctx, d.Result.Key, t.Position-before)
	if err != nil {
		return err
	}
	t.State, t.Row = Answered, &RowPlace{Key: d.Result.Key, Offset: offset}
	if t.Role == "" {
		t.Next = inCompletions
	}
	t.say("it is answered: worker %s committed its row (attempt %d)", d.Worker, d.Attempt)
	return nil
}

// fromIndexed finds the item's row in the result of a run that asks identical
// requests once, which has an index.
func (x *Explainer) fromIndexed(ctx context.Context, p status.Progress, t *ItemReport, d shard.Doc) error {
	b, err := input.ReadObject(ctx, x.ports.Blobs, d.Result.Key, d.Result.Length)
	if fault.Is(err, fault.NotFound) { // freed: the run has ended since, and its files have the row
		return x.endedSince(ctx, p, t)
	}
	if err != nil {
		return err
	}
	parts, _, err := result.ParseIndex(b, d.Result.Length, d.Items)
	if err != nil || t.Position >= len(parts) {
		return fault.Wrap(err, "result %s", d.Result.Key)
	}
	part := parts[t.Position]
	t.Row = &RowPlace{Key: d.Result.Key, Offset: part.Offset}
	f, failed := dialect.ReadFailure(dialect.Name(p.Manifest.Dialect), b[part.Offset:part.Offset+part.Length])
	switch {
	case part.Kind == result.RowCopy:
		t.State, t.Row = Copied, nil
		t.Next = fmt.Sprintf("it gets a copy of the row of item %d when the run has ended", part.Original)
	case part.Kind == result.RowError && failed:
		t.failed(f)
	default:
		t.State, t.Next = Answered, inCompletions
		t.say("it is answered: worker %s committed its row (attempt %d)", d.Worker, d.Attempt)
	}
	return nil
}

const inCompletions = "its row is in completions.jsonl when the run has ended"

// errorRow finds the item's error row in a result. It returns the number of error
// rows of earlier items, and the failure and its offset among the error rows; f
// is nil for an item without one.
func (x *Explainer) errorRow(ctx context.Context, p status.Progress, t *ItemReport,
	d shard.Doc) (before int, f *dialect.Failure, at int64, err error) {
	if d.OutputLen == d.Result.Length {
		return 0, nil, 0, nil
	}
	b, err := x.part(ctx, d.Result.Key, d.OutputLen, d.Result.Length-d.OutputLen)
	if err != nil {
		return 0, nil, 0, err
	}
	for row := range bytes.Lines(b) {
		got, ok := dialect.ReadFailure(dialect.Name(p.Manifest.Dialect), row)
		if !ok {
			return 0, nil, 0, fault.New(fault.Corrupt, "result %s has a row at byte %d that is not an error row",
				d.Result.Key, d.OutputLen+at)
		}
		if got.Place.Item == t.Item {
			return before, &got, at, nil
		}
		if got.Place.Item > t.Item {
			break
		}
		before++
		at += int64(len(row))
	}
	return before, nil, 0, nil
}

// maxErrorRows bounds the error rows of a result that are read, in bytes.
const maxErrorRows = 256 << 20

// part reads a part of an object, at most maxErrorRows bytes.
func (x *Explainer) part(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	r, _, err := x.ports.Blobs.Get(ctx, key, blob.GetOptions{Offset: offset, Length: length})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	defer r.Close() // a read loses nothing
	b, err := io.ReadAll(io.LimitReader(r, min(length, maxErrorRows)))
	return b, fault.Wrap(err, "read %s", key)
}

// skipRows returns the offset of row n of an object.
func (x *Explainer) skipRows(ctx context.Context, key string, n int) (int64, error) {
	row, _, err := x.findRow(ctx, key, func([]byte) bool { n--; return n < 0 })
	if err != nil || row == nil {
		return 0, fault.Wrap(err, "find the row in %s", key)
	}
	return row.Offset, nil
}

// fromCheckpoint finds the item's row in its shard's checkpoint, and reports
// whether it is there.
func (x *Explainer) fromCheckpoint(ctx context.Context, p status.Progress, t *ItemReport, d shard.Doc) (bool, error) {
	rows, err := result.ReadCheckpoint(ctx, x.ports.Blobs, *d.Checkpoint, t.Shard.Items)
	switch {
	case fault.Is(err, fault.NotFound): // cleaned up
		return false, nil
	case err != nil:
		return false, err
	}
	for _, r := range rows {
		if r.Item != t.Position {
			continue
		}
		if f, ok := dialect.ReadFailure(dialect.Name(p.Manifest.Dialect), r.Bytes); ok && r.Class != "" {
			t.failed(f)
		} else {
			t.say("it is answered")
			t.State = Checkpointed
		}
		t.row = bytes.TrimSuffix(r.Bytes, []byte("\n"))
		if d.State == shard.Done {
			if t.State == Checkpointed {
				t.State = Answered
			}
			return true, x.findInOutputs(ctx, p, t)
		}
		t.State = Checkpointed
		t.Next = "its row is in the shard's checkpoint: the next holder of the shard keeps it"
		return true, nil
	}
	return false, nil
}

// findInOutputs finds the item's row in the files of an ended run: an error row
// by its item, an answer by its id. Items of other roles have none there.
func (x *Explainer) findInOutputs(ctx context.Context, p status.Progress, t *ItemReport) error {
	if t.Role != "" {
		return nil
	}
	if row, err := x.joined(ctx, p, t); err != nil || row != nil {
		if row != nil {
			t.inFiles(p, row)
		}
		return err
	}
	name := dialect.Name(p.Manifest.Dialect)
	if t.State != Answered {
		row, b, err := x.findRow(ctx, record.OutputKey(p.Manifest.Run, record.ErrorsFile), func(row []byte) bool {
			f, ok := dialect.ReadFailure(name, row)
			return ok && f.Place.Item == t.Item
		})
		if err != nil {
			return err
		}
		if f, ok := dialect.ReadFailure(name, b); ok && row != nil {
			if t.State == "" || t.State == Copied {
				t.failed(f)
			}
			t.Row, t.Why = row, f.Message
			t.say("its line is in %s", row)
			return nil
		}
	}
	id := []byte(t.ID)
	if t.ID == "" {
		id = []byte(t.ItemID)
	}
	row, _, err := x.findRow(ctx, record.OutputKey(p.Manifest.Run, record.CompletionsFile), func(row []byte) bool {
		got, ok := dialect.ScanID(name, row)
		return ok && bytes.Equal(got, id)
	})
	if err != nil || row == nil {
		return err
	}
	t.State, t.Row, t.Next = Answered, row, "read it there"
	t.say("its answer is in %s", row)
	return nil
}
