package api_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/api"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// uploaded puts a file under files/, as an upload does.
func (d fixture) uploaded(id, name, content string) {
	d.t.Helper()
	key := record.FilesPrefix + id + ".jsonl"
	info, err := d.ports.Blobs.Put(d.t.Context(), key, strings.NewReader(content), putOptions)
	if err != nil {
		d.t.Fatal(err)
	}
	d.save(record.FileKey(id), record.File{Schema: 1, ID: id, Created: noon, Name: name, Purpose: "batch",
		Input: record.Input{Key: key, Version: info.Version, Size: info.Size}})
}

func TestAnUploadIsCheckedBeforeItStarts(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.uploaded("file-1", "nightly.jsonl", `{"id":"a","prompt":"one"}`+"\n\n"+`{"id":"a","prompt":"two"}`+"\noops\n"+
		`{"id":"b","prompt":"<script>"}`+"\n")
	h := d.Handler(secret.Value{}, d.probes(), d.Uploads())
	w := ask(t, h, request{method: http.MethodPost, path: "/v1/files/file-1/check"})
	var got api.UploadCheck
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	if got.Rows != 4 || got.BadLines != 2 || got.Duplicates != 1 || len(got.FirstBad) != 2 || got.FirstBad[0].Line != 3 ||
		got.FirstBad[1].Line != 4 || len(got.Head) != 2 || got.Head[1].ID != "b" || !got.Complete || got.Dialect != "plain" {
		t.Errorf("%+v", got)
	}
	if keys, err := d.ports.Blobs.List(t.Context(), record.PromptsPrefix, "", 10); err != nil || len(keys) > 0 {
		t.Errorf("a check leaves %v, %v", keys, err)
	}
	for _, path := range []string{"/v1/files/file-2/check", "/v1/files/%00/start", "/v1/files/x/start"} {
		if w := ask(t, h, request{method: http.MethodPost, path: path}); w.Code != http.StatusNotFound {
			t.Errorf("POST %s answers %d %s", path, w.Code, w.Body)
		}
	}
	q := request{method: http.MethodGet, path: "/v1/files/file-1/check"}
	if w := ask(t, h, q); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("a GET of a check answers %d", w.Code)
	}
}

func TestAnUploadStartsAsARunOfItsName(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	const content = `{"prompt":"one"}` + "\n"
	d.uploaded("file-1", "nightly.jsonl", content)
	h := d.Handler(secret.Value{}, d.probes(), d.Uploads())
	for _, c := range []struct {
		body, key string
		code      int
	}{
		{``, "prompts/nightly.jsonl", 202},
		{``, "prompts/nightly-2.jsonl", 202},
		{`{"name":"mine","set":["sampling.max_tokens=7"]}`, "prompts/mine.jsonl", 202},
		{`{"set":["sampling.max_token=7"]}`, "", 400},
		{`{"name":"../x"}`, "", 400},
		{`{"name":"rollout"}`, "", 400},
		{`{"nam":"x"}`, "", 400},
	} {
		w := ask(t, h, request{method: http.MethodPost, path: "/v1/files/file-1/start", body: c.body})
		var got struct {
			Run identity.RunID `json:"run_id"`
			Key string
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.code || got.Key != c.key {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
			continue
		}
		if c.code != http.StatusAccepted {
			continue
		}
		b, err := input.ReadObject(t.Context(), d.ports.Blobs, c.key, 1<<10)
		if err != nil || string(b) != content || !got.Run.Valid() {
			t.Errorf("%s has %q, %v", c.key, b, err)
		}
		sent := d.received(host.TaskQueue)
		if len(sent) != 1 || sent[0].(events.ObjectCreated).Key != c.key {
			t.Errorf("the events are %+v", sent)
		}
	}
	b, err := input.ReadObject(t.Context(), d.ports.Blobs, "prompts/mine.toml", 1<<20)
	if err != nil || !strings.Contains(string(b), "max_tokens = 7") {
		t.Errorf("the config is %q, %v", b, err)
	}
}

func TestACheckRefusesAnArchiveThatUnpacksToTooMuch(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var packed strings.Builder
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(strings.Repeat(`{"prompt":"one"}`+"\n", 100))); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	d.uploaded("file-1", "nightly.jsonl.gz", packed.String())
	f := hosttest.Load[record.File](t, d.ports, record.FileKey("file-1"))
	f.Input.Packed = input.Gzip
	d.save(record.FileKey("file-1"), f)
	h := d.Handler(secret.Value{}, d.probes(), d.Uploads())
	for limit, want := range map[int]int{100: 400, 1 << 20: 200} {
		body := fmt.Sprintf(`{"set":["input.max_unpacked=%d"]}`, limit)
		w := ask(t, h, request{method: http.MethodPost, path: "/v1/files/file-1/check", body: body})
		if w.Code != want || want == 400 && !strings.Contains(w.Body.String(), "more than 100 bytes") {
			t.Errorf("%d bytes: %d %s", limit, w.Code, w.Body)
		}
	}
}
