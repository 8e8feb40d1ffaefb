package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"unicode"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Bounds of files that are uploaded in parts, those of OpenAI's API.
const (
	maxUploadBytes = 8 << 30
	maxPartBytes   = 64 << 20
)

// Prefixes of the ids of uploads and of their parts.
const (
	uploadPrefix = "upload_"
	partPrefix   = "part_"
)

// Statuses of an upload.
const (
	uploadPending   = "pending"
	uploadCompleted = "completed"
	uploadCancelled = "cancelled"
	uploadExpired   = "expired"
)

// Upload is a file that is uploaded in parts, as OpenAI's API describes it.
type Upload struct {
	ID        string      `json:"id"`
	Object    string      `json:"object"` // "upload"
	Bytes     int64       `json:"bytes"`
	CreatedAt int64       `json:"created_at"`
	ExpiresAt int64       `json:"expires_at"`
	Filename  string      `json:"filename"`
	Purpose   string      `json:"purpose"`
	Status    string      `json:"status"`
	File      *FileObject `json:"file"` // null before it is completed
}

// UploadPart is a part of an upload, as OpenAI's API describes it.
type UploadPart struct {
	ID        string `json:"id"`
	Object    string `json:"object"` // "upload.part"
	CreatedAt int64  `json:"created_at"`
	UploadID  string `json:"upload_id"`
}

func (s *Server) uploadObject(u record.Upload) Upload {
	out := Upload{ID: u.ID, Object: "upload", Bytes: u.Bytes, CreatedAt: u.Created.Unix(), ExpiresAt: u.Expires.Unix(),
		Filename: u.File.Name, Purpose: u.File.Purpose, Status: u.Status}
	if u.Status == uploadPending && !s.Clock.Now().Before(u.Expires) {
		out.Status = uploadExpired
	}
	if u.Status == uploadCompleted {
		f := fileObject(u.File)
		out.File = &f
	}
	return out
}

// createUpload begins a file that comes in parts.
func (s *Server) createUpload(r *http.Request) (any, error) {
	var c struct {
		Filename, Purpose string
		Bytes             int64
		ExpiresAfter      *struct {
			Anchor  string
			Seconds json.Number
		} `json:"expires_after"`
	}
	if err := readJSON(r.Body, &c); err != nil {
		return nil, err
	}
	name := path.Base(strings.ReplaceAll(c.Filename, `\`, "/"))
	switch {
	case c.Filename == "" || len(name) > maxFileName || strings.ContainsFunc(name, unicode.IsControl):
		return nil, badParam("filename", "must have 1 to %d bytes and no control characters", maxFileName)
	case c.Bytes < 1 || c.Bytes > maxUploadBytes:
		return nil, badParam("bytes", "must be 1 to %d, is %d", int64(maxUploadBytes), c.Bytes)
	}
	now := s.Clock.Now().UTC()
	packed, _ := input.Packing(name)
	id := newFileID(now)
	f := form{purpose: c.Purpose, file: &record.File{Schema: record.Schema, ID: id, Created: now, Name: name,
		Input: record.Input{Key: record.FilesPrefix + id + input.Suffix(packed), Size: c.Bytes, Packed: packed}}}
	if c.ExpiresAfter != nil {
		f.anchor, f.seconds = c.ExpiresAfter.Anchor, c.ExpiresAfter.Seconds.String()
	}
	if err := f.check(now); err != nil {
		return nil, err
	}
	u := record.Upload{Schema: record.Schema, ID: uploadPrefix + rand.Text(), Created: now,
		Expires: now.Add(record.UploadLasts), Status: uploadPending, Bytes: c.Bytes, File: *f.file}
	_, err := host.Save(r.Context(), s.Docs, record.UploadKey(u.ID), u, "")
	return s.uploadObject(u), err
}

// loadUpload returns an upload, or NotFound: also of one of which nothing is kept any more, or may
// be deleted from now on. One that has expired is ended.
func (s *Server) loadUpload(r *http.Request) (u record.Upload, err error) {
	id := r.PathValue("id")
	if !isName(id, uploadPrefix) {
		return u, errNoUpload(id)
	}
	_, found, err := host.Load(r.Context(), s.Docs, record.UploadKey(id), &u)
	switch {
	case err != nil:
		return u, err
	case !found || s.Clock.Now().Sub(u.Created) >= record.UploadKept:
		return u, errNoUpload(id)
	case s.uploadObject(u).Status == uploadExpired:
		return s.endUpload(r.Context(), id, uploadExpired)
	}
	return u, nil
}

func errNoUpload(id string) error {
	return fault.New(fault.NotFound, "no such Upload object: %.80s", id)
}

// errIsOver is the Conflict error of an upload that takes nothing more.
func errIsOver(u record.Upload) error { return fault.New(fault.Conflict, "the upload is %s", u.Status) }

// changeUpload changes the document of an upload, unless change returns false.
func (s *Server) changeUpload(ctx context.Context, id string,
	change func(u *record.Upload) (bool, error)) (record.Upload, error) {
	return host.Update(ctx, s.Docs, record.UploadKey(id), func(u record.Upload, found bool) (record.Upload, bool, error) {
		if !found {
			return u, false, errNoUpload(id)
		}
		write, err := change(&u)
		return u, write, err
	})
}

// endUpload ends an upload that is pending, without a file, and returns what it is then: another
// request may have been first. The document decides, and what is stored is deleted after it.
func (s *Server) endUpload(ctx context.Context, id, status string) (record.Upload, error) {
	u, err := s.changeUpload(ctx, id, func(u *record.Upload) (bool, error) {
		if u.Status != uploadPending {
			return false, nil
		}
		u.Status = status
		return true, nil
	})
	if err != nil || u.Status == uploadCompleted {
		return u, err
	}
	s.removeParts(ctx, u)
	return u, s.removeJoined(ctx, u)
}

// isName reports whether an id is the prefix and what rand.Text returns: ids become parts of keys.
func isName(id, prefix string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	return ok && len(rest) == 26 && !strings.ContainsFunc(rest, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '2' || r > '7')
	})
}

// addPart stores a part. Parts may come at once, in any order.
func (s *Server) addPart(w http.ResponseWriter, r *http.Request) (any, error) {
	u, err := s.loadUpload(r)
	if err == nil && u.Status != uploadPending {
		err = errIsOver(u)
	}
	if err != nil {
		return nil, err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the part")
	}
	conn := http.NewResponseController(w)
	extend(conn)
	p, err := parts.NextRawPart()
	switch {
	case err != nil:
		return nil, fault.WithKind(fault.Invalid, err, "read the part")
	case p.FormName() != "data":
		return nil, badParam("data", "must be the only field, is %.40q", p.FormName())
	}
	id, now := partPrefix+rand.Text(), s.Clock.Now()
	body := &bounded{from: &rolling{p, conn}, left: maxPartBytes}
	_, err = s.Blobs.Put(r.Context(), record.UploadPartKey(u.ID, id), body, blob.PutOptions{CreateOnly: true})
	if err != nil {
		return nil, err
	}
	return UploadPart{ID: id, Object: "upload.part", CreatedAt: now.Unix(), UploadID: u.ID}, nil
}

// bounded refuses a part that is too long.
type bounded struct {
	from io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, badParam("data", "a part has at most %d bytes", maxPartBytes)
	}
	return n, err
}

// cancelUpload ends an upload without a file. It may be repeated.
func (s *Server) cancelUpload(r *http.Request) (any, error) {
	u, err := s.loadUpload(r)
	if err == nil {
		u, err = s.endUpload(r.Context(), u.ID, uploadCancelled)
	}
	if err == nil && u.Status != uploadCancelled {
		err = errIsOver(u)
	}
	return s.uploadObject(u), err
}

// readJSON reads a body. Unknown members are passed over: later clients send more.
func readJSON(body io.Reader, into any) error {
	b, err := io.ReadAll(body)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return fault.New(fault.Exhausted, "the body is longer than %d bytes", tooLong.Limit)
	case err != nil:
		return fault.WithKind(fault.Invalid, fmt.Errorf("read the body as JSON: %w", err), "read the request")
	}
	return nil
}
