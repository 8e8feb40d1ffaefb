package openai

import (
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"
	"unicode"

	"rollout/shared/blob"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Bounds of files that are uploaded in parts, those of OpenAI's API.
const (
	maxUploadBytes = 8 << 30
	maxPartBytes   = 64 << 20
	uploadLasts    = time.Hour
	maxPartIDs     = 128 << 10 // bytes of the body that lists the parts
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
	u := record.Upload{Schema: record.Schema, ID: uploadPrefix + rand.Text(), Created: now, Expires: now.Add(uploadLasts),
		Status: uploadPending, Bytes: c.Bytes, File: *f.file}
	if err := s.removeAbandoned(r.Context()); err != nil {
		return nil, err
	}
	_, err := host.Save(r.Context(), s.Docs, record.UploadKey(u.ID), u, "")
	return s.uploadObject(u), err
}

// removeAbandoned deletes parts of uploads that have expired, at most a page of them. In a cloud
// the lifecycle of the bucket does.
func (s *Server) removeAbandoned(ctx context.Context) error {
	if s.redirect != nil {
		return nil
	}
	found, err := s.Blobs.List(ctx, record.UploadPartsPrefix, "", partsPage)
	for _, info := range found {
		if s.Clock.Now().Sub(info.ModTime) < 2*uploadLasts {
			continue
		}
		if err := s.Blobs.Delete(ctx, info.Key, ""); err != nil {
			return err
		}
	}
	return err
}

// loadUpload returns an upload and its revision, or NotFound.
func (s *Server) loadUpload(r *http.Request) (u record.Upload, revision document.Revision, err error) {
	id := r.PathValue("id")
	absent := fault.New(fault.NotFound, "no such Upload object: %.80s", id)
	if !isName(id, uploadPrefix) {
		return u, "", absent
	}
	revision, found, err := host.Load(r.Context(), s.Docs, record.UploadKey(id), &u)
	if err == nil && !found {
		err = absent
	}
	return u, revision, err
}

// isName reports whether an id is the prefix and what rand.Text returns: ids become parts of keys.
func isName(id, prefix string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	return ok && len(rest) == 26 && !strings.ContainsFunc(rest, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < '2' || r > '7')
	})
}

// pending returns Conflict unless the upload takes parts.
func (s *Server) pending(u record.Upload) error {
	if status := s.uploadObject(u).Status; status != uploadPending {
		return fault.New(fault.Conflict, "the upload is %s", status)
	}
	return nil
}

// addPart stores a part. Parts may come at once, in any order.
func (s *Server) addPart(w http.ResponseWriter, r *http.Request) (any, error) {
	u, _, err := s.loadUpload(r)
	if err == nil {
		err = s.pending(u)
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

// completeUpload joins the parts in the order that the client names, and makes the file. It may
// be repeated: its answer may have been lost.
func (s *Server) completeUpload(r *http.Request) (any, error) {
	var c struct {
		PartIDs []string `json:"part_ids"`
		MD5     string   `json:"md5"`
	}
	if err := readJSON(io.LimitReader(r.Body, maxPartIDs), &c); err != nil {
		return nil, err
	}
	ctx := r.Context()
	u, revision, err := s.loadUpload(r)
	switch {
	case err != nil:
		return nil, err
	case u.Status == uploadCompleted:
		return s.uploadObject(u), nil
	}
	if err := s.pending(u); err != nil {
		return nil, err
	}
	ranges, err := s.ranges(u, c.PartIDs)
	if err != nil {
		return nil, err
	}
	info, err := s.Blobs.Join(ctx, u.File.Input.Key, ranges)
	switch {
	case fault.Is(err, fault.Conflict): // by an earlier try
		info, err = s.Blobs.Stat(ctx, u.File.Input.Key, "")
	case fault.Is(err, fault.NotFound):
		err = &paramError{"part_ids", fault.WithKind(fault.Invalid, err, "find the parts")}
	}
	if err == nil {
		err = s.checkJoined(ctx, u, info, c.MD5)
	}
	if err != nil {
		return nil, err
	}
	u.Status, u.File.Input.Version, u.File.Input.Size = uploadCompleted, info.Version, info.Size
	_, err = host.Save(ctx, s.Docs, record.FileKey(u.File.ID), u.File, "")
	if err == nil || fault.Is(err, fault.Conflict) { // of another try
		_, err = host.Save(ctx, s.Docs, record.UploadKey(u.ID), u, revision)
	}
	if err != nil && !fault.Is(err, fault.Conflict) {
		return nil, err
	}
	return s.uploadObject(u), s.removeParts(ctx, u)
}

// ranges are the parts of an upload by their ids.
func (s *Server) ranges(u record.Upload, ids []string) (out []blob.Range, err error) {
	if len(ids) == 0 || len(ids) > blob.MaxParts {
		return nil, badParam("part_ids", "must name 1 to %d parts, names %d", blob.MaxParts, len(ids))
	}
	for _, id := range ids {
		if !isName(id, partPrefix) {
			return nil, badParam("part_ids", "no part has the id %.80q", id)
		}
		out = append(out, blob.Range{Key: record.UploadPartKey(u.ID, id)})
	}
	return out, nil
}

// checkJoined compares the file with what the client says of it, and removes one that differs.
func (s *Server) checkJoined(ctx context.Context, u record.Upload, info blob.Info, sum string) error {
	var err error
	switch {
	case info.Size != u.Bytes:
		err = badParam("part_ids", "the parts have %d bytes, and the upload was created with %d", info.Size, u.Bytes)
	case sum != "":
		err = s.checkSum(ctx, info, sum)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, s.Blobs.Delete(ctx, info.Key, info.Version))
}

// checkSum reads the file for its MD5.
func (s *Server) checkSum(ctx context.Context, info blob.Info, want string) error {
	body, _, err := s.Blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version})
	if err != nil {
		return err
	}
	defer body.Close()
	h := md5.New()
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want) {
		return badParam("md5", "the file has the sum %s", got)
	}
	return nil
}

// cancelUpload ends an upload without a file.
func (s *Server) cancelUpload(r *http.Request) (any, error) {
	u, revision, err := s.loadUpload(r)
	if err != nil {
		return nil, err
	}
	if u.Status == uploadCompleted {
		return nil, s.pending(u)
	}
	u.Status = uploadCancelled
	if _, err := host.Save(r.Context(), s.Docs, record.UploadKey(u.ID), u, revision); err != nil {
		return nil, err
	}
	return s.uploadObject(u), s.removeParts(r.Context(), u)
}

// partsPage is how many parts are removed at once.
const partsPage = 1000

// removeParts deletes the parts of an upload that is over. In a cloud the lifecycle of the
// bucket does.
func (s *Server) removeParts(ctx context.Context, u record.Upload) error {
	for s.redirect == nil {
		found, err := s.Blobs.List(ctx, record.UploadPartsPrefix+u.ID+"/", "", partsPage)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, info := range found {
			if err := s.Blobs.Delete(ctx, info.Key, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// readJSON reads a body. Unknown members are passed over: later clients send more.
func readJSON(body io.Reader, into any) error {
	b, err := io.ReadAll(body)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fault.WithKind(fault.Invalid, fmt.Errorf("read the body as JSON: %w", err), "read the request")
	}
	return nil
}
