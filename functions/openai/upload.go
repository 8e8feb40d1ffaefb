package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/text"
)

// Bounds of uploads.
const (
	silence      = time.Minute // of a client that uploads or downloads
	maxField     = 4 << 10     // bytes of a field that is not the file
	maxFields    = 20
	maxFileName  = 200 // bytes
	minExpiresIn = time.Hour
	maxExpiresIn = 30 * 24 * time.Hour
)

// purposes are those that a file may have. Only files for batches are of use here.
var purposes = []string{"batch"}

// form is what an upload says, besides the bytes of the file.
type form struct {
	purpose, anchor, seconds string
	file                     *record.File
}

// upload takes a file: its bytes go to the bucket as they come, and the document that makes
// it a file is written last.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) (any, error) {
	parts, err := r.MultipartReader()
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the upload")
	}
	ctx := r.Context()
	now := s.Clock.Now().UTC()
	f, err := s.readForm(ctx, parts, http.NewResponseController(w), now)
	if err == nil {
		err = f.check(now)
	}
	if err == nil {
		_, err = host.Save(ctx, s.Docs, record.FileKey(f.file.ID), *f.file, "")
	}
	if err != nil {
		if f.file != nil { // the client may have left: its bytes must not stay
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), silence)
			defer cancel()
			err = errors.Join(err, s.Blobs.Delete(last, f.file.Input.Key, ""))
		}
		return nil, err
	}
	return fileObject(*f.file), nil
}

// readForm reads the parts of an upload in any order.
func (s *Server) readForm(ctx context.Context, parts *multipart.Reader, conn *http.ResponseController,
	now time.Time) (f form, err error) {
	for n := 0; ; n++ {
		// A client that sends nothing for a while must not keep a connection.
		extend(conn)
		p, err := parts.NextRawPart()
		if err == io.EOF {
			return f, nil
		}
		switch {
		case err != nil:
			return f, fault.WithKind(fault.Invalid, err, "read the upload")
		case n == maxFields:
			return f, fault.New(fault.Invalid, "the upload has more than %d fields", maxFields)
		case p.FormName() == "file" && f.file != nil:
			return f, badParam("file", "there are two files in one upload")
		case p.FormName() == "file":
			f.file, err = s.store(ctx, p, conn, now)
			if err != nil {
				return f, err
			}
			continue
		}
		b, err := io.ReadAll(io.LimitReader(p, maxField+1))
		if err != nil {
			return f, fault.WithKind(fault.Invalid, err, "read the field %.40q", p.FormName())
		}
		if len(b) > maxField {
			return f, badParam(text.Truncate(p.FormName(), 40, "…"), "has more than %d bytes", maxField)
		}
		switch p.FormName() {
		case "purpose":
			f.purpose = string(b)
		case "expires_after[anchor]":
			f.anchor = string(b)
		case "expires_after[seconds]":
			f.seconds = string(b)
		}
	}
}

// store puts the bytes of the file into the bucket.
func (s *Server) store(ctx context.Context, p *multipart.Part, conn *http.ResponseController,
	now time.Time) (*record.File, error) {
	name := path.Base(strings.ReplaceAll(p.FileName(), `\`, "/"))
	switch {
	case p.FileName() == "":
		return nil, badParam("file", "has no filename")
	case len(name) > maxFileName || strings.ContainsFunc(name, unicode.IsControl):
		return nil, badParam("file", "its name must have at most %d bytes and no control characters", maxFileName)
	}
	packed, _ := input.Packing(name)
	id := newFileID(now)
	key := record.FilesPrefix + id + input.Suffix(packed)
	info, err := s.Blobs.Put(ctx, key, &rolling{p, conn}, blob.PutOptions{CreateOnly: true})
	if err != nil {
		return nil, err
	}
	return &record.File{Schema: record.Schema, ID: id, Created: now, Name: name,
		Input: record.Input{Key: key, Version: info.Version, Size: info.Size, Packed: packed}}, nil
}

// extend gives a client time to send or read the next bytes.
func extend(conn *http.ResponseController) {
	at := time.Now().Add(silence)
	_, _ = conn.SetReadDeadline(at), conn.SetWriteDeadline(at) // recorders of tests have none
}

// rolling reads from a client, which may be silent for a while at most.
type rolling struct {
	from io.Reader
	conn *http.ResponseController
}

func (r *rolling) Read(b []byte) (int, error) {
	extend(r.conn)
	n, err := r.from.Read(b)
	if err != nil && err != io.EOF {
		err = fault.WithKind(fault.Invalid, err, "the upload ended early")
	}
	return n, err
}

// check checks the fields of an upload, and completes its file.
func (f *form) check(now time.Time) error {
	switch {
	case f.file == nil:
		return badParam("file", "is missing")
	case f.purpose == "":
		return badParam("purpose", "is missing")
	case f.purpose != purposes[0]:
		return badParam("purpose", "must be %q here, is %.40q", purposes[0], f.purpose)
	case f.file.Input.Size == 0:
		return badParam("file", "is empty")
	}
	f.file.Purpose = f.purpose
	if f.anchor == "" && f.seconds == "" {
		return nil
	}
	if f.anchor != "created_at" {
		return badParam("expires_after[anchor]", `must be "created_at", is %.40q`, f.anchor)
	}
	n, err := strconv.ParseInt(f.seconds, 10, 32)
	in := time.Duration(n) * time.Second
	if err != nil || in < minExpiresIn || in > maxExpiresIn {
		return badParam("expires_after[seconds]", "must be %d to %d, is %.40q", int(minExpiresIn.Seconds()),
			int(maxExpiresIn.Seconds()), f.seconds)
	}
	f.file.Expires = now.Add(in)
	return nil
}

// errNoFile is the NotFound error of a file.
func errNoFile(id string) error {
	return fault.WithKind(fault.NotFound, fmt.Errorf("no such File object: %.80s", id), "find the file")
}
