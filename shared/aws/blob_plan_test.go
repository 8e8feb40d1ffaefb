package aws

import (
	"bytes"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// The parts of a plan are the pieces in order, byte for byte, within S3's limits.
func TestPlanJoinCoversPiecesWithinLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		length := rapid.OneOf(
			rapid.Int64Range(1, 3*minPart), rapid.Int64Range(1, 1000), rapid.Just(int64(minPart)),
			rapid.Int64Range(1, 3*maxPart), rapid.Just(int64(maxPart)), rapid.Int64Range(maxPart, maxPart+minPart),
		)
		var pieces []piece
		for _, n := range rapid.SliceOfN(length, 1, 20).Draw(r, "lengths") {
			pieces = append(pieces, piece{"k", "v", int64(len(pieces)) << 50, n, 1 << 60})
		}
		plan := planJoin(pieces)
		at, done := 0, int64(0)
		for i, part := range plan {
			size := int64(0)
			for _, p := range part {
				if p.offset != pieces[at].offset+done || p.length < 1 {
					r.Fatalf("part %d: piece %+v, want it to begin at %d of %+v", i, p, done, pieces[at])
				}
				if done += p.length; done == pieces[at].length {
					at, done = at+1, 0
				}
				size += p.length
			}
			if size > maxPart || size < minPart && i < len(plan)-1 {
				r.Fatalf("part %d has %d bytes", i, size)
			}
			if len(part) > 1 && size > minPart {
				r.Fatalf("part %d of %d bytes goes through memory", i, size)
			}
		}
		if at != len(pieces) || done != 0 {
			r.Fatalf("the plan ends at piece %d of %d, byte %d", at, len(pieces), done)
		}
	})
}

func TestReadPartReturnsFullPartsUntilEOF(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		content := bytes.Repeat([]byte("0123456789"), rapid.IntRange(0, 40_000).Draw(r, "tens"))
		size := rapid.IntRange(1, 300_000).Draw(r, "size")
		var source io.Reader = bytes.NewReader(content)
		if rapid.Bool().Draw(r, "halves") {
			source = iotest.HalfReader(source)
		}
		if rapid.Bool().Draw(r, "EOF with data") {
			source = iotest.DataErrReader(source)
		}
		var got, buffer []byte
		for more := true; more; {
			var part []byte
			var err error
			part, more, err = readPart(source, buffer, size)
			if err != nil || len(part) > size || cap(part) > max(size, len(part)) {
				r.Fatalf("a part of %d bytes in %d, %v; the size is %d", len(part), cap(part), err, size)
			}
			if more && len(part) < size {
				r.Fatalf("a part of %d bytes before the end; the size is %d", len(part), size)
			}
			got, buffer = append(got, part...), part
		}
		if !bytes.Equal(got, content) {
			r.Fatalf("%d bytes, want %d", len(got), len(content))
		}
	})
}

func TestReadPartFailsIfReaderMakesNoProgress(t *testing.T) {
	t.Parallel()
	if _, _, err := readPart(emptyReader{}, nil, 10); err != io.ErrNoProgress {
		t.Errorf("%v", err)
	}
}

// emptyReader returns no bytes and no error.
type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

func FuzzCopySource(f *testing.F) {
	f.Add("a+b c&d=%2B?é日")
	f.Fuzz(func(t *testing.T, key string) {
		escaped := escape(key)
		if back, err := url.PathUnescape(escaped); err != nil || back != key || strings.ContainsAny(escaped, "+ ?&") {
			t.Errorf("escape(%q) = %q, which unescapes to %q, %v", key, escaped, back, err)
		}
		if back, err := url.QueryUnescape(escaped); err != nil || back != key {
			t.Errorf("escape(%q) = %q, which unescapes as a query to %q, %v", key, escaped, back, err)
		}
	})
}

func TestMarkerIsPrefixOfKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		anyBytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		after := rapid.OneOf(rapid.String(), anyBytes).Draw(r, "after")
		if m := marker(after); m > after || !strings.HasPrefix(after, m) {
			r.Fatalf("marker(%q) = %q", after, m)
		}
	})
}
