package diagnosis

import (
	"context"

	"rollout/functions/status"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/result"
)

// joinedRow is the row of an item in the files of an ended run.
type joinedRow struct {
	result.Row
	place RowPlace
}

// joined finds the item's row in the files of an ended run by the entries of the files, without
// reading other shards' rows; nil if the entries, or the rows that they name, are gone or
// changed.
func (x *Explainer) joined(ctx context.Context, p status.Progress, t *ItemReport) (*joinedRow, error) {
	if t.shard < 0 {
		return nil, nil
	}
	id := p.Manifest.Run
	j, err := result.FindJoined(ctx, x.ports.Blobs, id, t.shard, t.Item-uint64(t.Position))
	if err != nil {
		return nil, gone(err)
	}
	rows, err := result.ReadJoined(ctx, x.ports.Blobs, id, dialect.Name(p.Manifest.Dialect), j.Inherited)
	if err != nil || t.Position >= len(rows) {
		return nil, gone(err)
	}
	row := rows[t.Position]
	place := RowPlace{Key: record.OutputKey(id, record.CompletionsFile), Offset: int64(j.OutputAt), Line: j.OKBefore + 1}
	if row.Class != "" {
		place = RowPlace{Key: record.OutputKey(id, record.ErrorsFile), Offset: int64(j.ErrorAt), Line: j.FailedBefore + 1}
	}
	for _, before := range rows[:t.Position] {
		if (before.Class == "") == (row.Class == "") {
			place.Offset, place.Line = place.Offset+int64(len(before.Bytes)), place.Line+1
		}
	}
	return &joinedRow{row, place}, nil
}

// fromJoined reports on an item by its row in the files of an ended run. d is the
// document of its shard. It returns false for an item without such a row, and for one that the
// run's end left, if its shard has no result.
func (x *Explainer) fromJoined(ctx context.Context, p status.Progress, t *ItemReport, d shard.Doc) (bool, error) {
	row, err := x.joined(ctx, p, t)
	if err != nil || row == nil || d.Result == nil && row.Class.Unanswered() {
		return false, err
	}
	if row.Class == "" && d.Result != nil && !t.copied {
		t.say("it is answered: worker %s committed its row (attempt %d)", d.Worker, d.Attempt)
	}
	t.inFiles(p, row)
	return true, nil
}

// inFiles sets what the item's row in the files of an ended run says.
func (t *ItemReport) inFiles(p status.Progress, row *joinedRow) {
	t.Row = &row.place
	if row.Class == "" {
		t.State, t.Next = Answered, "read it there"
		t.say("its answer is in %s", t.Row)
		return
	}
	f, _ := dialect.ReadFailure(dialect.Name(p.Manifest.Dialect), row.Bytes) // ReadJoined has read it, too
	if t.State != Failed && t.State != NotProcessed {
		t.failed(f)
	}
	t.Why = f.Message
	t.say("its line is in %s", t.Row)
}

// endedSince reports on an item whose result was freed while it was looked for: the run has
// ended, and its files have the row.
func (x *Explainer) endedSince(ctx context.Context, p status.Progress, t *ItemReport) error {
	if p.State.Phase.Ended() {
		return nil // the caller reads the files
	}
	s := run.New(p.Manifest.Run)
	if _, _, err := host.Load(ctx, x.ports.Docs, record.CoordinatorKey(s.Run), &s); err != nil {
		return err
	}
	if !s.Phase.Ended() { // it is lost
		return nil
	}
	t.State = ""
	p.State = s
	return x.findInOutputs(ctx, p, t)
}
