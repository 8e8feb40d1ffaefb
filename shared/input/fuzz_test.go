package input_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"rollout/shared/fault"
	"rollout/shared/input"
)

// FuzzUnpack unpacks hostile archives up to a bound, as plan does. Each of them
// ends, is Corrupt, or is too large.
func FuzzUnpack(f *testing.F) {
	text := []byte("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n")
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	if _, err := w.Write(text); errors.Join(err, w.Close()) != nil {
		f.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(true, gz.Bytes())
	f.Add(true, append(bytes.Clone(gz.Bytes()), gz.Bytes()...))
	f.Add(true, gz.Bytes()[:gz.Len()-4])
	f.Add(false, z.EncodeAll(text, nil))
	f.Add(false, z.EncodeAll(bytes.Repeat([]byte{'a'}, 1<<20), nil))
	f.Fuzz(func(t *testing.T, isGzip bool, archive []byte) {
		packed := input.Zstd
		if isGzip {
			packed = input.Gzip
		}
		r, err := input.Unpack(bytes.NewReader(archive), packed)
		if err == nil {
			const bound = 1 << 20
			var n int64
			n, err = io.Copy(io.Discard, io.LimitReader(r, bound+1))
			if n > bound+1 {
				t.Fatalf("%d bytes", n)
			}
			if closed := r.Close(); closed != nil && !fault.Is(closed, fault.Corrupt) && err == nil {
				t.Errorf("close: %v is %s", closed, fault.KindOf(closed))
			}
		}
		if err != nil && !fault.Is(err, fault.Corrupt) {
			t.Errorf("%v is %s", err, fault.KindOf(err))
		}
	})
}
