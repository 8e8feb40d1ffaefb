package diagnosis

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/result"
)

// Shown is one item from inside: what was or will be asked, and what came of it.
type Shown struct {
	ItemReport
	// Request is what is sent to an inference server; null if the line is not a request
	// or its input is gone.
	Request *ShownRequest `json:"request"`
	// Output is the item's row, as the run's files have it; null before it has one.
	Output json.RawMessage `json:"output"`
	// Answers are the answers in the row; empty in an error row.
	Answers []ShownAnswer `json:"answers"`
	// Score is the row's own score, and Scores those of each grader; null without any.
	Score            *float64                  `json:"score"`
	Scores           map[string]grade.RowScore `json:"scores"`
	GeneratedAt      *time.Time                `json:"generated_at"`
	PromptTokens     *int64                    `json:"prompt_tokens"`
	CompletionTokens *int64                    `json:"completion_tokens"`
}

// ShownRequest is a request as the run's config and the deployment's make it. Headers,
// addresses and secrets are not in it.
type ShownRequest struct {
	Endpoint dialect.Endpoint `json:"endpoint"`
	Path     string           `json:"path,omitempty"` // that the config sets
	Body     json.RawMessage  `json:"body"`           // of the first answer
	// Seeds are those of all answers: one request is made for each. The requests differ in
	// nothing else. Values that a line itself has may be any JSON.
	Seeds []json.RawMessage `json:"seeds"`
}

// ShownAnswer is one answer to an item.
type ShownAnswer struct {
	Text         string `json:"text"`
	FinishReason string `json:"finish_reason"` // "" if the server gave none
}

// Show shows the items of a run that item names, as in Explain. A number is the id of a
// line or, if no planned line has that id, an index. An item or a run that does not exist
// is NotFound.
func (x *Explainer) Show(ctx context.Context, id identity.RunID, item string) (status.Status, []Shown, error) {
	workers, err := x.reader.Workers(ctx)
	if err != nil {
		return status.Status{}, nil, err
	}
	p, err := x.reader.Progress(ctx, id, workers)
	if err != nil {
		return status.Status{}, nil, err
	}
	now := x.ports.Clock.Now()
	run := StatusOf(p, now)
	if item, err = x.indexOrID(ctx, p, item); err != nil {
		return run, nil, err
	}
	reports, err := x.explainItem(ctx, p, item, now)
	if err != nil {
		return run, nil, err
	}
	shown := make([]Shown, len(reports))
	for i, r := range reports {
		if shown[i], err = x.show(ctx, p, r); err != nil {
			return run, nil, fault.Wrap(err, "show item %d", r.Item)
		}
	}
	return run, shown, nil
}

// indexOrID returns "#" and the number for a number that is the id of no planned line. If it
// may be an id and the line can't be read, it returns the text: the run's files may have it.
func (x *Explainer) indexOrID(ctx context.Context, p status.Progress, text string) (string, error) {
	if _, isIndex := itemIndex("#" + text); !isIndex {
		return text, nil
	}
	lines, complete, err := x.findPlanned(ctx, p, text)
	freed := p.State.Phase.Ended() || p.Plan.Inherited != nil // the lists of ids, or those of the parent
	if err == nil && len(lines) == 0 && !complete && freed {
		lines, err = x.find(ctx, p, itemRef{text: text})
	}
	switch {
	case fault.Is(err, fault.NotFound), fault.ClassOf(err) == fault.InputChanged:
		return text, nil
	case err != nil, len(lines) > 0:
		return text, err
	}
	return "#" + text, nil
}

// show adds the request and the row to a report.
func (x *Explainer) show(ctx context.Context, p status.Progress, t ItemReport) (Shown, error) {
	s := Shown{ItemReport: t, Answers: []ShownAnswer{}}
	m := t.manifest
	asked, err := x.askedBy(ctx, t)
	if err != nil {
		return s, err
	}
	s.Request = x.request(asked, t)
	row := t.row
	if row == nil && t.Row != nil {
		if row, err = x.readRow(ctx, *t.Row); err != nil {
			return s, err
		}
	}
	if row == nil {
		return s, nil
	}
	if m.Run == "" {
		m = p.Manifest
	}
	s.Output = row
	if t.State == Failed || t.State == NotProcessed || t.Class != "" {
		return s, nil
	}
	o, err := dialect.ReadOutput(dialect.Name(m.Dialect), row)
	if err != nil {
		return s, err
	}
	for i, text := range o.Texts {
		a := ShownAnswer{Text: text}
		if i < len(o.FinishReasons) {
			a.FinishReason = o.FinishReasons[i]
		}
		s.Answers = append(s.Answers, a)
	}
	if !o.GeneratedAt.IsZero() {
		s.GeneratedAt = &o.GeneratedAt
	}
	if !o.Usage.Unknown {
		s.PromptTokens, s.CompletionTokens = &o.Usage.PromptTokens, &o.Usage.CompletionTokens
	}
	if len(m.Config.Grades) > 0 {
		r, err := grade.ReadRow(row)
		if err != nil {
			return s, err
		}
		s.Score, s.Scores = r.Score, r.Scores
	}
	return s, nil
}

// askedBy returns the manifest of the run that asks the item, or has asked it: that of the
// report or, if the run keeps the row of its parent, of an ancestor. They differ in the
// settings of the request. What has been cleaned up counts as asked by the run itself.
func (x *Explainer) askedBy(ctx context.Context, t ItemReport) (record.Manifest, error) {
	m := t.manifest
	for m.Parent != nil && m.Original != nil {
		loc, err := x.index.LocateItem(ctx, m.Run, t.Item)
		if err != nil {
			return m, gone(err)
		}
		in, err := x.index.Inherited(ctx, m.Run, loc.Shard())
		if err != nil {
			return m, gone(err)
		}
		if in.Touched {
			rows, _, err := result.ReadKept(ctx, x.ports.Blobs, m, in)
			if err != nil {
				return m, gone(err)
			}
			at := int(t.Item - loc.FirstItem())
			if !slices.ContainsFunc(rows, func(r result.Row) bool { return r.Item == at }) {
				return m, nil
			}
		}
		if m, err = host.LoadManifest(ctx, x.ports.Docs, m.Parent.Run); err != nil {
			return t.manifest, gone(err)
		}
	}
	return m, nil
}

// gone returns nil for the error of something that was cleaned up or changed since.
func gone(err error) error {
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return nil
	}
	return err
}

// request returns the request of a report's line in a run with the manifest; nil if there
// is none.
func (x *Explainer) request(m record.Manifest, t ItemReport) *ShownRequest {
	if t.line == nil || t.ItemID == "" || t.DuplicateOf != nil {
		return nil
	}
	it, err := dialect.Parse(dialect.Name(m.Dialect), t.line)
	if err != nil {
		return nil
	}
	engine := x.deployment.ForPool(m.Pool).Engine
	settings := dialect.NewSettings(m.Config.Request, engine.Request)
	if _, err := settings.Target(it); err != nil || it.CheckTensors(engine.Tensors) != nil {
		return nil
	}
	model := m.DialectModel()
	id := it.ItemID(model, t.Item)
	out := &ShownRequest{Seeds: []json.RawMessage{}}
	for k := range it.AnswerCount(m.Config.Sampling) {
		r := settings.AppendRequest(&dialect.Buffers{}, it, model, m.Config.Sampling, m.PromptMaxTokens, id, k)
		if k == 0 {
			out.Endpoint, out.Path, out.Body = r.Endpoint, r.Path, r.Body
		}
		if seed := seedOf(r.Body); seed != nil {
			out.Seeds = append(out.Seeds, seed)
		}
	}
	return out
}

// seedOf returns the seed in the body of a request; nil without one.
func seedOf(body []byte) json.RawMessage {
	o := jsonl.ReadObject(body)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == "seed" {
			return m.Value
		}
	}
	return nil
}

// readRow reads the row at a place.
func (x *Explainer) readRow(ctx context.Context, at RowPlace) ([]byte, error) {
	r, _, err := x.ports.Blobs.Get(ctx, at.Key, blob.GetOptions{Offset: at.Offset})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", at.Key)
	}
	defer r.Close()
	l, err := jsonl.NewScanner(r, jsonl.Options{MaxLine: maxRow}).Next()
	if l.TooLong {
		return nil, fault.New(fault.Corrupt, "the row in %s has %d bytes", at, l.Length)
	}
	if err != nil && err != io.EOF {
		return nil, fault.Wrap(err, "read the row in %s", at)
	}
	return l.Bytes, nil
}
