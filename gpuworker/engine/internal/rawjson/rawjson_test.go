package rawjson_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine/internal/rawjson"
)

// walk returns an object's members or an array's elements.
func walk(text string) (items []string, err error) {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		err = rawjson.Elements([]byte(text), func(v []byte) error { items = append(items, string(v)); return nil })
		return items, err
	}
	err = rawjson.Members([]byte(text), func(n, v []byte) error {
		items = append(items, string(n)+"="+string(v))
		return nil
	})
	return items, err
}

func TestValuesAreReturnedAsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		`{}`: nil, ` [ ] `: nil,
		`{"a":1.50,"b" : {"c":[1,"]}"]} , "d":"\"}\\", "e":NaN}`: {`a=1.50`, `b={"c":[1,"]}"]}`, `d="\"}\\"`, `e=NaN`},
		`[null,-Infinity,[[]],"\\",""]`:                          {`null`, `-Infinity`, `[[]]`, `"\\"`, `""`},
		`{"\u0061":true,"":false}`:                               {`\u0061=true`, `=false`},
		"{\"\u2028\xff\":\"\u0085\"}":                            {"\u2028\xff=\"\u0085\""},
	} {
		got, err := walk(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
}

func TestNextSplitsValuesOfOneText(t *testing.T) {
	t.Parallel()
	rest := []byte(" {\"a\":[1]}\n[DONE] \"x\" 5\t")
	for _, want := range []string{`{"a":[1]}`, `[DONE]`, `"x"`, `5`, ``, ``} {
		var got []byte
		var err error
		if got, rest, err = rawjson.Next(rest); err != nil || string(got) != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
	}
	for _, text := range []string{`{"a":1`, `"x`, `[`} {
		if _, _, err := rawjson.Next([]byte(text)); !errors.Is(err, rawjson.ErrTruncated) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, _, err := rawjson.Next([]byte(`}`)); !errors.Is(err, rawjson.ErrMalformed) {
		t.Errorf("a closing brace: %v", err)
	}
}

func TestUnclosedOrUnseparatedTextIsError(t *testing.T) {
	t.Parallel()
	truncated := []string{``, `{`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":{"b":"}`, `[1`, `["\"`, `[[[`}
	malformed := []string{`5`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":1,}`, `{a:1}`, `[1,]`, `[,1]`, `[1 2]`, `[]]`, `{}{}`,
		`[1}`, `{"a":}`, "{}\x00"}
	for want, texts := range map[error][]string{rawjson.ErrTruncated: truncated, rawjson.ErrMalformed: malformed} {
		for _, text := range texts {
			if got, err := walk(text); !errors.Is(err, want) {
				t.Errorf("%s: %v, %v; want %v", text, got, err, want)
			}
		}
	}
	stop := errors.New("enough")
	if err := rawjson.Elements([]byte(`[1,2]`), func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the caller's error became %v", err)
	}
}

func TestAppendTextReturnsValidUTF8(t *testing.T) {
	t.Parallel()
	for quoted, want := range map[string]string{
		`""`: "", `"a b"`: "a b", `"\u0000\n\"\\\/"`: "\x00\n\"\\/", `"\ud83d\ude00"`: "😀", `"\ud83d"`: "\uFFFD",
		`"\ude00x"`:    "\uFFFDx",
		"\"\xff\xfe\"": "\uFFFD\uFFFD", "\"\u2028\"": "\u2028",
	} {
		got, err := rawjson.AppendText([]byte("> "), []byte(quoted))
		if string(got) != "> "+want || err != nil {
			t.Errorf("%s: %q, %v", quoted, got, err)
		}
	}
	for _, bad := range []string{``, `"`, `5`, `null`, `"\x"`, `"\u12"`, "\"a\nb\"", "\"\xff\\x\"", `"a"b"`} {
		if got, err := rawjson.AppendText([]byte("> "), []byte(bad)); !errors.Is(err, rawjson.ErrMalformed) ||
			string(got) != "> " {
			t.Errorf("%q: %q, %v", bad, got, err)
		}
	}
}

// FuzzWalking compares the walk with the standard library: it accepts what the
// library accepts and returns the same values.
func FuzzWalking(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"\"}"}],"c":null}`, `["\ud83d",1e5,true]`, `{"a":1,}`, `[[[`,
		"{\"\xff\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		items, err := walk(string(text))
		var array []json.RawMessage
		if json.Unmarshal(text, &array) == nil && array != nil {
			want := fmt.Sprintf("%s", array)
			if err != nil || len(items) != len(array) || strings.Join(items, " ") != want[1:len(want)-1] {
				t.Errorf("%s: %q, %v; want %s", text, items, err, want)
			}
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(text, &object) == nil && object != nil && (err != nil || len(items) < len(object)) {
			t.Errorf("%s: %q, %v", text, items, err)
		}
		if out, err := rawjson.AppendText(nil, text); err == nil && !utf8.Valid(out) {
			t.Errorf("%q gives %q", text, out)
		}
	})
}
