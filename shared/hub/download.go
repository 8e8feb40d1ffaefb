package hub

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"rollout/shared/fault"
	"rollout/shared/models"
)

// Files is a model as a source of its files; see models.Source.
type Files struct {
	Hub   Hub
	Model Model
}

// Open opens a file for reading. It sends no request yet.
func (s Files) Open(ctx context.Context, l models.Listed) (io.ReadCloser, error) {
	for _, f := range s.Model.Files {
		if f.Path == l.Path {
			return &download{ctx: ctx, from: s, file: f, hash: f.digest.hasher(f.Size)}, nil
		}
	}
	return nil, fault.New(fault.NotFound, "the model has no file %.128q", l.Path)
}

// Listed returns the files as models.Cache takes them.
func (m Model) Listed() []models.Listed {
	all := make([]models.Listed, 0, len(m.Files))
	for _, f := range m.Files {
		all = append(all, f.Listed)
	}
	return all
}

// download reads a file. After a break it asks for the rest, as long as each try brings a
// byte; see retry.Policy for those that do not.
//
//	closed ──get from at──▶ reading ──break──▶ closed
//	                           └──end──▶ verified, or Corrupt
type download struct {
	ctx  context.Context
	from Files
	file File
	hash hash.Hash
	body *body // nil while closed
	at   int64
	vain int // breaks in a row without a byte
}

// Read reads on; see Files.Open.
func (d *download) Read(p []byte) (int, error) {
	for {
		if d.at == d.file.Size {
			return 0, d.verify()
		}
		n, err := d.read(p)
		if n > 0 {
			d.vain = 0
			d.at += int64(n)
			d.hash.Write(p[:n])
			return n, nil
		}
		if !fault.Retriable(err) {
			return 0, fault.Wrap(err, "download %s", d.file.Path)
		}
		if d.vain++; d.vain >= d.from.Hub.Retry.MaxTries() {
			return 0, fault.Wrap(err, "download %s, %d times without a byte", d.file.Path, d.vain)
		}
		if err := d.pause(err); err != nil {
			return 0, err
		}
	}
}

// pause waits as the policy says, the longer the more breaks there were in a row.
func (d *download) pause(broken error) error {
	return d.from.Hub.Retry.Do(d.ctx, func(try int) error {
		if try < d.vain {
			return broken
		}
		return nil
	})
}

// read reads from the body, and opens it if there is none.
func (d *download) read(p []byte) (int, error) {
	if d.body == nil {
		if err := d.open(); err != nil {
			return 0, err
		}
	}
	if left := d.file.Size - d.at; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := d.body.Read(p)
	if n > 0 || err == nil {
		return n, nil
	}
	err = d.body.broken(err)
	d.close()
	return 0, err
}

// open asks for the rest of the file.
func (d *download) open() error {
	m := d.from.Model
	parts := strings.Split(d.file.Path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	header := http.Header{"Accept-Encoding": {"identity"}}
	if d.at > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.at))
	}
	ctx, cancel := context.WithCancelCause(d.ctx)
	answer, err := d.from.Hub.get(ctx, "/"+m.Name+"/resolve/"+m.Commit+"/"+strings.Join(parts, "/"), header)
	if err != nil {
		cancel(nil)
		return err
	}
	b := &body{ReadCloser: answer.Body, ctx: ctx, cancel: cancel}
	if err := d.check(answer, b); err != nil {
		_ = b.Close() // the fault is told
		return err
	}
	d.body = b
	return nil
}

// check refuses an answer that is not the rest of the file. It does not compare ETags, which
// differ between the servers that hold one file: the digest shows at the end whether a
// mirror that is out of step sent another file's rest.
func (d *download) check(answer *http.Response, b *body) error {
	if err := d.from.Hub.status(answer, d.from.Model.Name); err != nil {
		return err
	}
	if d.at == 0 {
		return nil
	}
	if answer.StatusCode != http.StatusPartialContent { // the server can't: skip what is here
		if _, err := io.CopyN(io.Discard, b, d.at); err != nil {
			return b.broken(err)
		}
		return nil
	}
	want := fmt.Sprintf("bytes %d-%d/%d", d.at, d.file.Size-1, d.file.Size)
	if got := answer.Header.Get("Content-Range"); got != want {
		return fault.New(fault.Corrupt, "the hub sent %.64q of it instead of %q: it may have changed meanwhile", got, want)
	}
	return nil
}

// verify ends the download.
func (d *download) verify() error {
	d.close()
	if got := hex.EncodeToString(d.hash.Sum(nil)); got != d.file.Digest {
		return fault.New(fault.Corrupt, "download %s: its bytes have the digest %s, and the hub told %s", d.file.Path, got,
			d.file.Digest)
	}
	return io.EOF
}

// Close ends the download.
func (d *download) Close() error {
	d.close()
	return nil
}

func (d *download) close() {
	if d.body != nil {
		_ = d.body.Close() // it is only read
		d.body = nil
	}
}

// body is the body of an answer, which a time without any byte ends.
type body struct {
	io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
}

func (b *body) Read(p []byte) (int, error) {
	stalled := time.AfterFunc(stallLimit, func() {
		b.cancel(fault.New(fault.Unavailable, "no byte came for %s", stallLimit))
	})
	defer stalled.Stop()
	return b.ReadCloser.Read(p)
}

// broken translates the error of a read. Call it before Close, which ends the context.
func (b *body) broken(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection ended early")
	}
	return unreachable(b.ctx, err)
}

func (b *body) Close() error {
	b.cancel(nil)
	return b.ReadCloser.Close()
}
