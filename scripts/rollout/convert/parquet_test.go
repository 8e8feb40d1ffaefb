package convert_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/scripts/rollout/convert"
)

// The files of testdata were written by pyarrow: types.parquet has a column of each type that it can write, with a null
// in each; old.parquet the types of old writers.
func TestParquetOfOtherWritersIsRead(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"types", "old", "empty"} {
		out := filepath.Join(t.TempDir(), name+".jsonl")
		s, err := start(t.Context(), convert.Options{In: "testdata/" + name + ".parquet", Out: out})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/" + name + ".jsonl")
		if err != nil || string(got) != string(want) {
			t.Errorf("%s.parquet gives\n%s(%v), want\n%s", name, got, err, want)
		}
		if wantLost := map[string]uint64{"types": 1}[name]; s.NotNumbers != wantLost {
			t.Errorf("%d numbers of %s were lost, want %d", s.NotNumbers, name, wantLost)
		}
	}
}

func TestParquetColumnsAreSelected(t *testing.T) {
	t.Parallel()
	convertBinary := func(columns ...string) (string, error) {
		out := filepath.Join(t.TempDir(), "x.jsonl")
		_, err := start(t.Context(), convert.Options{In: "testdata/binary.parquet", Out: out, Columns: columns})
		b, _ := os.ReadFile(out) // missing after an error
		return string(b), err
	}
	_, err := convertBinary()
	if err == nil || !strings.Contains(err.Error(), "row 1, column image") ||
		!strings.Contains(err.Error(), "--columns") {
		t.Errorf("got %v, want the row and the column that is not text", err)
	}
	if got, err := convertBinary("p=prompt"); err != nil || got != "{\"p\":\"p\"}\n" {
		t.Errorf("got %q (%v)", got, err)
	}
	if _, err := convertBinary("q"); err == nil || !strings.Contains(err.Error(), "image, prompt") {
		t.Errorf("got %v, want the columns that there are", err)
	}
}

func TestDamagedParquetIsRefused(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("testdata/types.parquet")
	if err != nil {
		t.Fatal(err)
	}
	cut := func(n int) string { return string(whole[:len(whole)-n]) }
	for name, content := range map[string]string{"empty": "", "cut": cut(100), "without its end": cut(8)} {
		if _, _, err := run(t, "a.parquet", content, "a.jsonl", convert.Options{}); err == nil ||
			!strings.Contains(err.Error(), "a.parquet") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := 0; i < len(whole); i += 97 { // changed anywhere, it is read or refused
		changed := slices.Clone(whole)
		changed[i] ^= 0x55
		_, _, _ = run(t, "a.parquet", string(changed), "a.jsonl", convert.Options{})
	}
}

// viaParquet converts JSON lines to Parquet and back.
func viaParquet(t interface {
	Context() context.Context
	Helper()
	Fatal(...any)
}, folder, lines string) string {
	t.Helper()
	in, mid, out := filepath.Join(folder, "a.jsonl"), filepath.Join(folder, "a.parquet"), filepath.Join(folder, "b.jsonl")
	if err := os.WriteFile(in, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t.Context(), convert.Options{In: in, Out: mid, Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t.Context(), convert.Options{In: mid, Out: out, Force: true}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestParquetKeepsShapesAndDigits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"types": {`{"t":"x","n":1,"f":1.5,"b":true,"l":[1,2],"o":{"k":"v"},"null":null}`, ""},
		"a missing member is null": {`{"a":1}` + "\n" + `{"b":"x"}`,
			`{"a":1,"b":null}` + "\n" + `{"a":null,"b":"x"}`},
		"integers of 64 bits": {`{"a":9007199254740993}` + "\n" + `{"a":-9223372036854775808}`, ""},
		"larger integers":     {`{"a":1}` + "\n" + `{"a":123456789012345678901234567890}`, ""},
		"integers and fractions": {`{"a":1}` + "\n" + `{"a":2.5}`,
			`{"a":1.0}` + "\n" + `{"a":2.5}`},
		"a large integer and a fraction": {`{"a":9007199254740993}` + "\n" + `{"a":2.5}`, ""},
		"digits that no float has":       {`{"a":0.12345678901234567890}` + "\n" + `{"a":1e400}`, ""},
		"a float's own digits":           {`{"a":0.1}` + "\n" + `{"a":1e+30}`, ""},
		"negative zeros":                 {`{"a":-0}` + "\n" + `{"a":-0.0}`, ""},
		"values of several types":        {`{"a":"x"}` + "\n" + `{"a":[1,{"b":null}]}` + "\n" + `{"a":true}`, ""},
		"objects of different shapes":    {`{"o":{"k":1}}` + "\n" + `{"o":{"z":"y"}}` + "\n" + `{"o":{}}`, ""},
		"chats": {`{"m":[{"role":"user","content":"a"},{"role":"x","content":null}]}` + "\n" +
			`{"m":[]}` + "\n" + `{"m":null}`, ""},
		"lists of lists":           {`{"a":[[1],[],null,[null,2]]}` + "\n" + `{"a":[]}` + "\n" + `{"a":[[]]}`, ""},
		"text":                     {`{"a":"\u0000\n\"ä😀"}`, ""},
		"columns keep their order": {`{"z":1,"a":{"y":1,"b":2},"m":3}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := c.want
			if want == "" {
				want = c.in
			}
			if got := viaParquet(t, t.TempDir(), c.in+"\n"); got != want+"\n" {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

// value draws a JSON value.
func value(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 3 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return json.Number(
			rapid.SampledFrom([]string{"0", "-1", "7", "9007199254740993", "18446744073709551616", "0.5",
				"-0.0", "1e3", "3.141592653589793238"}).Draw(t, "number"),
		)
	case 3, 4:
		return rapid.String().Draw(t, "text")
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, value(t, depth+1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")] = value(t, depth+1)
	}
	return object
}

// Whatever the values are, Parquet and back keeps them: numbers by value, and missing members as null.
func TestParquetRoundTripKeepsValues(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var lines []string
		var want []map[string]any
		columns := []string{"x", "y", "z"}
		for range rapid.IntRange(1, 8).Draw(t, "rows") {
			row := map[string]any{}
			for _, c := range columns {
				row[c] = value(t, 0)
			}
			b, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			lines, want = append(lines, string(b)), append(want, row)
		}
		got := viaParquet(t, folder, strings.Join(lines, "\n"))
		for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
			d := json.NewDecoder(strings.NewReader(line))
			d.UseNumber()
			var row map[string]any
			if err := d.Decode(&row); err != nil {
				t.Fatal(err)
			}
			if canonical(row) != canonical(want[i]) {
				t.Fatalf("row %d is %s, want %s", i, canonical(row), canonical(want[i]))
			}
		}
	})
}

// canonical writes a value so that equal numbers are written alike.
func canonical(v any) string {
	switch v := v.(type) {
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if !ok {
			return "not a number: " + v.String()
		}
		return r.String()
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = canonical(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		var parts []string
		for k, e := range v {
			parts = append(parts, fmt.Sprintf("%q:%s", k, canonical(e)))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case string:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}
