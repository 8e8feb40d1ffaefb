package diagnosis

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/text"
)

// ListedState is where an item of a list is. Example: "done".
type ListedState string

// The states of an item in a list.
const (
	ListedDone    ListedState = "done"
	ListedFailed  ListedState = "failed"
	ListedWaiting ListedState = "waiting"
	ListedInHand  ListedState = "in_hand" // a worker has its shard, or a checkpoint its row
)

// ListedItem is an item in a list.
type ListedItem struct {
	Item         uint64      `json:"index"`
	ID           string      `json:"id"`
	State        ListedState `json:"state"`
	Class        fault.Class `json:"class"`         // of a failed item
	FinishReason string      `json:"finish_reason"` // the first of its answers that is not stop
	Score        *float64    `json:"score"`
	Tokens       int64       `json:"tokens"`  // of its answers; 0 if unknown
	Preview      string      `json:"preview"` // the begin of its answer, or the error's message
}

// Bounds of a listed item, in characters.
const (
	maxPreview  = 200
	maxListedID = 256
)

// ItemFilter says which items a list has.
type ItemFilter struct {
	From         uint64 // the index at which to begin
	Limit        int
	Class        fault.Class // only failed items of this class; "" for any
	FinishReason string      // only items with an answer that ended so; "" for any
	MinScore     *float64    // only items with at least, and at most, this score
	MaxScore     *float64
	Text         string // only items whose id has this text
	Bytes        int    // bound of the items, as JSON
}

// needsAnswer reports whether only items with an answer pass.
func (f ItemFilter) needsAnswer() bool {
	return f.FinishReason != "" || f.MinScore != nil || f.MaxScore != nil
}

// ItemPage is a part of a run's items, in input order.
type ItemPage struct {
	Items []ListedItem
	// Next is the index at which to go on; nil at the end of what is planned.
	Next    *uint64
	Scanned uint64 // items that were looked at
	Unread  uint64 // of those, items whose rows are too long to be read for a list
	Of      uint64 // items of the run, as far as it is planned
}

// Bounds of the work for one page. A shard that has begun is ended.
const (
	maxListBytes  = 16 << 20 // of rows that are read
	maxListShards = 4096
	maxListTime   = 2 * time.Second
)

// Items lists items of a run in input order: from the shards' results while it is open, and from
// its files when it has ended. The time and the bytes for a page are bounded: a filter that finds
// nothing soon returns an empty page that says where to go on.
func (x *Explainer) Items(ctx context.Context, id identity.RunID, f ItemFilter) (page ItemPage, err error) {
	p, err := x.progress(ctx, id)
	if err != nil {
		return page, err
	}
	page = ItemPage{Items: []ListedItem{}, Of: status.Of(p, x.ports.Clock.Now()).Items.Total}
	if p.Manifest.Refused != "" || p.Kind.Trains {
		return page, nil
	}
	ended := p.State.Phase.Ended()
	if f.Class != "" && ended && p.State.Counts.ByClass[string(f.Class)] == 0 {
		page.Scanned = page.Of - min(page.Of, f.From)
		return page, nil
	}
	l := x.list(p)
	defer l.close()
	l.errorsOnly = f.Class != "" && !f.needsAnswer()
	l.skips = func(d shard.Doc) bool {
		return f.Class != "" && d.Counts.ByClass[string(f.Class)] == 0 || f.needsAnswer() && d.Counts.OK == 0
	}
	next, err := l.each(ctx, f.From, func(it listed) (bool, error) {
		if len(page.Items) == f.Limit {
			return false, nil
		}
		v, ok := l.view(it, f)
		if !ok {
			return true, nil
		}
		b, err := json.Marshal(v)
		if f.Bytes -= len(b) + 1; err != nil || f.Bytes < 0 {
			return false, err
		}
		page.Items = append(page.Items, v)
		return true, nil
	})
	page.Next, page.Scanned, page.Unread = next, l.scanned, l.unread
	return page, err
}

// progress reads what the documents say of a run.
func (x *Explainer) progress(ctx context.Context, id identity.RunID) (status.Progress, error) {
	workers, err := x.reader.Workers(ctx)
	if err != nil {
		return status.Progress{}, err
	}
	return x.reader.Progress(ctx, id, workers)
}

// view returns how a list shows an item, and whether the filter lets it pass.
func (l *lister) view(it listed, f ItemFilter) (v ListedItem, ok bool) {
	v = ListedItem{Item: it.item, State: it.state, Class: it.class}
	if f.Class != "" && it.class != f.Class || f.needsAnswer() && (it.row == nil || it.class != "") {
		return v, false
	}
	id := it.id()
	if !strings.Contains(id, f.Text) {
		return v, false
	}
	v.ID = text.Truncate(id, maxListedID, "…")
	switch {
	case it.row == nil:
		return v, true
	case it.class != "":
		failure, _ := dialect.ReadFailure(it.dialect, it.row)
		v.Preview = firstChars(failure.Message)
		return v, true
	case f.FinishReason != "" && !dialect.HasFinishReason(it.dialect, it.row, []string{f.FinishReason}):
		return v, false
	}
	if len(l.p.Manifest.Config.Grades) > 0 {
		if r, err := grade.ReadRow(it.row); err == nil { // a run that goes on has rows without scores
			v.Score = r.Score
		}
	}
	if f.MinScore != nil && (v.Score == nil || *v.Score < *f.MinScore) ||
		f.MaxScore != nil && (v.Score == nil || *v.Score > *f.MaxScore) {
		return v, false
	}
	o, err := dialect.ReadOutput(it.dialect, it.row)
	if err != nil { // an answer that is not a text, such as an embedding
		return v, true
	}
	for _, reason := range o.FinishReasons {
		if v.FinishReason == "" || v.FinishReason == shard.FinishStop {
			v.FinishReason = text.Truncate(reason, maxListedID, "…")
		}
	}
	if !o.Usage.Unknown {
		v.Tokens = o.Usage.CompletionTokens
	}
	if len(o.Texts) > 0 {
		v.Preview = firstChars(o.Texts[0])
	}
	return v, true
}

// firstChars returns the first characters of a text.
func firstChars(s string) string {
	n := 0
	for i := range s {
		if n++; n > maxPreview {
			return s[:i]
		}
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
