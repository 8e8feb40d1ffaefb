package identity

import "strconv"

// RunID names a run: 26 characters of Crockford base32, a ULID's alphabet and
// length. Example: "01JD2ZQ4T5W0M1X9YB7R3K8CVE".
type RunID string

const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Valid reports whether r has the length and the alphabet of a run id. Run ids
// become parts of keys, so check every run id from outside.
func (r RunID) Valid() bool {
	if len(r) != 26 || r[0] > '7' {
		return false
	}
	for i := range len(r) {
		if crockfordValue(r[i]) < 0 {
			return false
		}
	}
	return true
}

func crockfordValue(c byte) int {
	for i := range len(crockford) {
		if crockford[i] == c {
			return i
		}
	}
	return -1
}

// UploadRun returns the run of one version of one uploaded object, so that a
// repeated event names the same run. A new version of the object is a new run.
func UploadRun(bucket, key, version string) RunID {
	h := NewHasher()
	for _, part := range []string{bucket, key, version} {
		h.uint64(uint64(len(part)))
		h.Write([]byte(part))
	}
	c := h.Sum()
	return encodeRun(c[:16])
}

// ChildRun returns the id of a child that was requested of a run at a time, in
// milliseconds, with that selection of items: a repeated request names the same run.
func ChildRun(parent RunID, selection string, at int64) RunID {
	return UploadRun("retry", string(parent), selection+"@"+strconv.FormatInt(at, 10))
}

// encodeRun writes 128 bits as 26 base32 digits, most significant first, as a
// ULID does.
func encodeRun(b []byte) RunID {
	var out [26]byte
	var acc uint64
	bits := 2 // 26 digits have 130 bits: the first digit begins with two zeros
	n := 0
	for _, v := range b {
		acc = acc<<8 | uint64(v)
		bits += 8
		for bits >= 5 {
			bits -= 5
			out[n] = crockford[acc>>bits&31]
			n++
		}
	}
	return RunID(out[:])
}

// ShardKey returns the key of a shard's document: shard/<8 hex>-<run>-<n>. The hash
// comes first so that the keys spread over all partitions of a document store.
func ShardKey(run RunID, n int) string {
	tail := string(run) + "-" + strconv.Itoa(n)
	c := Content([]byte(tail))
	return "shard/" + c.String()[:8] + "-" + tail
}
