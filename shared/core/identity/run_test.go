package identity

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
)

// TestValid covers hostile run ids: valid ones become parts of keys.
func TestValid(t *testing.T) {
	t.Parallel()
	good := "01JD2ZQ4T5W0M1X9YB7R3K8CVE"
	for _, r := range []string{good, ulid.Make().String(), strings.Repeat("0", 26), "7" + strings.Repeat("Z", 25)} {
		if !RunID(r).Valid() {
			t.Errorf("%q is rejected", r)
		}
	}
	for name, r := range map[string]string{
		"empty":               "",
		"short":               good[1:],
		"long":                good + "0",
		"lower case":          strings.ToLower(good),
		"more than 128 bits":  "8" + good[1:],
		"excluded letters":    strings.Repeat("0", 22) + "ILOU",
		"path":                "0/../../../../../etc/passwd",
		"slash":               good[:25] + "/",
		"dot":                 good[:25] + ".",
		"zero byte":           good[:25] + "\x00",
		"newline":             good[:25] + "\n",
		"full-width digit":    "0" + strings.Repeat("0", 22) + "０",
		"invalid UTF-8":       good[:25] + "\xff",
		"space before":        " " + good[:25],
		"dash of a shard key": good[:25] + "-",
		"percent":             good[:23] + "%2F",
		"kelvin sign":         good[:23] + "\u212a",
	} {
		if RunID(r).Valid() {
			t.Errorf("%s: %q is accepted", name, r)
		}
	}
}

// TestUploadRunDependsOnBucketKeyAndVersion also moves characters from one to the
// next.
func TestUploadRunDependsOnBucketKeyAndVersion(t *testing.T) {
	t.Parallel()
	seen := map[RunID][3]string{}
	for _, u := range [][3]string{
		{"b", "k", "v"}, {"b2", "k", "v"}, {"b", "k2", "v"}, {"b", "k", "v2"},
		{"bk", "", "v"}, {"", "bk", "v"}, {"b", "kv", ""}, {"", "", "bkv"}, {"", "", ""},
	} {
		r := UploadRun(u[0], u[1], u[2])
		if !r.Valid() || r != UploadRun(u[0], u[1], u[2]) {
			t.Errorf("%q gives the run %q", u, r)
		}
		if other, ok := seen[r]; ok {
			t.Errorf("%q and %q are the same run", u, other)
		}
		seen[r] = u
	}
}

func FuzzRunID(f *testing.F) {
	f.Add([]byte("01JD2ZQ4T5W0M1X9YB7R3K8CVE"))
	f.Add(make([]byte, 16))
	f.Add([]byte("\xff\xfe/..//\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		// A run id is valid if the ULID library accepts it.
		if id, err := ulid.ParseStrict(string(b)); RunID(b).Valid() != (err == nil && id.String() == string(b)) {
			t.Errorf("%q: valid is %v, the library says %q, %v", b, RunID(b).Valid(), id, err)
		}
		// encodeRun encodes as the library does.
		var raw [16]byte
		copy(raw[:], b)
		if r := encodeRun(raw[:]); !r.Valid() || string(r) != ulid.ULID(raw).String() {
			t.Errorf("%x is encoded as %q", raw, r)
		}
	})
}
