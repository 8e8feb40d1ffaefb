package openai

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// FileObject is a file as OpenAI's API describes it. Times are in seconds since 1970.
type FileObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // "file"
	Bytes     int64  `json:"bytes"`
	CreatedAt int64  `json:"created_at"`
	ExpiresAt *int64 `json:"expires_at,omitempty"`
	Filename  string `json:"filename"`
	Purpose   string `json:"purpose"` // "batch" or "batch_output"
	Status    string `json:"status"`  // "processed": a file is seen once it is whole
}

func fileObject(f record.File) FileObject {
	return FileObject{ID: f.ID, Object: "file", Bytes: f.Input.Size, CreatedAt: f.Created.Unix(),
		ExpiresAt: unix(f.Expires), Filename: f.Name, Purpose: f.Purpose, Status: "processed"}
}

// unix returns a time in seconds, nil for the zero time.
func unix(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	n := t.Unix()
	return &n
}

// bytesOf is a file and where its bytes are.
type bytesOf struct {
	FileObject
	input record.Input
}

// file returns a file: one that was uploaded, or a file of a run.
func (s *Server) file(ctx context.Context, id string) (bytesOf, error) {
	if run, p, ok := parseRunFileID(id); ok {
		return s.runFile(ctx, id, run, p)
	}
	f, err := s.uploaded(ctx, id)
	return bytesOf{fileObject(f), f.Input}, err
}

// uploaded returns a file that was uploaded. One that has expired is deleted.
func (s *Server) uploaded(ctx context.Context, id string) (f record.File, err error) {
	if !isUploadID(id) {
		return f, errNoFile(id)
	}
	_, found, err := host.Load(ctx, s.Docs, record.FileKey(id), &f)
	switch {
	case err != nil:
		return f, err
	case !found:
		return f, errNoFile(id)
	case s.hasExpired(f):
		if err := s.remove(ctx, f); err != nil && !fault.Is(err, fault.Conflict) {
			return f, err
		}
		return f, errNoFile(id)
	}
	return f, nil
}

func (s *Server) hasExpired(f record.File) bool {
	return !f.Expires.IsZero() && !s.Clock.Now().Before(f.Expires)
}

// runFile returns a file of a run. An output exists once the run has ended with a row in it.
func (s *Server) runFile(ctx context.Context, id string, run identity.RunID, p part) (f bytesOf, err error) {
	m, err := host.LoadManifest(ctx, s.Docs, run)
	if fault.Is(err, fault.NotFound) {
		return f, errNoFile(id)
	}
	if err != nil {
		return f, err
	}
	f.FileObject = FileObject{ID: id, Object: "file", Filename: m.Name + "_" + string(p) + ".jsonl",
		CreatedAt: m.CreatedAt.Unix(), Purpose: "batch_output", Status: "processed"}
	switch p {
	case partInput:
		if m.InputCount() != 1 {
			return f, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the run has %d input files", m.InputCount()),
				Remedy: "read them where they were submitted"}
		}
		f.input, f.Purpose = m.Inputs[0], "batch"
	case partOutput:
		f.input.Key = record.OutputKey(run, record.CompletionsFile)
	case partErrors:
		f.input.Key = record.OutputKey(run, record.ErrorsFile)
	}
	info, err := s.Blobs.Stat(ctx, f.input.Key, f.input.Version)
	if fault.Is(err, fault.NotFound) {
		return f, errNoFile(id)
	}
	if p != partInput {
		f.CreatedAt = info.ModTime.Unix()
	}
	f.Bytes, f.input.Version, f.input.Size = info.Size, info.Version, info.Size
	return f, err
}

func (s *Server) getFile(r *http.Request) (any, error) {
	f, err := s.file(r.Context(), r.PathValue("id"))
	return f.FileObject, err
}

// content streams the bytes of a file, or redirects to them.
func (s *Server) content(w http.ResponseWriter, r *http.Request) {
	f, err := s.file(r.Context(), r.PathValue("id"))
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if s.redirect != nil {
		at, err := s.redirect(r.Context(), f.input.Key, f.input.Version, addressLasts)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		http.Redirect(w, r, at, http.StatusFound)
		return
	}
	body, info, err := s.Blobs.Get(r.Context(), f.input.Key, blob.GetOptions{Version: f.input.Version})
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			err = errNoFile(f.ID)
		}
		s.refuse(w, r, err)
		return
	}
	defer body.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if !s.chunked {
		h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if _, err := io.Copy(&rollingWriter{w, http.NewResponseController(w)}, body); err != nil {
		abort(w)
	}
}

// abort ends an answer in the middle, so that no client takes a part for the whole. It closes the
// connection itself where that is possible: a framework may catch the panic that otherwise does so,
// and end the answer as if it were whole.
func abort(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_ = conn.Close() // the client may have left
}

// rollingWriter writes to a client, which may read nothing for a while at most.
type rollingWriter struct {
	to   io.Writer
	conn *http.ResponseController
}

func (w *rollingWriter) Write(b []byte) (int, error) {
	extend(w.conn)
	return w.to.Write(b)
}

// deleteFile deletes an uploaded file, or an output file of a run that has ended.
func (s *Server) deleteFile(r *http.Request) (any, error) {
	ctx, id := r.Context(), r.PathValue("id")
	f, err := s.file(ctx, id)
	if err != nil {
		return nil, err
	}
	run, p, ofRun := parseRunFileID(id)
	switch {
	case ofRun && p == partInput:
		return nil, &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%s is the input of a run", id),
			Remedy: "delete " + f.input.Key + " from the bucket"}
	case ofRun: // a retry takes over what its parent has answered
		err = s.notRead(ctx, id, func(r status.Status) bool { return r.Parent != nil && r.Parent.Run == run })
		if err == nil {
			err = s.Blobs.Delete(ctx, f.input.Key, "")
		}
	default:
		var up record.File
		if up, err = s.uploaded(ctx, id); err == nil {
			err = s.remove(ctx, up)
		}
	}
	return map[string]any{"id": id, "object": "file", "deleted": true}, err
}

// notRead returns Conflict if an open run reads the file.
func (s *Server) notRead(ctx context.Context, id string, reads func(status.Status) bool) error {
	open, err := s.runs.Open(ctx)
	for _, r := range open {
		if !r.Phase.Ended() && reads(r) {
			return errIsRead(id, r.Run)
		}
	}
	return err
}

func errIsRead(id string, run identity.RunID) error {
	return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("%s is read by %s", id, batchID(run)),
		Remedy: "wait for its end, or cancel it"}
}

// unmadeFor is how long after its creation the run of a batch may not be made yet.
const unmadeFor = 24 * time.Hour

// remove deletes an uploaded file. One that an open run reads, or one that is not made yet, is
// Conflict.
func (s *Server) remove(ctx context.Context, f record.File) error {
	recent, err := s.recentBatches(ctx, unmadeFor)
	if err != nil {
		return err
	}
	for _, b := range recent {
		if b.Input.Key != f.Input.Key {
			continue
		}
		if _, err := host.LoadManifest(ctx, s.Docs, b.Run); fault.Is(err, fault.NotFound) && !host.IsExpired(err) {
			return errIsRead(f.ID, b.Run)
		}
	}
	err = s.notRead(ctx, f.ID, func(r status.Status) bool { return len(r.Inputs) == 1 && r.Inputs[0] == f.Input.Key })
	if err != nil {
		return err
	}
	doc, err := s.Docs.Get(ctx, record.FileKey(f.ID))
	if err == nil {
		err = s.Docs.Delete(ctx, doc.Key, doc.Revision)
	}
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	return s.Blobs.Delete(ctx, f.Input.Key, "")
}

// Bounds of a list of files. A client may ask for as many as from OpenAI, and gets as many as an
// answer has room for.
const (
	maxFilesPage    = 10_000
	maxFilesAnswer  = 400    // each has 150 bytes or more
	maxFilesRead    = 10_000 // documents
	maxFilesRemoved = 10     // that have expired; others are removed by later requests
)

// listFiles lists the uploaded files, the newest first unless the client asks otherwise.
func (s *Server) listFiles(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit, err := limitOf(q.Get("limit"), maxFilesPage, maxFilesPage)
	if err != nil {
		return nil, err
	}
	after, order := q.Get("after"), q.Get("order")
	if after != "" && !isUploadID(after) {
		return nil, badParam("after", "no file has the id %.80q", after)
	}
	if order != "" && order != "desc" && order != "asc" {
		return nil, badParam("order", `must be "asc" or "desc", is %.20q`, order)
	}
	page := filePage{limit: min(limit, maxFilesAnswer), after: after, oldest: order == "asc", purpose: q.Get("purpose")}
	if err := s.readFiles(r.Context(), &page); err != nil {
		return nil, err
	}
	page.end()
	return pageOf(page.files, page.more, func(f FileObject) string { return f.ID })
}

// readFiles reads the files of a page. Documents are listed the newest first alone: a page of the
// oldest ones is what comes last, so that all newer ones are read.
func (s *Server) readFiles(ctx context.Context, page *filePage) error {
	from, removed := "", 0
	if page.after != "" && !page.oldest {
		from = record.FileKey(page.after)
	}
	for read := 0; ; {
		n := document.MaxPage
		if !page.oldest {
			n = page.limit + 1 - len(page.files)
		}
		docs, err := s.Docs.List(ctx, record.FilePrefix, from, n)
		if err != nil || len(docs) == 0 {
			return err
		}
		for _, d := range docs {
			var f record.File
			if err := record.Decode(d.Value, &f, "document "+d.Key); err != nil {
				return err
			}
			if s.hasExpired(f) {
				if removed++; removed > maxFilesRemoved {
					continue
				}
				if err := s.remove(ctx, f); err != nil && !fault.Is(err, fault.Conflict) {
					return err
				}
				continue
			}
			if !page.add(fileObject(f)) {
				return nil
			}
		}
		from = docs[len(docs)-1].Key
		if read += len(docs); read < maxFilesRead {
			continue
		}
		if page.oldest {
			return badParam("order", "there are more than %d files: list the newest first", maxFilesRead)
		}
		page.more = true
		return nil
	}
}

// filePage collects a page of files, which come the newest first.
type filePage struct {
	limit   int
	after   string // the page begins behind this id
	oldest  bool   // the oldest first
	purpose string // "" for any
	files   []FileObject
	more    bool
	passed  bool
}

// add adds the next file. It returns false once the page is complete.
func (p *filePage) add(f FileObject) bool {
	if p.purpose != "" && p.purpose != f.Purpose {
		return true
	}
	if p.oldest {
		if p.after != "" && f.ID >= p.after { // ids sort as the list does
			return false // what follows is older
		}
		// The page is the last ones that come: it keeps few more of them.
		if p.files = append(p.files, f); len(p.files) > 2*p.limit {
			p.files, p.more = slices.Clone(p.files[len(p.files)-p.limit:]), true
		}
		return true
	}
	switch {
	case p.after != "" && !p.passed && f.ID <= p.after: // ids sort as the list does
		return true
	case len(p.files) == p.limit:
		p.more = true
		return false
	}
	p.passed = true
	p.files = append(p.files, f)
	return true
}

// end completes a page of which the oldest files come first.
func (p *filePage) end() {
	if !p.oldest {
		return
	}
	if len(p.files) > p.limit {
		p.files, p.more = p.files[len(p.files)-p.limit:], true
	}
	slices.Reverse(p.files)
}

// limitOf reads the parameter limit.
func limitOf(text string, otherwise, most int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, badParam("limit", "must be a number from 1 to %d, is %.20q", most, text)
	}
	return n, nil
}
