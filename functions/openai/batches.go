package openai

import (
	"context"
	"net/http"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// Sizes of a page of batches, those of OpenAI's API.
const (
	batchesPage    = 20
	maxBatchesPage = 100
	// maxBatchReads bounds how often a list reads on behind entries whose runs have expired.
	maxBatchReads = 10
)

// listBatches lists all runs, the newest first; in a cloud those that were made as batches.
func (s *Server) listBatches(r *http.Request) (any, error) {
	ctx, q := r.Context(), r.URL.Query()
	limit, err := limitOf(q.Get("limit"), batchesPage, maxBatchesPage)
	if err != nil {
		return nil, err
	}
	after := ""
	if id := q.Get("after"); id != "" {
		run, err := parseBatchID(id)
		if err != nil {
			return nil, badParam("after", "no batch has the id %.80q", id)
		}
		created, err := s.createdAt(ctx, run)
		if err != nil {
			return nil, err
		}
		after = record.CreatedKey(created, run)
	}
	var data []Batch
	whole := false
	for reads := 0; len(data) <= limit && reads < maxBatchReads; reads++ {
		docs, err := s.Docs.List(ctx, record.CreatedPrefix, after, limit+1)
		if err != nil {
			return nil, err
		}
		if whole = len(docs) == 0; whole {
			break
		}
		after = docs[len(docs)-1].Key
		var ids []identity.RunID
		for _, d := range docs {
			if id, ok := record.RunOfEntry(d.Key); ok {
				ids = append(ids, id)
			}
		}
		page, err := s.batches(ctx, ids)
		if err != nil {
			return nil, err
		}
		data = append(data, page...)
	}
	more := len(data) > 0 && !whole // a page without a batch has none to go on behind
	return pageOf(data[:min(limit, len(data))], more, func(b Batch) string { return b.ID })
}

func (s *Server) getBatch(r *http.Request) (any, error) {
	run, err := parseBatchID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return s.batch(r.Context(), run)
}

// cancelBatch stops the run of a batch. Canceling one that is being cancelled, or was,
// changes nothing.
func (s *Server) cancelBatch(r *http.Request) (any, error) {
	ctx := r.Context()
	run, err := parseBatchID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if err := s.awaitRun(ctx, run); err != nil {
		return nil, err
	}
	err = s.runs.Stop(ctx, run, "the batch was cancelled")
	if fault.Is(err, fault.Conflict) {
		if b, err := s.batch(ctx, run); err == nil {
			return nil, fault.New(fault.Conflict, "cannot cancel a batch with status %q", b.Status)
		}
	}
	if err != nil {
		return nil, err
	}
	return s.batch(ctx, run)
}

// createdAt returns when a batch was created.
func (s *Server) createdAt(ctx context.Context, id identity.RunID) (time.Time, error) {
	var b record.Batch
	switch _, found, err := host.Load(ctx, s.Docs, record.BatchKey(id), &b); {
	case err != nil:
		return time.Time{}, err
	case found:
		return b.Created, nil
	}
	m, err := host.LoadManifest(ctx, s.Docs, id)
	if fault.Is(err, fault.NotFound) {
		return time.Time{}, badParam("after", "no batch has the id %q", batchID(id))
	}
	return m.CreatedAt, err
}

// awaitRun waits until the run of a batch is made, as far as the server's patience lasts.
func (s *Server) awaitRun(ctx context.Context, id identity.RunID) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	if _, err := s.batch(ctx, id); err != nil { // it is announced again if need be
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := host.LoadManifest(ctx, s.Docs, id)
		if err == nil || !fault.Is(err, fault.NotFound) || host.IsExpired(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return &fault.Error{Kind: fault.Unavailable, Err: fault.New(fault.Unavailable, "the batch is still being made"),
				Remedy: "try again in a moment"}
		case <-tick.C:
		}
	}
}
