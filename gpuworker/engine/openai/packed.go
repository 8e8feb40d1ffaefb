package openai

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
)

// unpacked returns a reader of the response's body without the compression by gzip
// or deflate that some proxies add unasked. The first bytes decide, since proxies
// also leave the header in place when they unpack. The caller bounds what it reads,
// so that a small response can't fill the memory.
func unpacked(resp *http.Response) (io.Reader, error) {
	if resp.Header.Get("Content-Encoding") == "" {
		return resp.Body, nil
	}
	in := bufio.NewReader(resp.Body)
	magic, _ := in.Peek(2) // a shorter body is not packed
	var out io.Reader
	var err error
	switch {
	case string(magic) == "\x1f\x8b":
		out, err = gzip.NewReader(in)
	case len(magic) == 2 && magic[0] == 0x78 && (uint(magic[0])<<8|uint(magic[1]))%31 == 0:
		out, err = zlib.NewReader(in)
	default:
		return in, nil
	}
	if err != nil { // the header is cut
		return nil, errBroken
	}
	return inflating{out}, nil
}

// inflating makes damaged data errMalformed. Data that is cut stays
// io.ErrUnexpectedEOF.
type inflating struct{ from io.Reader }

func (r inflating) Read(b []byte) (int, error) {
	n, err := r.from.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", errMalformed, err)
	}
	return n, err
}
