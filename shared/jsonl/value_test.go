package jsonl_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

var values = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `-1.5e+10`, `1e400`, `true`, `false`, `null`, ` { "a" : [ 1 , {"b":null} ] } `,
	`"\u00e9\ud83d\ude00\ud800\n\/"`, "\"\u2028\"", `9007199254740993`, `{"a":1,"a":2}`, `{"\u0061":[[[]]]}`,
	``, ` `, `{`, `[`, `"`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `[1,]`, `[1`, `{a:1}`, `'a'`,
	`01`, `1.`, `.5`, `+1`, `1e`, `-`, `0x1`, `tru`, `nulL`, `NaN`, `Infinity`, `"\x"`, `"\u12"`, `"\u12g4"`,
	"\"\t\"", "\"\x01\"", `{} {}`, `1 2`, `{"a":1}}`, `[1]]`, `{"a" 1}`, `{1:1}`, `[1 2]`,
	"\"0123456\x00\"", `"0123456789abcdef\"`, `"01234567\\"`, "{\"a\":\x0b1}", "\xEF\xBB\xBF1",
}

func TestCheckAgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, v := range values {
		if got, want := jsonl.Check([]byte(v)) == nil, json.Valid([]byte(v)); got != want {
			t.Errorf("Check(%q): valid %v, want %v", v, got, want)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]bool{200: true, 201: false, 1_000_000: false} {
		err := jsonl.Check([]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)))
		if (err == nil) != want {
			t.Errorf("depth %d: %v", depth, err)
		}
		err = jsonl.Check([]byte(strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)))
		if (err == nil) != want {
			t.Errorf("depth %d of objects: %v", depth, err)
		}
	}
}

func TestErrorsNameTheOffset(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]string{
		`{"a":1,}`:     "byte 7: '}' where a name in quotes should be",
		`{"a" 1}`:      "byte 5: '1' where ':' should be",
		"\ufeff{}":     `byte 0: '\ufeff' where a value should be`, // a byte order mark in the middle of a file
		"é":            "byte 0: 'é' where a value should be",
		`["a"`:         "byte 4: the text ends where ',' or ']' should be",
		`"abc`:         "byte 4: the text ends inside a string",
		"\"a\tb\"":     "byte 2: control character 0x09 inside a string; write it as an escape",
		`{"a":1} null`: "byte 8: 'n' where the end should be",
	} {
		err := jsonl.Check([]byte(v))
		if err == nil || err.Error() != want || !fault.Is(err, fault.Invalid) {
			t.Errorf("Check(%q) = %v, want %q", v, err, want)
		}
	}
}

func TestObjectReturnsTheMembersBeforeAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{` { "a" : 1 , "b":[ ] } `, `a=1 b=[ ] `},
		{`{}`, ``},
		{`{"\u0061b":"x"}`, `ab="x" `},
		{`{"a":1,"a":2}`, `a=1 a=2 `},
		{`{"a":1,"b":tru}`, `a=1 !`},
		{`{"a":1 "b":2}`, `a=1 !`},
		{`{"a":1} x`, `a=1 !`},
		{`{"a":1`, `a=1 !`},
		{`[1]`, `!`},
		{``, `!`},
	} {
		var got strings.Builder
		o := jsonl.ReadObject([]byte(c.in))
		for m, ok := o.Next(); ok; m, ok = o.Next() {
			got.WriteString(string(m.Name) + "=" + string(m.Value) + " ")
		}
		if o.Err() != nil {
			got.WriteByte('!')
		}
		if got.String() != c.want {
			t.Errorf("%s: %q, want %q", c.in, got.String(), c.want)
		}
	}
}

func TestArrayReturnsTheElementsBeforeAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{` [ 1 , "a",[ ] ] `, `1 "a" [ ] `},
		{`[]`, ``},
		{`[1,tru]`, `1 !`},
		{`[1 2]`, `1 !`},
		{`[1`, `1 !`},
		{`[1,]`, `1 !`},
		{`[1] x`, `1 !`},
		{`{}`, `!`},
		{``, `!`},
	} {
		var got strings.Builder
		a := jsonl.ReadKnownArray([]byte(c.in))
		for e, ok := a.Next(); ok; e, ok = a.Next() {
			got.WriteString(string(e) + " ")
		}
		if a.Err() != nil {
			got.WriteByte('!')
		}
		if got.String() != c.want {
			t.Errorf("%s: %q, want %q", c.in, got.String(), c.want)
		}
	}
}

func TestC05CompactRemovesOnlyWhiteSpace(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		` { "id" : 9007199254740993 , "x":[ 1e400 , -0 , 1.0 ] } `: `{"id":9007199254740993,"x":[1e400,-0,1.0]}`,
		"{\"a\":\t\"b  c\\u0041\\ud800 \",\r\n\"a\":\"\u2028\"}":   "{\"a\":\"b  c\\u0041\\ud800 \",\"a\":\"\u2028\"}",
		`1`:                     `1`,
		`"unclosed " string " `: `"unclosed "string" `,
	} {
		if got := jsonl.Compact([]byte("x"), []byte(in)); string(got) != "x"+want {
			t.Errorf("Compact(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUnquoteAndAppendQuotedAreInverse(t *testing.T) {
	t.Parallel()
	for raw, text := range map[string]string{
		`"plain"`:              "plain",
		`"\"\\\/\b\f\n\r\t"`:   "\"\\/\b\f\n\r\t",
		`"\u00e9\ud83d\ude00"`: "é😀",
		`"\ud800x"`:            "\xED\xA0\x80x",
		`"\ude00\ud83d"`:       "\xED\xB8\x80\xED\xA0\xBD",
		`"\ud83d\u0041"`:       "\xED\xA0\xBDA",
	} {
		got, ok := jsonl.Unquote(nil, []byte(raw))
		if !ok || string(got) != text {
			t.Errorf("Unquote(%s) = %q, %v", raw, got, ok)
		}
		again, ok := jsonl.Unquote(nil, jsonl.AppendQuoted(nil, string(got)))
		if !ok || !bytes.Equal(again, got) {
			t.Errorf("AppendQuoted(%q) is not read back unchanged", got)
		}
	}
	for _, raw := range []string{``, `"`, `a`, `"a`, `"a"b`, `1`, `"\x"`} {
		if got, ok := jsonl.Unquote(nil, []byte(raw)); ok {
			t.Errorf("Unquote(%s) = %q", raw, got)
		}
	}
}

func TestC03StringsStayOnOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\nb\r\tc\"\\":            `"a\nb\r\tc\"\\"`,
		"\u2028\u2029\u0085\x00\v": `"\u2028\u2029\u0085\u0000\u000b"`,
		"é日😀\x7f":                  "\"é日😀\x7f\"",
		"a\xffb\xED\xA0\x80":       "\"a\uFFFDb\uFFFD\uFFFD\uFFFD\"",
	} {
		if got := jsonl.AppendString(nil, in); string(got) != want {
			t.Errorf("AppendString(%q) = %s, want %s", in, got, want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := jsonl.Check(b)
		if valid := json.Valid(b); (err == nil) != valid && !(valid && strings.Contains(err.Error(), "nest deeper")) {
			t.Fatalf("Check(%q) = %v, encoding/json says %v", b, err, valid)
		}
		compact := jsonl.Compact(nil, b)
		if err != nil {
			return
		}
		var want bytes.Buffer
		if json.Compact(&want, b); !bytes.Equal(compact, want.Bytes()) {
			t.Fatalf("Compact(%q) = %q, encoding/json says %q", b, compact, want.Bytes())
		}
		for _, read := range []func([]byte) jsonl.Object{jsonl.ReadObject, jsonl.ReadKnownObject} {
			o := read(append(append([]byte("{\"a\":"), b...), '}'))
			m, ok := o.Next()
			_, more := o.Next()
			if !ok || more || o.Err() != nil || !bytes.Equal(m.Value, bytes.Trim(b, " \t\r\n")) ||
				m.Compact != bytes.Equal(m.Value, compact) {
				t.Fatalf("%q as a member is %q, compact %v, %v", b, m.Value, m.Compact, o.Err())
			}
		}
	})
}

func FuzzUnquote(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(v))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, ok := jsonl.Unquote(nil, b)
		var want string
		valid := json.Unmarshal(b, &want) == nil && len(b) > 0 && b[0] == '"' && b[len(b)-1] == '"'
		if ok != valid {
			t.Fatalf("Unquote(%q): %v, encoding/json says %v", b, ok, valid)
		}
		if ok && utf8.Valid(got) && string(got) != want {
			t.Fatalf("Unquote(%q) = %q, encoding/json says %q", b, got, want)
		}
		if utf8.Valid(b) && ok {
			if again, _ := jsonl.Unquote(nil, jsonl.AppendQuoted(nil, string(got))); !bytes.Equal(again, got) {
				t.Fatalf("%q is read back as %q", got, again)
			}
		}
		quoted := jsonl.AppendString(nil, string(b))
		if !json.Valid(quoted) || bytes.ContainsAny(quoted, "\n\r\u0085\u2028\u2029") {
			t.Fatalf("AppendString(%q) = %q", b, quoted)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	prompt := strings.Repeat("the quick brown fox jumps over it ", 33)
	line := []byte(`{"id":"row-000001","prompt":"` + prompt + `","meta":{"n":1}}`)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if err := jsonl.Check(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over it ", 33)
	dst := make([]byte, 0, 2048)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		dst = jsonl.AppendString(dst[:0], text)
	}
}
