package openai

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// endpoints are those that OpenAI names for batches and that a run can ask. Rows say
// themselves where they go.
var endpoints = []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"}

// Bounds of a batch, those of OpenAI's API.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
	maxWindow        = 90 * 24 * time.Hour
	batchesPage      = 20
	maxBatchesPage   = 100
)

// creation is the body of POST /v1/batches.
type creation struct {
	File     string            `json:"input_file_id"`
	Endpoint string            `json:"endpoint"`
	Window   string            `json:"completion_window"`
	Metadata map[string]string `json:"metadata"`
}

// readCreation reads and checks the body. Members that this version does not know are passed
// over, as OpenAI's clients of later versions send more.
func readCreation(r *http.Request) (c creation, deadline time.Duration, err error) {
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return c, 0, fault.New(fault.Exhausted, "the body is longer than %d bytes", tooLong.Limit)
	case err != nil:
		return c, 0, fault.WithKind(fault.Invalid, err, "read the body as JSON")
	case c.File == "":
		return c, 0, badParam("input_file_id", "is missing")
	case !slices.Contains(endpoints, c.Endpoint):
		return c, 0, badParam("endpoint", "must be one of %s, is %.80q", strings.Join(endpoints, ", "), c.Endpoint)
	case len(c.Metadata) > maxMetadata:
		return c, 0, badParam("metadata", "has more than %d keys", maxMetadata)
	}
	for k, v := range c.Metadata {
		if len(k) > maxMetadataKey || len(v) > maxMetadataValue {
			return c, 0, badParam("metadata", "a key has at most %d bytes, and a value at most %d", maxMetadataKey,
				maxMetadataValue)
		}
	}
	deadline, err = parseWindow(c.Window)
	return c, deadline, err
}

// parseWindow reads a completion window: "24h" as OpenAI has it, or any other time, such as
// "90m" or "7d".
func parseWindow(text string) (d time.Duration, err error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, numErr := strconv.ParseUint(days, 10, 8)
		d, err = time.Duration(n)*24*time.Hour, numErr
	} else {
		d, err = time.ParseDuration(text)
	}
	if err != nil || d < time.Second || d > maxWindow {
		return 0, badParam("completion_window", `must be a time like "24h", "90m" or "7d", at most 90 days; is %.40q`, text)
	}
	return d, nil
}

// createBatch makes a batch. A request that the client repeats, as it says itself, returns
// the batch of the first try.
func (s *Server) createBatch(r *http.Request) (any, error) {
	ctx := r.Context()
	c, deadline, err := readCreation(r)
	if err != nil {
		return nil, err
	}
	f, err := s.file(ctx, c.File)
	if fault.Is(err, fault.NotFound) {
		return nil, &paramError{"input_file_id", fault.WithKind(fault.Invalid, err, "find the input file")}
	}
	if err != nil {
		return nil, err
	}
	key := r.Header.Get("Idempotency-Key")
	b := record.Batch{Schema: record.Schema, Created: s.Clock.Now().UTC(), File: c.File, FileName: f.Filename,
		Input: f.input, Endpoint: c.Endpoint, Window: c.Window, Deadline: deadline, Metadata: c.Metadata,
		Strict: strings.EqualFold(c.Metadata["strict"], "true"), Request: requestID(c)}
	switch first, err := s.firstTry(r, key, b.Request); {
	case err != nil:
		return nil, err
	case first.Run != "":
		return s.announce(ctx, first)
	}
	b.Run = newBatchRun(key, s.Clock.Now())
	_, err = host.Save(ctx, s.Docs, record.BatchKey(b.Run), b, "")
	if fault.Is(err, fault.Conflict) { // another try with that key
		b, err = s.knownBatch(ctx, b.Run, b.Request)
	}
	if err != nil {
		return nil, err
	}
	return s.announce(ctx, b)
}

// listBatches lists all runs, the newest first.
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
	for len(data) <= limit {
		docs, err := s.Docs.List(ctx, record.CreatedPrefix, after, limit+1)
		if err != nil {
			return nil, err
		}
		if len(docs) == 0 {
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
	more := len(data) > limit
	return pageOf(data[:min(limit, len(data))], more, func(b Batch) string { return b.ID }), nil
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
