package regressions

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchapi "rollout/functions/openai"
	"rollout/gpuworker/engine"
)

// batchClient is a client of the batch API of a system.
type batchClient struct {
	t       *testing.T
	handler http.Handler
	mu      sync.Mutex
	asked   map[int]time.Time // by the number of a batch: when its last request began
}

// answer answers the prompt "batch B question Q" after 10 to 29 ms, one in eight after 2 s.
func (c *batchClient) answer(ctx context.Context, r engine.Request) (engine.Answer, error) {
	var batch, question int
	_, prompt, _ := bytes.Cut(r.Body, []byte(`"prompt":"`))
	if _, err := fmt.Sscanf(string(prompt), "batch %d question %d", &batch, &question); err != nil {
		return engine.Answer{}, err
	}
	c.mu.Lock()
	c.asked[batch] = time.Now()
	c.mu.Unlock()
	d := 10*time.Millisecond + time.Duration(7*question%20)*time.Millisecond
	if question%8 == 6 {
		d = 2 * time.Second
	}
	return after(d)(ctx, r)
}

// do sends a request, and decodes an answer of 200.
func (c *batchClient) do(method, path, body string, into any, headers ...string) (code int, answer string) {
	r := httptest.NewRequestWithContext(c.t.Context(), method, path, strings.NewReader(body))
	for k := 0; k < len(headers); k += 2 {
		r.Header.Set(headers[k], headers[k+1])
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	if w.Code == http.StatusOK && into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			c.t.Errorf("%s %s answers %s: %v", method, path, w.Body, err)
		}
	}
	return w.Code, w.Body.String()
}

// upload uploads the requests of a batch.
func (c *batchClient) upload(number, items int) (id string) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	err := w.WriteField("purpose", "batch")
	part, partErr := w.CreateFormFile("file", "a.jsonl")
	for q := 0; q < items && partErr == nil; q++ {
		_, partErr = fmt.Fprintf(part, `{"custom_id":"r-%d","method":"POST","url":"/v1/completions","body":`+
			`{"prompt":"batch %d question %d"}}`+"\n", q, number, q)
	}
	if closeErr := w.Close(); err != nil || partErr != nil || closeErr != nil {
		c.t.Errorf("a form can't be written: %v, %v, %v", err, partErr, closeErr)
	}
	var f batchapi.FileObject
	code, answer := c.do("POST", "/v1/files", form.String(), &f, "Content-Type", w.FormDataContentType())
	if code != 200 {
		c.t.Errorf("upload: %d %s", code, answer)
	}
	return f.ID
}

// create creates a batch of a file. The answer may be lost: then it is created again, as the
// client says. ways are "once", "again", and "twice at once" with a key.
func (c *batchClient) create(file, way string) (id string) {
	body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/completions","completion_window":"24h"}`, file)
	ask := func(headers ...string) string {
		var b batchapi.Batch
		if code, answer := c.do("POST", "/v1/batches", body, &b, headers...); code != 200 {
			c.t.Errorf("create: %d %s", code, answer)
		}
		return b.ID
	}
	var second string
	switch way {
	case "again":
		id, second = ask(), ask("X-Stainless-Retry-Count", "1")
	case "twice at once":
		var other sync.WaitGroup
		other.Go(func() { second = ask("Idempotency-Key", file) })
		id = ask("Idempotency-Key", file)
		other.Wait()
	default:
		id = ask()
		second = id
	}
	if id != second {
		c.t.Errorf("%s: %s and %s are one batch", way, id, second)
	}
	return id
}

// retrieve returns a batch once it has one of the statuses; without any, at once.
func (c *batchClient) retrieve(id string, statuses ...string) (b batchapi.Batch) {
	for limit := time.Now().Add(20 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		b = batchapi.Batch{}
		if code, answer := c.do("GET", "/v1/batches/"+id, "", &b); code != 200 {
			c.t.Errorf("retrieve: %d %s", code, answer)
			return b
		}
		if len(statuses) == 0 || slices.Contains(statuses, b.Status) {
			return b
		}
		if time.Now().After(limit) {
			c.t.Errorf("%s is still %s", id, b.Status)
			return b
		}
	}
}

// rows returns the custom ids and the error codes of a file of a batch; none without a file.
func (c *batchClient) rows(file *string) (ids, codes []string) {
	if file == nil {
		return nil, nil
	}
	code, content := c.do("GET", "/v1/files/"+*file+"/content", "", nil)
	if code != 200 {
		c.t.Errorf("content of %s: %d %s", *file, code, content)
	}
	for line := range strings.Lines(content) {
		var row struct {
			CustomID string `json:"custom_id"`
			Error    *struct{ Code string }
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			c.t.Errorf("%s has a row %s: %v", *file, line, err)
		}
		ids = append(ids, row.CustomID)
		if row.Error != nil {
			codes = append(codes, row.Error.Code)
		}
	}
	return ids, codes
}

// wantWhole checks that each item is in one of the files, in order, and that the counts say so.
func (c *batchClient) wantWhole(b batchapi.Batch, items int) {
	answers, _ := c.rows(b.OutputFileID)
	errs, codes := c.rows(b.ErrorFileID)
	if want := (batchapi.Counts{Total: uint64(items), Completed: uint64(len(answers)), Failed: uint64(len(errs))}); b.
		RequestCounts != want || len(answers)+len(errs) != items {
		c.t.Errorf("%s of %d items is %s with %+v, and its files have %d and %d rows", b.ID, items, b.Status,
			b.RequestCounts, len(answers), len(errs))
	}
	for q := range items {
		id := fmt.Sprintf("r-%d", q)
		switch {
		case len(answers) > 0 && answers[0] == id:
			answers = answers[1:]
		case len(errs) > 0 && errs[0] == id:
			errs = errs[1:]
		default:
			c.t.Errorf("%s: %s is the next row of neither file", b.ID, id)
			return
		}
	}
	if b.Status == "completed" && len(codes) > 0 ||
		slices.ContainsFunc(codes, func(code string) bool { return code != "batch_cancelled" }) {
		c.t.Errorf("%s is %s with the errors %q", b.ID, b.Status, codes)
	}
}

// race creates a batch and cancels it after a while. It returns how the batch has ended.
func (c *batchClient) race(number, items int, way string, wait time.Duration) (b batchapi.Batch) {
	id := c.create(c.upload(number, items), way)
	time.Sleep(wait)
	code, answer := c.do("POST", "/v1/batches/"+id+"/cancel", "", &b)
	cancelled := time.Now()
	if code != 200 && (code != 409 || !strings.Contains(answer, `with status \"completed\"`)) {
		c.t.Errorf("cancel %s: %d %s", id, code, answer)
	}
	if code == 200 && !slices.Contains([]string{"cancelling", "cancelled", "finalizing", "completed"}, b.Status) {
		c.t.Errorf("%s is %s after its cancellation", id, b.Status)
	}
	b = c.retrieve(id, "cancelled", "completed", "expired", "failed")
	if b.Status != "cancelled" && b.Status != "completed" || b.Status == "cancelled" && code != 200 {
		c.t.Errorf("%s, which was cancelled with %d, is %s", id, code, b.Status)
	}
	c.wantWhole(b, items)
	c.mu.Lock()
	last := c.asked[number]
	c.mu.Unlock()
	if code == 200 && last.After(cancelled.Add(5*time.Second)) {
		c.t.Errorf("%s: a request begins %s after the cancellation", id, last.Sub(cancelled))
	}
	return b
}

// Batches are created, some of them by more than one request, and cancelled at any moment of their
// lives. Each ends as one batch, cancelled or completed, with each item in one of its files (I1 to
// I4, I9), and stays as it ended.
func TestBatchesCancelledAtAnyMoment(t *testing.T) {
	t.Parallel()
	const worlds, batches = 20, 50
	waits := []time.Duration{10 * time.Millisecond, time.Second, 4 * time.Second} // at most
	ended := map[string]int{}
	both := 0
	for seed := range uint64(worlds) {
		simulated(t, func(t *testing.T, p *system) {
			rng := rand.New(rand.NewPCG(seed, 19))
			p.configure(fmt.Sprintf("[shard]\nitems = %d\n[limits]\ngrace = %q", []int{1, 4, 256}[seed%3],
				[]string{"20ms", "1s"}[seed%2]))
			p.functions()
			c := &batchClient{t: t, handler: batchapi.New(p.ports, p.deploy, p.user()).Handler(), asked: map[int]time.Time{}}
			for range 2 {
				p.work(setup{engine: newRecordingEngine(c.answer), inFlight: 32})
			}
			var all sync.WaitGroup
			var mu sync.Mutex
			ends := map[string]batchapi.Batch{}
			for n := range batches {
				begin := time.Duration(rng.Int64N(int64(2 * time.Second)))
				wait := time.Duration(rng.Int64N(int64(waits[n%len(waits)])))
				items, way := 1+rng.IntN(16), []string{"once", "again", "once", "twice at once"}[n%4]
				all.Go(func() {
					time.Sleep(begin)
					b := c.race(n, items, way, wait)
					mu.Lock()
					defer mu.Unlock()
					ends[b.ID] = b
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			var listed struct{ Data []batchapi.Batch }
			c.do("GET", "/v1/batches?limit=100", "", &listed)
			if len(ends) != batches || len(listed.Data) != batches {
				t.Errorf("%d batches are created, and %d listed, want %d", len(ends), len(listed.Data), batches)
			}
			for _, b := range listed.Data {
				was := ends[b.ID]
				if b.Status != was.Status || b.RequestCounts != was.RequestCounts {
					t.Errorf("%s was %s with %+v, and is %s with %+v", b.ID, was.Status, was.RequestCounts, b.Status,
						b.RequestCounts)
				}
				if ended[b.Status]++; b.OutputFileID != nil && b.ErrorFileID != nil {
					both++
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d failed", seed)
		}
	}
	if ended["cancelled"] < 300 || ended["completed"] < 100 || both < 50 {
		t.Errorf("the batches ended as %v, %d of them with both files: the races are not those that are meant", ended, both)
	}
}
