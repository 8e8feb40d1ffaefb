package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollout/events"
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
	maxWindowText    = 40 // bytes
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
	if err != nil || d < time.Second || d > maxWindow || len(text) > maxWindowText {
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

// announce lists the batch, has its run made, and returns it.
func (s *Server) announce(ctx context.Context, b record.Batch) (any, error) {
	entry := record.NamedRun{Schema: record.Schema, Run: b.Run, Created: b.Created}
	_, err := host.Save(ctx, s.Docs, record.CreatedKey(b.Created, b.Run), entry, "")
	if err != nil && !fault.Is(err, fault.Conflict) {
		return nil, err
	}
	switch _, err := host.LoadManifest(ctx, s.Docs, b.Run); {
	case fault.Is(err, fault.NotFound) && !host.IsExpired(err):
		if err := s.Send(ctx, host.TaskQueue, events.BatchRequested{Run: string(b.Run)}); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	return s.batch(ctx, b.Run)
}

// repeatedFor is how long after a request a client may repeat it: OpenAI's wait 10 minutes
// for an answer, and up to 2 minutes between two tries.
const repeatedFor = 15 * time.Minute

// maxRepeated bounds how many batches are looked at to find the first try of one.
const maxRepeated = 1000

// firstTry returns the batch of the first try of a request; zero if this is the first. A
// client names its tries by a key, or says only that it has tried before.
func (s *Server) firstTry(r *http.Request, key, request string) (b record.Batch, err error) {
	ctx := r.Context()
	if key != "" {
		b, err = s.knownBatch(ctx, newBatchRun(key, time.Time{}), request)
		if fault.Is(err, fault.NotFound) {
			return record.Batch{}, nil
		}
		return b, err
	}
	if !retries(r) {
		return b, nil
	}
	recent, err := s.recentBatches(ctx, repeatedFor)
	for _, of := range recent {
		if of.Request == request {
			return of, nil
		}
	}
	return b, err
}

// recentBatches returns the batches that were created in that time, the newest first, at most
// maxRepeated.
func (s *Server) recentBatches(ctx context.Context, in time.Duration) (out []record.Batch, err error) {
	entries, err := s.Docs.List(ctx, record.CreatedPrefix, "", maxRepeated)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, d := range entries {
		var e record.NamedRun
		if record.Decode(d.Value, &e, "document "+d.Key) == nil && s.Clock.Now().Sub(e.Created) < in {
			keys = append(keys, record.BatchKey(e.Run))
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	docs, err := s.Docs.GetMany(ctx, keys)
	for _, d := range docs {
		var b record.Batch
		if d.Revision != "" && record.Decode(d.Value, &b, "document "+d.Key) == nil {
			out = append(out, b)
		}
	}
	return out, err
}

// knownBatch returns the batch that was created with a key. One that was asked for
// otherwise is Invalid.
func (s *Server) knownBatch(ctx context.Context, id identity.RunID, request string) (b record.Batch, err error) {
	_, found, err := host.Load(ctx, s.Docs, record.BatchKey(id), &b)
	switch {
	case err != nil:
		return b, err
	case !found:
		return b, fault.New(fault.NotFound, "no batch found with id %q", batchID(id))
	case b.Request != request:
		return b, badParam("Idempotency-Key", "another request had this key")
	}
	return b, nil
}

// newBatchRun returns the run of a batch that is created with a key at a time; without a key,
// one that is like no other.
func newBatchRun(key string, at time.Time) identity.RunID {
	if key != "" {
		return identity.UploadRun("batch", "key", key)
	}
	return identity.UploadRun("batch", at.UTC().Format(time.RFC3339Nano), rand.Text())
}

// requestID returns the content id of a request, by which a repeated one is known.
func requestID(c creation) string {
	h := identity.NewHasher()
	for _, text := range []string{c.File, c.Endpoint, c.Window} {
		writeText(h, text)
	}
	for _, k := range slices.Sorted(maps.Keys(c.Metadata)) {
		writeText(h, k)
		writeText(h, c.Metadata[k])
	}
	return h.Sum().String()
}

func writeText(h *identity.Hasher, text string) {
	b, _ := json.Marshal(text) // quoted, so that no two lists of texts are the same bytes
	_, _ = h.Write(b)          // a hasher takes all
}
