package cases

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

func zstdded(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	defer w.Close()
	return w.EncodeAll(b, nil)
}
