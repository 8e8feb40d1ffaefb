package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/functions/openai"
	"rollout/localstack/scenarios"
	"rollout/shared/core/identity"
)

// uploadFile uploads a file as OpenAI's clients do, with further fields.
func (i *testInstallation) uploadFile(name, content string, fields ...string) openai.FileObject {
	i.t.Helper()
	var f openai.FileObject
	if code, body := i.tryUpload(name, content, &f, fields...); code != http.StatusOK {
		i.t.Fatalf("upload %s: %d %s", name, code, body)
	}
	return f
}

func (i *testInstallation) tryUpload(name, content string, into any, fields ...string) (code int, body string) {
	i.t.Helper()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	fields = append([]string{"purpose", "batch"}, fields...)
	for k := 0; k < len(fields); k += 2 {
		if err := w.WriteField(fields[k], fields[k+1]); err != nil {
			i.t.Fatal(err)
		}
	}
	part, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		i.t.Fatal(err)
	}
	return i.call(http.MethodPost, "/v1/files", form.String(), into, "Content-Type", w.FormDataContentType())
}

// call sends a request with headers, and decodes an answer of 200.
func (i *testInstallation) call(method, path, body string, into any, headers ...string) (code int, answer string) {
	i.t.Helper()
	r, err := http.NewRequestWithContext(i.t.Context(), method, i.url+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	for k := 0; k < len(headers); k += 2 {
		r.Header.Set(headers[k], headers[k+1])
	}
	code, header, answer := roundTrip(i.t, r)
	if code == http.StatusOK && into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			i.t.Fatalf("%s %s answers %s: %v", method, path, answer, err)
		}
	}
	if code >= 400 && code < 500 && code != http.StatusTooManyRequests && header.Get("X-Should-Retry") != "false" {
		i.t.Errorf("%s %s: a client would repeat what is refused with %d", method, path, code)
	}
	return code, answer
}

// creation is the body of a request for a batch.
func creation(file, endpoint, window string) string {
	return fmt.Sprintf(`{"input_file_id":%q,"endpoint":%q,"completion_window":%q,"metadata":{"by":"test"}}`,
		file, endpoint, window)
}

// createBatch creates a batch of a file.
func (i *testInstallation) createBatch(file string, headers ...string) openai.Batch {
	i.t.Helper()
	var b openai.Batch
	body := creation(file, "/v1/chat/completions", "24h")
	if code, answer := i.call(http.MethodPost, "/v1/batches", body, &b, headers...); code != http.StatusOK {
		i.t.Fatalf("create a batch: %d %s", code, answer)
	}
	return b
}

func (i *testInstallation) batchStatus(id string) (b openai.Batch) {
	i.t.Helper()
	i.request(http.MethodGet, "/v1/batches/"+id, &b)
	return b
}

// awaitBatch waits until the batch has one of the statuses.
func (i *testInstallation) awaitBatch(id string, statuses ...string) (b openai.Batch) {
	i.t.Helper()
	eventually(i.t, id+" is "+strings.Join(statuses, " or "), func() bool {
		b = i.batchStatus(id)
		for _, s := range statuses {
			if b.Status == s {
				return true
			}
		}
		return false
	})
	return b
}

func (i *testInstallation) fileContent(id string) string {
	i.t.Helper()
	code, content := i.call(http.MethodGet, "/v1/files/"+id+"/content", "", nil)
	if code != http.StatusOK {
		i.t.Fatalf("content of %s: %d %s", id, code, content)
	}
	return content
}

// storedFiles are the names of the objects of uploaded files.
func (i *testInstallation) storedFiles() (names []string) {
	i.t.Helper()
	found, err := os.ReadDir(i.bucket("files"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		i.t.Fatal(err)
	}
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}

// runOf returns the run that a batch is.
func runOf(b openai.Batch) identity.RunID { return identity.RunID(strings.TrimPrefix(b.ID, "batch_")) }

// chats is a file of requests in OpenAI's form, with a bad line for each tenth.
func chats(items int) string {
	var b strings.Builder
	for n := range items {
		if n%10 == 9 {
			fmt.Fprintf(&b, "{\"custom_id\":\"bad-%d\"}\n", n)
			continue
		}
		fmt.Fprintf(&b, `{"custom_id":"r-%d","method":"POST","url":"/v1/chat/completions","body":{"model":"fake",`+
			`"messages":[{"role":"user","content":"question %d"}]}}`+"\n", n, n)
	}
	return b.String()
}

// A file is uploaded, and a batch of it is created twice: two runs with the same answers, in
// the order of the file. Both views show the same runs.
func TestBatchAPIAnswersAFile(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	content := chats(40)
	f := i.uploadFile("nightly.jsonl", content)
	if f.Object != "file" || f.Status != "processed" || int(f.Bytes) != len(content) || f.Filename != "nightly.jsonl" {
		t.Errorf("the file is %+v", f)
	}
	if got := i.fileContent(f.ID); got != content {
		t.Error("the file has other bytes than were uploaded")
	}
	first, second := i.createBatch(f.ID), i.createBatch(f.ID)
	if first.ID == second.ID {
		t.Fatal("two batches that are created deliberately are one")
	}
	var outputs []string
	for _, b := range []openai.Batch{first, second} {
		b = i.awaitBatch(b.ID, "completed")
		if b.RequestCounts != (openai.Counts{Total: 40, Completed: 36, Failed: 4}) || b.InputFileID != f.ID ||
			b.CompletedAt == nil || b.InProgressAt == nil || b.Metadata["by"] != "test" || b.Usage == nil ||
			*b.ExpiresAt-b.CreatedAt != 24*60*60 || b.CompletionWindow != "24h" {
			t.Errorf("the batch is %+v", b)
		}
		outputs = append(outputs, i.fileContent(*b.OutputFileID))
		if errs := i.fileContent(*b.ErrorFileID); strings.Count(errs, "\n") != 4 || !strings.Contains(errs, "bad-9") {
			t.Errorf("the error file is %s", errs)
		}
		if o := i.outcome(runOf(b)); o.Completions != scenarios.WithoutTimes(outputs[len(outputs)-1]) {
			t.Error("the run has other completions than the batch")
		}
	}
	for _, out := range outputs {
		n := 0
		for _, line := range lines(t, out) {
			if n%10 == 9 {
				n++
			}
			if !strings.Contains(line, fmt.Sprintf(`"custom_id":"r-%d"`, n)) {
				t.Fatalf("row %d is %s", n, line)
			}
			n++
		}
	}
	// A run that was submitted otherwise is a batch, too.
	id := i.submit(promptsFile(t, scenarios.SimplePrompts(3)))
	i.awaitEnd(id)
	if b := i.batchStatus("batch_" + string(id)); b.Status != "completed" || b.RequestCounts.Completed != 3 ||
		i.fileContent(b.InputFileID) != scenarios.SimplePrompts(3) {
		t.Errorf("the batch of a submitted run is %+v", b)
	}
}

// A client repeats a request whose answer was lost: it says so itself, or has named it.
func TestRepeatedCreationIsOneBatch(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	f := i.uploadFile("a.jsonl", chats(3))
	first := i.createBatch(f.ID)
	if again := i.createBatch(f.ID, "X-Stainless-Retry-Count", "1"); again.ID != first.ID {
		t.Errorf("the repeated request made %s beside %s", again.ID, first.ID)
	}
	other := i.uploadFile("b.jsonl", chats(3))
	if b := i.createBatch(other.ID, "X-Stainless-Retry-Count", "2"); b.ID == first.ID {
		t.Error("a request for another file returned the batch of the first")
	}
	keyed := i.createBatch(f.ID, "Idempotency-Key", "k1")
	if keyed.ID == first.ID || i.createBatch(f.ID, "Idempotency-Key", "k1").ID != keyed.ID ||
		i.createBatch(f.ID, "Idempotency-Key", "k2").ID == keyed.ID {
		t.Error("a key does not name one batch")
	}
	body := creation(other.ID, "/v1/completions", "1h")
	if code, answer := i.call(http.MethodPost, "/v1/batches", body, nil, "Idempotency-Key", "k1"); code != 400 {
		t.Errorf("a key for another request: %d %s", code, answer)
	}
}

// Batches are cancelled while they run, end, or are not yet made. Each ends as cancelled or
// completed, and keeps the files of what was answered.
func TestBatchIsCancelledAtAnyMoment(t *testing.T) {
	t.Parallel()
	i := install(t, serveSlowly(t, 20*time.Millisecond).url, 0, smallShards)
	f := i.uploadFile("a.jsonl", chats(30))
	ended := map[string]int{}
	for n := range 20 {
		b := i.createBatch(f.ID)
		if n%4 > 0 {
			eventually(t, "it is under way", func() bool {
				s := i.batchStatus(b.ID)
				return s.Status == "completed" || s.RequestCounts.Completed >= uint64(n)
			})
		}
		var answer openai.Batch
		code, text := i.call(http.MethodPost, "/v1/batches/"+b.ID+"/cancel", "", &answer)
		switch {
		case code == http.StatusConflict && strings.Contains(text, "completed"):
		case code != http.StatusOK:
			t.Fatalf("cancel: %d %s", code, text)
		case !slices.Contains([]string{"cancelling", "cancelled", "finalizing", "completed"}, answer.Status):
			t.Errorf("a batch that is cancelled is %s", answer.Status)
		}
		b = i.awaitBatch(b.ID, "cancelled", "completed")
		ended[b.Status]++
		if b.RequestCounts.Completed+b.RequestCounts.Failed != b.RequestCounts.Total {
			t.Errorf("the counts are %+v", b.RequestCounts)
		}
		if b.OutputFileID != nil {
			if got := strings.Count(i.fileContent(*b.OutputFileID), "\n"); got != int(b.RequestCounts.Completed) {
				t.Errorf("%d of %d answers are in the file", got, b.RequestCounts.Completed)
			}
		}
	}
	if ended["cancelled"] == 0 {
		t.Errorf("no batch was cancelled: %v", ended)
	}
}

// A batch whose window ends keeps what was answered.
func TestBatchExpiresAtItsWindow(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t, "--freeze-after", "20").url, 0, smallShards)
	f := i.uploadFile("a.jsonl", chats(40))
	var b openai.Batch
	body := creation(f.ID, "/v1/chat/completions", "8s")
	if code, answer := i.call(http.MethodPost, "/v1/batches", body, &b); code != http.StatusOK {
		t.Fatalf("create: %d %s", code, answer)
	}
	b = i.awaitBatch(b.ID, "expired")
	if b.ExpiredAt == nil || b.ErrorFileID == nil || b.RequestCounts.Completed+b.RequestCounts.Failed != 40 {
		t.Errorf("the batch is %+v", b)
	}
	if errs := i.fileContent(*b.ErrorFileID); !strings.Contains(errs, `"code":"batch_expired"`) {
		t.Errorf("the error file is %s", errs)
	}
}

// A list of 250 batches is read in pages, each batch once, the newest first.
func TestBatchesAreListedInPages(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	f := i.uploadFile("a.jsonl", chats(1))
	var created []string
	for range 250 {
		created = append(created, i.createBatch(f.ID).ID)
	}
	type page struct {
		Data    []openai.Batch
		HasMore bool   `json:"has_more"`
		LastID  string `json:"last_id"`
	}
	var listed []string
	for after := ""; ; {
		var p page
		i.request(http.MethodGet, "/v1/batches?limit=99&after="+after, &p)
		for _, b := range p.Data {
			listed = append(listed, b.ID)
		}
		if !p.HasMore {
			break
		}
		after = p.LastID
	}
	seen := map[string]bool{}
	for _, id := range listed {
		seen[id] = true
	}
	if len(listed) != 250 || len(seen) != 250 {
		t.Errorf("%d batches are listed, %d of them different, want 250", len(listed), len(seen))
	}
	for _, id := range created {
		if !seen[id] {
			t.Errorf("%s is not listed", id)
		}
	}
	var p page
	if i.request(http.MethodGet, "/v1/batches", &p); len(p.Data) != 20 || !p.HasMore {
		t.Errorf("a page has %d batches, want 20 and more", len(p.Data))
	}
}

// What is wrong with an upload or a batch is said in OpenAI's form, and nothing of it stays.
func TestBatchAPIRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	f := i.uploadFile("a.jsonl", chats(2), "expires_after[anchor]", "created_at", "expires_after[seconds]", "3600")
	if f.ExpiresAt == nil || *f.ExpiresAt-f.CreatedAt != 3600 {
		t.Errorf("the file is %+v", f)
	}
	for name, c := range map[string]struct{ method, path, body, says string }{
		"no file":          {"POST", "/v1/batches", creation("", "/v1/completions", "24h"), "input_file_id"},
		"unknown file":     {"POST", "/v1/batches", creation("file-x", "/v1/completions", "24h"), "no such File"},
		"unknown endpoint": {"POST", "/v1/batches", creation(f.ID, "/v1/x", "24h"), "endpoint"},
		"no window":        {"POST", "/v1/batches", creation(f.ID, "/v1/completions", ""), "completion_window"},
		"not JSON":         {"POST", "/v1/batches", `{`, "JSON"},
		"unknown batch":    {"GET", "/v1/batches/batch_01JD2ZQ4T5W0M1X9YB7R3K8CVE", "", "batch"},
		"id with a path":   {"GET", "/v1/files/..%2f..%2fetc", "", "no such File"},
		"unknown path":     {"GET", "/v1/batches/a/b/c", "", "nothing"},
		"wrong limit":      {"GET", "/v1/batches?limit=101", "", "limit"},
		"unknown content":  {"GET", "/v1/files/file-x/content", "", "no such File"},
		"input of a run":   {"DELETE", "/v1/files/file-01JD2ZQ4T5W0M1X9YB7R3K8CVE-input", "", "no such File"},
	} {
		code, answer := i.call(c.method, c.path, c.body, nil)
		var e struct {
			Error struct{ Message, Type string }
		}
		if err := json.Unmarshal([]byte(answer), &e); err != nil || code/100 != 4 ||
			e.Error.Type != "invalid_request_error" || !strings.Contains(e.Error.Message, c.says) {
			t.Errorf("%s: %d %s, want an error about %s", name, code, answer, c.says)
		}
	}
	for name, fields := range map[string][]string{
		"purpose": {"purpose", "fine-tune"},
		"seconds": {"expires_after[anchor]", "created_at", "expires_after[seconds]", "5"},
		"anchor":  {"expires_after[anchor]", "now", "expires_after[seconds]", "3600"},
	} {
		if code, answer := i.tryUpload("x.jsonl", "{}\n", nil, fields...); code != http.StatusBadRequest ||
			!strings.Contains(answer, name) {
			t.Errorf("a wrong %s: %d %s", name, code, answer)
		}
	}
	if code, answer := i.tryUpload("x.jsonl", "", nil); code != http.StatusBadRequest {
		t.Errorf("an empty file: %d %s", code, answer)
	}
	var files struct{ Data []openai.FileObject }
	i.request(http.MethodGet, "/v1/files", &files)
	if len(files.Data) != 1 {
		t.Errorf("the files are %+v", files.Data)
	}
	if objects := i.storedFiles(); len(objects) != 1 {
		t.Errorf("the bucket has %v", objects)
	}
	if code, answer := i.call(http.MethodDelete, "/v1/files/"+f.ID, "", nil); code != http.StatusOK {
		t.Errorf("delete: %d %s", code, answer)
	}
	if objects := i.storedFiles(); len(objects) != 0 {
		t.Errorf("after the deletion the bucket has %v", objects)
	}
}
