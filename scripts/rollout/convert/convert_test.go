package convert_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"rollout/scripts/rollout/convert"
	"rollout/shared/fault"
)

// run converts content, in a file of that name, to the other name in the same folder, and returns what it wrote.
func run(t *testing.T, in, content, out string, o convert.Options) (string, convert.Summary, error) {
	t.Helper()
	folder := t.TempDir()
	o.In, o.Out = filepath.Join(folder, in), filepath.Join(folder, out)
	if err := os.WriteFile(o.In, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := start(t.Context(), o)
	if err != nil {
		return "", s, err
	}
	b, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), s, nil
}

func start(ctx context.Context, o convert.Options) (convert.Summary, error) {
	o.OnStart, o.OnRead = func(int64) {}, func(int) {}
	return convert.Convert(ctx, o)
}

func TestJSONAndCSVAreConverted(t *testing.T) {
	t.Parallel()
	bom := "\xEF\xBB\xBF"
	for name, c := range map[string]struct {
		in, content, out, want string
		o                      convert.Options
	}{
		"an array on one line": {in: "a.json", content: `[{"a":1},{"a":2}]`, out: "a.jsonl", want: "{\"a\":1}\n{\"a\":2}\n"},
		"a pretty-printed array": {in: "a.json", content: "[\n  {\n    \"a\": [1, 2]\n  },\r\n  {}\n]\n", out: "a.jsonl",
			want: "{\"a\":[1,2]}\n{}\n"},
		"pretty-printed objects": {in: "a.ndjson", content: "{\n \"a\": 1\n}\n{\"a\": 2} {\"a\":3}\n", out: "a.jsonl",
			want: "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n"},
		"arrays and objects": {in: "a.jsonl", content: bom + "\n[{\"a\":1}][]\n{\"a\":2}", out: "b.jsonl",
			want: "{\"a\":1}\n{\"a\":2}\n"},
		"an empty array": {in: "a.json", content: " [ ] ", out: "a.jsonl", want: ""},
		"an empty file":  {in: "a.json", content: "", out: "a.jsonl", want: ""},
		"numbers, escapes and repeated names stay": {in: "a.json", out: "a.jsonl",
			content: `[{"n":9007199254740993, "x":1e400,"x":-0, "s":"\ud800\u00e4/\/"}]`,
			want:    `{"n":9007199254740993,"x":1e400,"x":-0,"s":"\ud800\u00e4/\/"}` + "\n"},
		"raw line separators in strings": {in: "a.json", content: "[{\"a\":\"x\u2028y\u0085\"}]", out: "a.jsonl",
			want: "{\"a\":\"x\u2028y\u0085\"}\n"},
		"columns": {in: "a.json", content: `[{"q":"x","id":1,"z":2},{"id":2}]`, out: "a.jsonl",
			want: `{"prompt":"x","id":1}` + "\n" + `{"id":2}` + "\n", o: convert.Options{Columns: []string{"prompt=q", "id"}}},

		"CSV": {in: "a.csv", content: "id,prompt\n007,\"a \"\"b\"\",\nc\"\n1,\n", out: "a.jsonl",
			want: `{"id":"007","prompt":"a \"b\",\nc"}` + "\n" + `{"id":"1","prompt":""}` + "\n"},
		"CSV with CRLF, mark and empty lines": {in: "a.csv", content: bom + "a,b\r\n1,\"x\r\ny\"\r\n\r\n2,z\r\n",
			out:  "a.jsonl",
			want: `{"a":"1","b":"x\ny"}` + "\n" + `{"a":"2","b":"z"}` + "\n"},
		"CSV with semicolons": {in: "a.csv", content: "a;b\n1,5;2\n", out: "a.jsonl", want: `{"a":"1,5","b":"2"}` + "\n"},
		"TSV":                 {in: "a.tsv", content: "a\tb\n1,5\t2\n", out: "a.jsonl", want: `{"a":"1,5","b":"2"}` + "\n"},
		"CSV with short rows and empty extra fields": {in: "a.csv", content: "a,b\n1\n2,3,,\n", out: "a.jsonl",
			want: `{"a":"1"}` + "\n" + `{"a":"2","b":"3"}` + "\n"},
		"CSV of pandas with its index": {in: "a.csv", content: ",a\n0,x\n", out: "a.jsonl",
			want: `{"column_1":"0","a":"x"}` + "\n"},
		"CSV with types": {in: "a.csv", content: "n,b,j,s\n1.50,TRUE,\"[1, 2]\",3\n,,,\n", out: "a.jsonl",
			want: `{"n":1.50,"b":true,"j":[1,2],"s":"3"}` + "\n" + `{"n":null,"b":null,"j":null,"s":""}` + "\n",
			o:    convert.Options{Types: []string{"n=number", "b=bool", "j=json"}}},
		"CSV with types that are found": {in: "a.csv", content: "n,z,b,j,s\n1,007,true,{},1\n2,1,false,\"[1]\",x\n",
			out:  "a.jsonl",
			want: `{"n":1,"z":"007","b":true,"j":{},"s":"1"}` + "\n" + `{"n":2,"z":"1","b":false,"j":[1],"s":"x"}` + "\n",
			o:    convert.Options{Types: []string{"auto"}}},
		"CSV columns": {in: "a.csv", content: "a,b,c\n1,2,3\n", out: "b.csv", want: "x,a\n3,1\n",
			o: convert.Options{Columns: []string{"x=c", "a"}}},
		"a CSV header alone": {in: "a.csv", content: "a,b\n", out: "b.csv", want: "a,b\n"},

		"to CSV": {in: "a.jsonl", out: "a.csv",
			content: `{"a":"x, \"y\"","n":1e400,"l":[1,"z"]}` + "\n" + `{"b":null,"a":"1\n2","o":{"k":true}}` + "\n",
			want:    "a,n,l,b,o\n\"x, \"\"y\"\"\",1e400,\"[1,\"\"z\"\"]\",,\n\"1\n2\",,,,\"{\"\"k\"\":true}\"\n"},
		"empty cells of a single column": {in: "a.jsonl", content: "{\"a\":\"\"}\n{}\n{\"a\":\"x\"}\n", out: "a.csv",
			want: "a\n\"\"\n\"\"\nx\n"},
		"to TSV by flag": {in: "a.jsonl", content: `{"a":"1,2","b":3}`, out: "a.txt", want: "a\tb\n1,2\t3\n",
			o: convert.Options{To: "tsv"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, err := run(t, c.in, c.content, c.out, c.o)
			if err != nil || got != c.want {
				t.Errorf("got %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

func TestErrorsNameThePlaceAndTheRemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, content, out string
		o                convert.Options
		want             []string
	}{
		"JSON with a mistake": {in: "a.json", content: "[{\"a\":1},\n {\"b\":2,}]",
			want: []string{"a.json: line 2, column 9"}},
		"JSON that is cut": {in: "a.json", content: "[{\"a\":1},\n\n  {\"b\":",
			want: []string{"line 3, column 3", "cut short"}},
		"an array of texts": {in: "a.json", content: "[\n\"x\"]", want: []string{"line 2", `"x" is not an object`}},
		"invalid UTF-8": {in: "a.json", content: "[{\"a\":1},\n{\"a\":\"\xff\"}]",
			want: []string{"line 2", "not valid UTF-8"}},
		"UTF-16":             {in: "a.csv", content: "\xff\xfea\x00", want: []string{"UTF-16LE", "iconv"}},
		"CSV named JSON":     {in: "a.jsonl", content: "a,b\n1,2\n", out: "b.jsonl", want: []string{"--from csv"}},
		"JSON named CSV":     {in: "a.csv", content: `{"a":1}`, want: []string{"--from json"}},
		"Parquet named CSV":  {in: "a.csv", content: "PAR1....", want: []string{"--from parquet"}},
		"text named Parquet": {in: "a.parquet", content: "a,b\n1,2\n", want: []string{"a.parquet", "Parquet file"}},
		"a CSV row with too many fields": {in: "a.csv", content: "a,b\n1,2\n1,2,3\n",
			want: []string{"line 3, character 5", "has 3 fields, the header has 2"}},
		"CSV with an open quote": {in: "a.csv", content: "a\nx\n\"y\n", want: []string{"line 3", "quote"}},
		"a repeated CSV column": {in: "a.csv", content: "a,b,a\n",
			want: []string{"line 1", `names "a" in the columns 1 and 3`}},
		"a CSV cell of another type": {in: "a.csv", content: "a,n\nx,1\ny,two\n",
			o:    convert.Options{Types: []string{"n=number"}},
			want: []string{"line 3, character 3, column n", `"two" is not of type number`}},
		"half of a surrogate pair in CSV": {in: "a.jsonl", content: "{}\n{\"a\":\"\\ud800\"}", out: "a.csv",
			want: []string{"line 2", "column a", "surrogate"}},
		"a repeated member in CSV": {in: "a.jsonl", content: "{\"a\":1,\n\"a\":2}", out: "a.csv",
			want: []string{"line 1", `"a" twice`}},
		"no columns in Parquet": {in: "a.jsonl", content: "", out: "a.parquet", want: []string{"no columns"}},
		"a column that is missing": {in: "a.csv", content: "a,b\n", o: convert.Options{Columns: []string{"c"}},
			want: []string{"no column c", "a, b"}},
		"a type of a missing column": {in: "a.csv", content: "a,b\n", o: convert.Options{Types: []string{"c=json"}},
			want: []string{"column c", "a, b"}},
		"an unknown type": {in: "a.csv", o: convert.Options{Types: []string{"a=int"}},
			want: []string{`"a=int"`, "number"}},
		"types of JSON": {in: "a.json", o: convert.Options{Types: []string{"auto"}},
			want: []string{"--types is for CSV"}},
		"a column twice": {in: "a.csv", o: convert.Options{Columns: []string{"a", "a=b"}},
			want: []string{"column a twice"}},
		"an unknown input name":  {in: "a.txt", want: []string{"a.txt", "--from"}},
		"an unknown output name": {in: "a.csv", out: "a.txt", want: []string{"a.txt", "--to"}},
		"an unknown format":      {in: "a.csv", o: convert.Options{From: "xml"}, want: []string{`"xml"`, "--from"}},
		"JSON as output":         {in: "a.csv", out: "a.json", want: []string{`"json" cannot be written`, "jsonl"}},
		"many CSV fields": {in: "a.csv", content: "a,b\n1,2\n" + strings.Repeat(",", 1<<20),
			want: []string{"after line 2", "more than 262144 fields"}},
		"CSV of carriage returns": {in: "a.csv", content: "a,b\r1,2\r", want: []string{"carriage return"}},
		"deep nesting": {in: "a.json", want: []string{"line 2", "flatter"},
			content: "{}\n" + `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}"},
		"deep nesting in a column": {in: "a.json", want: []string{"line 1", "flatter"},
			content: `{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}",
			o:       convert.Options{Columns: []string{"b=a"}}},
		"many columns of a CSV": {in: "a.csv", content: "a" + strings.Repeat(",", 5000), out: "a.parquet",
			want: []string{"more than 4096 different columns"}},
		"packed Parquet": {in: "a.csv", out: "a.parquet.gz", want: []string{"packs it again"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.out == "" {
				c.out = "out.jsonl"
			}
			_, _, err := run(t, c.in, c.content, c.out, c.o)
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("got %v, want an Invalid error", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestOutputIsCompleteOrMissing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in, out := filepath.Join(folder, "a.json"), filepath.Join(folder, "b.jsonl")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(in, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := func(want ...string) {
		t.Helper()
		entries, err := os.ReadDir(folder)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
			t.Fatalf("the folder has %v (%v), want %v", names, err, want)
		}
	}
	write(`[{"a":1}, 2]`)
	if _, err := start(t.Context(), convert.Options{In: in, Out: out}); err == nil {
		t.Error("an invalid file was converted")
	}
	files("a.json")
	write(`[{"a":1}]`)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := start(canceled, convert.Options{In: in, Out: out}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v of a canceled conversion", err)
	}
	files("a.json")
	if _, err := start(t.Context(), convert.Options{In: in, Out: out}); err != nil {
		t.Error(err)
	}
	files("a.json", "b.jsonl")
	write(`[{"a":2}]`)
	if _, err := start(t.Context(), convert.Options{In: in, Out: out}); err == nil ||
		!strings.Contains(err.Error(), "--force") {
		t.Errorf("got %v, want that the file exists", err)
	}
	if _, err := start(t.Context(), convert.Options{In: in, Out: out, Force: true}); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "{\"a\":2}\n" {
		t.Errorf("the file has %q (%v)", b, err)
	}
	inPlace := convert.Options{In: out, Out: out, Force: true, Columns: []string{"b=a"}}
	if _, err := start(t.Context(), inPlace); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(out); err != nil || string(b) != "{\"b\":2}\n" {
		t.Errorf("the file that was converted in place has %q (%v)", b, err)
	}
}

func TestStreamsAndPackedFilesAreConverted(t *testing.T) {
	t.Parallel()
	const records, lines = `[{"a":1},{"a":2}]`, "{\"a\":1}\n{\"a\":2}\n"
	var gz, zst bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		_, err := io.WriteString(w, records)
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"plain": []byte(records), "gzip": gz.Bytes(), "zstd": zst.Bytes()} {
		var out bytes.Buffer
		if _, err := start(t.Context(), convert.Options{In: "-", Out: "-",
			Stdin: bytes.NewReader(content), Stdout: &out}); err != nil ||
			out.String() != lines {
			t.Errorf("%s from standard input gave %q (%v)", name, &out, err)
		}
		out.Reset() // two passes over what can be read once
		if _, err := start(t.Context(), convert.Options{In: "-", Out: "-", To: "csv",
			Stdin: bytes.NewReader(content), Stdout: &out}); err != nil ||
			out.String() != "a\n1\n2\n" {
			t.Errorf("%s from standard input gave the CSV %q (%v)", name, &out, err)
		}
	}
	for _, ext := range []string{".gz", ".zst"} {
		folder := t.TempDir()
		packed, back := filepath.Join(folder, "a.jsonl"+ext), filepath.Join(folder, "b.jsonl")
		_, err := start(t.Context(), convert.Options{In: "-", Out: packed, Stdin: strings.NewReader(records)})
		if err == nil {
			_, err = start(t.Context(), convert.Options{In: packed, Out: back})
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(back); err != nil || string(b) != lines {
			t.Errorf("packed as %s and unpacked: %q (%v)", ext, b, err)
		}
	}
}

// endless repeats a text after a beginning.
type endless struct {
	begin, again string
	read         atomic.Int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.begin)
	e.begin = e.begin[n:]
	if n == 0 {
		n = copy(p, e.again)
		e.begin = e.again[n:]
	}
	e.read.Add(int64(n))
	return n, nil
}

func TestEndlessRecordsAreNotReadIntoMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   *endless
		from string
		want string
	}{
		"a JSON text": {&endless{begin: `[{"a":1},{"a":"`,
			again: strings.Repeat("x", 1<<16)}, "json", "one JSON value"},
		"an array that is a member": {&endless{begin: `{"data":[`,
			again: strings.Repeat(`{"a":1},`, 1<<12)}, "json", "jq"},
		"a CSV quote that is not closed": {&endless{begin: "a,b\n1,\"",
			again: strings.Repeat("1,2\n", 1<<12)}, "csv", "quote"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := start(
				t.Context(),
				convert.Options{In: "-", From: c.from, Out: "-", Stdin: c.in, Stdout: io.Discard},
			)
			if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) || c.in.read.Load() > 70<<20 {
				t.Errorf("after %d bytes: %v", c.in.read.Load(), err)
			}
		})
	}
}

func TestConversionOfAnIdleStreamCanBeInterrupted(t *testing.T) {
	t.Parallel()
	idle, other := io.Pipe()
	t.Cleanup(func() { _ = other.Close() })       // never fails
	for _, to := range []string{"jsonl", "csv"} { // which reads it twice
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := start(ctx, convert.Options{In: "-", From: "json", Out: "-", To: to, Stdin: idle, Stdout: io.Discard})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("to %s: %v", to, err)
		}
	}
}

func TestWhatIsNoFileIsNotReplaced(t *testing.T) {
	t.Parallel()
	link := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{os.DevNull, link} {
		_, err := start(t.Context(), convert.Options{In: "testdata/old.parquet", Out: out, To: "jsonl", Force: true})
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", out, err)
		}
	}
}
