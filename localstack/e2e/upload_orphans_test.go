package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/functions/openai"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// `rollout up` is killed while clients upload files, and after one of them has uploaded a part. What
// they leave is deleted once it is old, and no file.
func TestWhatKilledUploadsLeaveIsDeleted(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	var up openai.Upload
	code, answer := i.call(http.MethodPost, "/v1/uploads", `{"filename":"a.jsonl","purpose":"batch","bytes":9}`, &up)
	if code != http.StatusOK {
		t.Fatalf("create an upload: %d %s", code, answer)
	}
	form, kind := filled(t, "data", "part")
	code, answer = i.call(http.MethodPost, "/v1/uploads/"+up.ID+"/parts", form, nil, "Content-Type", kind)
	if code != http.StatusOK {
		t.Fatalf("add a part: %d %s", code, answer)
	}
	var clients sync.WaitGroup
	form, kind = filled(t, "file", chats(10))
	for range 4 {
		clients.Go(func() {
			for {
				r, err := http.Post(i.url+"/v1/files", kind, strings.NewReader(form))
				if err != nil { // up is killed
					return
				}
				_ = r.Body.Close()
			}
		})
	}
	eventually(t, "files are uploaded", func() bool { return len(i.storedFiles()) > 10 })
	i.up.kill()
	clients.Wait()
	// As if it had been killed between the object of a file and its document.
	write(t, i.bucket("files/file-00000000000000000000000000.jsonl"), "{}\n")
	kept := i.age(27 * time.Hour)
	i.start()
	eventually(t, "what the clients left is deleted", func() bool {
		files := i.storedFiles()
		slices.Sort(files)
		return slices.Equal(files, kept) && len(i.parts()) == 0 && len(i.uploads()) == 0
	})
	if !i.has("files/" + kept[0]) {
		t.Error("a file is deleted")
	}
}

// filled is a form of an upload, with its content type.
func filled(t *testing.T, field, content string) (form, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	var err error
	if field == "file" {
		err = w.WriteField("purpose", "batch")
	}
	part, partErr := w.CreateFormFile(field, "a.jsonl")
	if err == nil && partErr == nil {
		_, err = part.Write([]byte(content))
	}
	if closeErr := w.Close(); err != nil || partErr != nil || closeErr != nil {
		t.Fatalf("%v, %v, %v", err, partErr, closeErr)
	}
	return b.String(), w.FormDataContentType()
}

// age makes all that was uploaded that much older, and returns the names of the objects of files.
// No process may use the installation.
func (i *testInstallation) age(by time.Duration) (files []string) {
	i.t.Helper()
	l, closeAll, err := installation.OpenLocal(i.t.Context(), i.dir, installation.LocalOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	for d, err := range document.All(i.t.Context(), l.Ports.Docs, record.FilePrefix) {
		var f record.File
		if err == nil {
			err = record.Decode(d.Value, &f, d.Key)
		}
		if err != nil {
			i.t.Fatal(err)
		}
		files = append(files, strings.TrimPrefix(f.Input.Key, record.FilesPrefix))
	}
	_, err = host.Update(i.t.Context(), l.Ports.Docs, record.OrphanSweepKey,
		func(s record.OrphanSweep, _ bool) (record.OrphanSweep, bool, error) {
			s.Since = s.Since.Add(-by)
			return s, true, nil
		})
	if err != nil {
		i.t.Fatal(err)
	}
	older := func(u record.Upload, _ bool) (record.Upload, bool, error) {
		u.Created, u.Expires = u.Created.Add(-by), u.Expires.Add(-by)
		return u, true, nil
	}
	for d, err := range document.All(i.t.Context(), l.Ports.Docs, record.UploadPrefix) {
		if err == nil {
			_, err = host.Update(i.t.Context(), l.Ports.Docs, d.Key, older)
		}
		if err != nil {
			i.t.Fatal(err)
		}
	}
	if err := closeAll(); err != nil {
		i.t.Fatal(err)
	}
	for _, folder := range []string{"files", "pending"} {
		err := filepath.WalkDir(i.bucket(folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			at := time.Now().Add(-by)
			return os.Chtimes(path, at, at)
		})
		if err != nil {
			i.t.Fatal(err)
		}
	}
	slices.Sort(files)
	return files
}

// parts are the objects of parts.
func (i *testInstallation) parts() []string {
	i.t.Helper()
	found, err := filepath.Glob(i.bucket(fmt.Sprintf("%s*/*", record.UploadPartsPrefix)))
	if err != nil {
		i.t.Fatal(err)
	}
	return found
}

// uploads are the keys of the documents of uploads.
func (i *testInstallation) uploads() (keys []string) {
	i.t.Helper()
	l, closeAll, err := installation.OpenLocal(i.t.Context(), i.dir, installation.LocalOptions{})
	if err != nil {
		i.t.Fatal(err)
	}
	for d, err := range document.All(i.t.Context(), l.Ports.Docs, record.UploadPrefix) {
		if err != nil {
			i.t.Fatal(err)
		}
		keys = append(keys, d.Key)
	}
	if err := closeAll(); err != nil {
		i.t.Fatal(err)
	}
	return keys
}
