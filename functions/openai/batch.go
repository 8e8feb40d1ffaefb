package openai

import (
	"cmp"
	"context"
	"time"

	"rollout/events"
	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Batch is a batch as OpenAI's API describes it. Times are in seconds since 1970.
type Batch struct {
	ID               string            `json:"id"`
	Object           string            `json:"object"` // "batch"
	Endpoint         string            `json:"endpoint"`
	Model            string            `json:"model,omitempty"`
	Errors           *BatchErrors      `json:"errors"` // null unless it failed
	InputFileID      string            `json:"input_file_id"`
	CompletionWindow string            `json:"completion_window"`
	Status           string            `json:"status"`
	OutputFileID     *string           `json:"output_file_id"` // null while there is none
	ErrorFileID      *string           `json:"error_file_id"`
	CreatedAt        int64             `json:"created_at"`
	InProgressAt     *int64            `json:"in_progress_at"`
	ExpiresAt        *int64            `json:"expires_at"`
	FinalizingAt     *int64            `json:"finalizing_at"`
	CompletedAt      *int64            `json:"completed_at"`
	FailedAt         *int64            `json:"failed_at"`
	ExpiredAt        *int64            `json:"expired_at"`
	CancellingAt     *int64            `json:"cancelling_at"`
	CancelledAt      *int64            `json:"cancelled_at"`
	RequestCounts    Counts            `json:"request_counts"`
	Usage            *Usage            `json:"usage,omitempty"` // of the answers that are committed
	Metadata         map[string]string `json:"metadata"`
}

// BatchErrors are why a batch failed as a whole.
type BatchErrors struct {
	Object string       `json:"object"` // "list"
	Data   []BatchError `json:"data"`
}

// BatchError is why a batch failed as a whole.
type BatchError struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Param   *string `json:"param"`
	Line    *uint64 `json:"line"`
}

// Counts counts the requests of a batch.
type Counts struct {
	Total     uint64 `json:"total"`
	Completed uint64 `json:"completed"`
	Failed    uint64 `json:"failed"`
}

// Usage counts tokens.
type Usage struct {
	InputTokens   int64         `json:"input_tokens"`
	InputDetails  InputDetails  `json:"input_tokens_details"`
	OutputTokens  int64         `json:"output_tokens"`
	OutputDetails OutputDetails `json:"output_tokens_details"`
	TotalTokens   int64         `json:"total_tokens"`
}

// InputDetails and OutputDetails are parts of the tokens, as far as servers report them.
type (
	InputDetails struct {
		Cached int64 `json:"cached_tokens"`
	}
	OutputDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	}
)

// announceAfter is how long after it was announced a batch without a run is announced again,
// when a client asks for it: the event may have been lost with the process that sent it.
const announceAfter = time.Minute

// mayAnnounce reports whether the batch should be announced again now, and notes that it is.
func (s *Server) mayAnnounce(b record.Batch) bool {
	now := s.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.announced[b.Run]
	if b.Created.After(last) {
		last = b.Created
	}
	if now.Sub(last) < announceAfter {
		return false
	}
	if len(s.announced) >= maxRepeated {
		clear(s.announced) // at worst one is announced too early
	}
	s.announced[b.Run] = now
	return true
}

// batch returns the batch of a run, or NotFound.
func (s *Server) batch(ctx context.Context, id identity.RunID) (Batch, error) {
	all, err := s.batches(ctx, []identity.RunID{id})
	if err == nil && len(all) == 0 {
		err = fault.New(fault.NotFound, "no batch found with id %q", batchID(id))
	}
	if err != nil {
		return Batch{}, err
	}
	return all[0], nil
}

// batches returns those of the runs that exist, in their order.
func (s *Server) batches(ctx context.Context, ids []identity.RunID) (out []Batch, err error) {
	keys := make([]string, 0, 2*len(ids))
	for _, id := range ids {
		keys = append(keys, record.BatchKey(id), record.ControlKey(id))
	}
	docs, err := s.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	runs, err := s.runs.ShowAll(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		v := view{id: id}
		v.run, v.made = runs[id]
		if d := docs[2*i]; d.Revision != "" {
			if err := record.Decode(d.Value, &v.asked, "document "+d.Key); err != nil {
				return nil, err
			}
		}
		if d := docs[2*i+1]; d.Revision != "" {
			if err := record.Decode(d.Value, &v.control, "document "+d.Key); err != nil {
				return nil, err
			}
		}
		if !v.made && v.asked.Run == "" {
			continue
		}
		if !v.made {
			if _, err := host.LoadManifest(ctx, s.Docs, id); host.IsExpired(err) {
				continue
			}
		}
		if !v.made && s.mayAnnounce(v.asked) {
			if err := s.Send(ctx, host.TaskQueue, events.BatchRequested{Run: string(id)}); err != nil {
				return nil, err
			}
		}
		b, err := short(v.batch())
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// view is what is known of a batch: what a client asked for, zero for a run that was made
// otherwise, and its run, once it is made.
type view struct {
	id      identity.RunID
	asked   record.Batch
	made    bool
	run     status.Status
	control record.Control
}

// batch describes it.
func (v view) batch() Batch {
	b := Batch{ID: batchID(v.id), Object: "batch", Endpoint: v.asked.Endpoint, InputFileID: v.asked.File,
		CompletionWindow: v.asked.Window, Metadata: v.asked.Metadata, CreatedAt: v.asked.Created.Unix(), Status: "validating"}
	if v.asked.Run != "" {
		b.ExpiresAt = unix(v.asked.Created.Add(v.asked.Deadline))
	}
	if !v.made {
		return b
	}
	r := v.run
	b.Status, b.Model, b.CreatedAt = v.status(), r.Model, r.CreatedAt.Unix()
	b.InputFileID = cmp.Or(b.InputFileID, runFileID(v.id, partInput))
	b.Endpoint = cmp.Or(b.Endpoint, endpoints[0])
	if r.Deadline != nil {
		b.ExpiresAt = unix(*r.Deadline)
		b.CompletionWindow = cmp.Or(b.CompletionWindow, r.Deadline.Sub(r.CreatedAt).Round(time.Second).String())
	}
	b.RequestCounts = Counts{Total: r.Items.Total, Completed: r.Items.Done, Failed: r.Items.Failed}
	if r.Tokens.Prompt+r.Tokens.Completion > 0 {
		b.Usage = &Usage{InputTokens: r.Tokens.Prompt, InputDetails: InputDetails{r.Tokens.Cached},
			OutputTokens: r.Tokens.Completion, OutputDetails: OutputDetails{r.Tokens.Reasoning},
			TotalTokens: r.Tokens.Prompt + r.Tokens.Completion}
	}
	if r.StartedAt != nil {
		b.InProgressAt = unix(*r.StartedAt)
	}
	if r.FinalizingAt != nil && b.Status != "cancelling" {
		b.FinalizingAt = unix(*r.FinalizingAt)
	}
	v.setEnd(&b)
	return b
}

// status returns the status of a batch whose run is made: see the package's table.
func (v view) status() string {
	stops := v.control.Desired == record.DesiredEnd && v.control.Reason == string(run.ReasonStopped)
	switch v.run.Phase {
	case run.Completed, run.CompletedWithErrors:
		return "completed"
	case run.Stopped:
		return "cancelled"
	case run.Expired:
		return "expired"
	case run.OverBudget, run.Failed:
		return "failed"
	}
	switch {
	case stops:
		return "cancelling"
	case v.run.Phase == run.Planning:
		return "validating"
	case v.run.Phase == run.Ending || v.run.Phase == run.Finalizing:
		return "finalizing"
	}
	return "in_progress"
}

// setEnd sets what a batch has near its end: times, files and errors.
func (v view) setEnd(b *Batch) {
	if v.control.Desired == record.DesiredEnd && (b.Status == "cancelling" || b.Status == "cancelled") {
		b.CancellingAt = unix(v.control.At)
	}
	if v.run.EndedAt == nil || !v.run.Phase.Ended() {
		return
	}
	at := unix(*v.run.EndedAt)
	switch b.Status {
	case "completed":
		b.CompletedAt = at
		if b.FinalizingAt == nil { // the run is of an earlier version
			b.FinalizingAt = at
		}
	case "cancelled":
		b.CancelledAt = at
	case "expired":
		b.ExpiredAt = at
	case "failed":
		b.FailedAt = at
		b.Errors = v.errors()
	}
	if v.run.Items.Done > 0 {
		id := runFileID(v.id, partOutput)
		b.OutputFileID = &id
	}
	if v.run.Items.Failed > 0 {
		id := runFileID(v.id, partErrors)
		b.ErrorFileID = &id
	}
}

// errors are the bad lines of a strict batch, or why its run failed.
func (v view) errors() *BatchErrors {
	e := &BatchErrors{Object: "list"}
	for _, bad := range v.asked.BadLines {
		e.Data = append(e.Data, BatchError{Code: "invalid_line", Message: bad.Message, Line: &bad.Line})
	}
	if len(e.Data) == 0 {
		e.Data = []BatchError{{Code: cmp.Or(string(v.run.Reason), "invalid_file"), Message: v.run.Message}}
	}
	return e
}
