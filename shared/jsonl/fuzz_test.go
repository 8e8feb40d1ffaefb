package jsonl_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"testing/iotest"

	"rollout/shared/jsonl"
)

// FuzzScan scans a file as a whole, byte by byte, and in two ranges, and compares the
// lines with a split at line feeds.
func FuzzScan(f *testing.F) {
	for _, file := range []string{
		"", "a\nb", "\n\n", "\r\n \r\n", "\xEF\xBB\xBFa\r\nb\n", "a\u2028b\u2029\u0085c\n", "0123456789abcdef\nx\n",
	} {
		f.Add([]byte(file), 8, 3)
	}
	f.Fuzz(func(t *testing.T, file []byte, limit, at int) {
		if limit < 1 || limit > 1<<20 || at < 1 || at >= len(file) {
			limit, at = 8, 1
		}
		o := jsonl.Options{MaxLine: limit}
		whole := scan(t, bytes.NewReader(file), o)
		offset := 0
		for i, part := range bytes.SplitAfter(file, []byte("\n")) {
			if len(part) == 0 {
				break // after the last line feed
			}
			l := whole[i]
			if l.Offset != int64(offset) || l.Length != int64(len(part)) || l.Number != uint64(i+1) ||
				!l.TooLong && !bytes.Equal(l.Raw, part) {
				t.Fatalf("line %d of %q is %+v, want %q at %d", i, file, l, part, offset)
			}
			content := bytes.TrimPrefix(part, []byte("\xEF\xBB\xBF"))
			if l.TooLong && len(content) <= limit || !l.TooLong && len(l.Bytes) > limit {
				t.Fatalf("line %q is too long for %d: %v", part, limit, l.TooLong)
			}
			if !l.TooLong && l.Blank != (len(bytes.Trim(l.Bytes, " \t\r")) == 0) {
				t.Fatalf("line %q is blank: %v", part, l.Blank)
			}
			offset += len(part)
		}
		if offset != len(file) {
			t.Fatalf("the lines hold %d bytes of %d", offset, len(file))
		}
		first, second := o, o
		first.Limit = int64(at)
		second.Offset, second.SkipPartial = int64(at-1), true
		rest := file[min(at, len(file))-min(1, len(file)):]
		for name, again := range map[string][]jsonl.Line{
			"byte by byte": scan(t, iotest.OneByteReader(bytes.NewReader(file)), o),
			"in two ranges": append(scan(t, bytes.NewReader(file), first),
				scan(t, bytes.NewReader(rest), second)...),
		} {
			if len(file) > 1 && show(again) != show(whole) {
				t.Fatalf("%s, %q has the lines %q, want %q", name, file, show(again), show(whole))
			}
		}
		if err := jsonl.Sniff(file); err != nil && json.Valid(file) {
			t.Fatalf("%q is JSON and is rejected: %v", file, err)
		}
	})
}

// FuzzObject reads the members of a text that may be an object, and compares the result
// with encoding/json.
func FuzzObject(f *testing.F) {
	for _, v := range []string{
		`{}`, ` { "a" : [ 1 , 2 ] , "a":"\ud800" } `, `{"a":{"b":{}},"\u0061":1e5}`, `{"a":1,}`, `{"a":1}x`, `[1]`,
		`{"a":[[[`,
	} {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o := jsonl.ReadObject(b)
		var members []jsonl.Member
		for m, ok := o.Next(); ok; m, ok = o.Next() {
			if !json.Valid(m.RawName) || !json.Valid(m.Value) {
				t.Fatalf("%q has the member %q: %q", b, m.RawName, m.Value)
			}
			members = append(members, m)
		}
		isObject := json.Valid(b) && bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{"))
		if o.Err() == nil != isObject {
			if o.Err() != nil && bytes.Contains([]byte(o.Err().Error()), []byte("nest deeper")) {
				return
			}
			t.Fatalf("%q: %v, encoding/json says %v", b, o.Err(), isObject)
		}
		if o.Err() != nil {
			return
		}
		again := []byte{'{'}
		for i, m := range members {
			if i > 0 {
				again = append(again, ',')
			}
			again = append(append(append(again, m.RawName...), ':'), m.Value...)
			if m.Value[0] == '[' {
				a := jsonl.ReadKnownArray(m.Value)
				for e, ok := a.Next(); ok; e, ok = a.Next() {
					if !json.Valid(e) {
						t.Fatalf("%q has the element %q", m.Value, e)
					}
				}
				if a.Err() != nil {
					t.Fatalf("%q: %v", m.Value, a.Err())
				}
			}
		}
		if again = append(again, '}'); !bytes.Equal(jsonl.Compact(nil, again), jsonl.Compact(nil, b)) {
			t.Fatalf("%q is written back as %q", b, again)
		}
	})
}
