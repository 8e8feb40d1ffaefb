package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// listedDocs counts the documents that are listed.
type listedDocs struct {
	document.Store
	n *int
}

func (d listedDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	docs, err := d.Store.List(ctx, prefix, after, limit)
	*d.n += len(docs)
	return docs, err
}

// walk reads a list page after page as clients do, and returns the ids and how many pages it read.
// No answer may be longer than 64 KiB, nor read more documents.
func (u *uploading) walk(path string, mostRead int) (ids []string, pages int) {
	u.Helper()
	read := 0
	p := u.Ports
	p.Docs = listedDocs{p.Docs, &read}
	u.serve(p)
	defer u.serve(u.Ports)
	for after := ""; ; pages++ {
		read = 0
		r := u.ask("GET", path+"&after="+after, "")
		var page struct {
			Data    []struct{ ID string }
			LastID  string `json:"last_id"`
			HasMore bool   `json:"has_more"`
		}
		if err := json.Unmarshal([]byte(r.body), &page); err != nil || r.code != 200 {
			u.Fatalf("%s: %d %.200s: %v", path, r.code, r.body, err)
		}
		if len(r.body) > maxAnswer || read > mostRead {
			u.Errorf("%s behind %q: %d bytes, of %d documents", path, after, len(r.body), read)
		}
		for _, o := range page.Data {
			ids = append(ids, o.ID)
		}
		if !page.HasMore {
			return ids, pages + 1
		}
		if after = page.LastID; len(page.Data) == 0 || after != ids[len(ids)-1] {
			u.Fatalf("%s: a page of %d ends at %q and says that there are more", path, len(page.Data), after)
		}
	}
}

// saveBatch saves a batch whose run is not made yet, as it is created so long after the morning.
func (u *uploading) saveBatch(n int, later time.Duration, b record.Batch) (id string) {
	run := newBatchRun(fmt.Sprint(n), time.Time{})
	b.Schema, b.Run, b.Created, b.Window, b.Deadline = 1, run, morning.Add(later), "24h", 24*time.Hour
	hosttest.Save(u.T, u.Ports, record.BatchKey(run), b)
	entry := record.NamedRun{Schema: 1, Run: run, Created: b.Created}
	hosttest.Save(u.T, u.Ports, record.CreatedKey(b.Created, run), entry)
	return batchID(run)
}

// saveFile saves a file that is created so long after the morning.
func (u *uploading) saveFile(name string, later time.Duration, expires time.Time) (id string) {
	id = newFileID(morning.Add(later))
	hosttest.Save(u.T, u.Ports, record.FileKey(id), record.File{Schema: 1, ID: id, Created: morning.Add(later), Name: name,
		Purpose: "batch", Expires: expires, Input: record.Input{Key: record.FilesPrefix + id + ".jsonl", Size: 1}})
	return id
}

func TestManyBatchesAreListedInPages(t *testing.T) {
	t.Parallel()
	u, metadata := newUploading(t), map[string]string{}
	for n := range maxMetadata {
		metadata[fmt.Sprint(n)] = strings.Repeat("x", maxMetadataValue)
	}
	var all []string
	for n := range 250 {
		all = append(all, u.saveBatch(n, time.Duration(n)*time.Millisecond, record.Batch{Metadata: metadata}))
	}
	slices.Reverse(all)
	for _, c := range []struct{ limit, pages int }{{100, 36}, {3, 84}} {
		got, pages := u.walk(fmt.Sprintf("/v1/batches?limit=%d", c.limit), c.limit+1)
		if !slices.Equal(got, all) || pages != c.pages {
			t.Errorf("in pages of %d at most: %d batches in %d pages, want %d in %d", c.limit, len(got), pages, len(all),
				c.pages)
		}
	}
}

// Entries whose batch is gone are passed over, a few times.
func TestEntriesOfVanishedBatches(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	first := u.saveBatch(0, 0, record.Batch{})
	for n := range 5 {
		at := morning.Add(time.Duration(n+1) * time.Second)
		run := newBatchRun(fmt.Sprint("gone", n), time.Time{})
		hosttest.Save(t, u.Ports, record.CreatedKey(at, run), record.NamedRun{Schema: 1, Run: run, Created: at})
	}
	if got, pages := u.walk("/v1/batches?limit=1", 8); !slices.Equal(got, []string{first}) || pages != 1 {
		t.Errorf("%q in %d pages", got, pages)
	}
}

func TestManyFilesAreListedInPages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file               string
		limit, pages, read int
	}{
		"as many as there are":     {"a.jsonl", 10_000, 2, maxFilesAnswer + 1},
		"in pages of the client's": {"a.jsonl", 100, 5, 101},
		"names that take room":     {strings.Repeat("<", maxFileName), 10_000, 10, maxFilesAnswer + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUploading(t)
			var all []string
			for n := range 450 {
				all = append(all, u.saveFile(c.file, time.Duration(n)*time.Millisecond, time.Time{}))
			}
			if got, pages := u.walk(fmt.Sprintf("/v1/files?order=asc&limit=%d", c.limit), 450); !slices.Equal(got, all) ||
				pages != c.pages {
				t.Errorf("the oldest first: %d files in %d pages, want %d in %d", len(got), pages, len(all), c.pages)
			}
			slices.Reverse(all)
			if got, pages := u.walk(fmt.Sprintf("/v1/files?limit=%d", c.limit), c.read); !slices.Equal(got, all) ||
				pages != c.pages {
				t.Errorf("%d files in %d pages, want %d in %d", len(got), pages, len(all), c.pages)
			}
			if got, _ := u.walk("/v1/files?purpose=batch_output", 450); len(got) != 0 {
				t.Errorf("%d uploaded files are outputs", len(got))
			}
		})
	}
}

// Files that have expired are in no list. A request removes some of them.
func TestExpiredFilesAreNotListed(t *testing.T) {
	t.Parallel()
	u := newUploading(t)
	kept := u.saveFile("a.jsonl", 0, time.Time{})
	for n := range 2*maxFilesRemoved + 1 {
		u.saveFile("b.jsonl", time.Duration(n+1)*time.Millisecond, morning.Add(time.Hour))
	}
	u.advance(time.Hour)
	for _, left := range []int{maxFilesRemoved + 1, 1, 0} {
		if got, _ := u.walk("/v1/files?limit=1", 2*maxFilesRemoved+2); !slices.Equal(got, []string{kept}) {
			t.Errorf("%q are listed", got)
		}
		n := -1
		for _, err := range document.All(t.Context(), u.Docs, record.FilePrefix) {
			if n++; err != nil {
				t.Fatal(err)
			}
		}
		if n != left {
			t.Errorf("%d files that have expired are left, want %d", n, left)
		}
	}
}

// Whatever a client and a file bring, a batch is an answer.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	b := Batch{ID: batchID(identity.RunID(anyRun)), Metadata: map[string]string{}}
	for n := range maxMetadata {
		key := fmt.Sprintf("%02d%s", n, strings.Repeat("<", maxMetadataKey-2))
		b.Metadata[key] = strings.Repeat("<", maxMetadataValue)
	}
	message := func(n int) *BatchErrors {
		e := &BatchErrors{Object: "list"}
		for range n {
			e.Data = append(e.Data, BatchError{Message: strings.Repeat("<", 9000)})
		}
		return e
	}
	for name, errs := range map[string]*BatchErrors{"no errors": nil, "a long one": message(1), "100": message(100)} {
		b.Errors = errs
		got, err := short(b)
		body, _ := json.Marshal(got)
		if err != nil || len(body) > pageBytes || (errs == nil) != (got.Errors == nil) {
			t.Errorf("%s: %d bytes, %v", name, len(body), err)
		}
		if errs != nil && (len(got.Errors.Data) == 0 || len(errs.Data[0].Message) != 9000) {
			t.Errorf("%s: %d errors are left", name, len(got.Errors.Data))
		}
	}
	if _, err := parseWindow(strings.Repeat("0h", 1000) + "1h"); err == nil {
		t.Error("a window of 2 KB is accepted")
	}
}
