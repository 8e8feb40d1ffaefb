package facts_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"rollout/functions/finalize/facts"
	"rollout/shared/kind"
)

// written returns the file of those facts.
func written(t *testing.T, all []facts.Fact, graders []string, own []kind.Column) []byte {
	t.Helper()
	var b bytes.Buffer
	w := facts.NewWriter(&b, facts.Position{Part: 2}, graders, own)
	for _, f := range all {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// text is a row of the columns with texts of users.
type text struct {
	Item        uint64  `parquet:"item"`
	ID          *string `parquet:"id,optional"`
	Prompt      *string `parquet:"prompt,optional"`
	Completion  *string `parquet:"completion,optional"`
	Completions *string `parquet:"completions,optional"`
	Error       *string `parquet:"error,optional"`
}

func read[T any](t *testing.T, file []byte) []T {
	t.Helper()
	rows, err := parquet.Read[T](bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestAnyTextIsWritten(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"empty":             {"", ""},
		"NUL":               {"a\x00b", "a\x00b"},
		"not UTF-8":         {"a\xffb", "a\uFFFDb"},
		"a lone surrogate":  {"\xed\xa0\x80x", "\uFFFDx"},
		"beyond the plane":  {"\U0001F600", "\U0001F600"},
		"16 MiB":            {strings.Repeat("x", 16<<20), strings.Repeat("x", 16<<20)},
		"16 MiB of nothing": {strings.Repeat("\x00", 16<<20), strings.Repeat("\x00", 16<<20)},
	} {
		got := read[text](t, written(t, []facts.Fact{{ID: &c.text, Prompt: &c.text, Completions: []string{c.text},
			Error: &c.text}}, nil, nil))
		want := []text{{ID: &c.want, Prompt: &c.want, Completion: &c.want, Error: &c.want}}
		if !cmp.Equal(got, want) {
			t.Errorf("%s: it is not read as it was written", name)
		}
	}
}

func TestBoundsDoNotRepeatTexts(t *testing.T) {
	t.Parallel()
	var all []facts.Fact
	for n := range 4 { // zstd makes little of each
		long := strings.Repeat(string(rune('a'+n)), 1<<20)
		all = append(all, facts.Fact{Item: uint64(n), ID: &long, Prompt: &long, Completions: []string{long}})
	}
	if n := len(written(t, all, nil, nil)); n > 64<<10 {
		t.Errorf("the file has %d bytes", n)
	}
}

func TestSeveralAnswersAreAllThere(t *testing.T) {
	t.Parallel()
	got := read[text](t, written(t, []facts.Fact{{Completions: []string{"a", "b\"\xff"}}}, nil, nil))
	if *got[0].Completion != "a" || *got[0].Completions != `["a","b\"\ufffd"]` {
		t.Errorf("%s and %s", *got[0].Completion, *got[0].Completions)
	}
}

func TestKindsAndGradersHaveColumns(t *testing.T) {
	t.Parallel()
	type row struct {
		Score   *float64 `parquet:"score,optional"`
		Right   *float64 `parquet:"score_right,optional"`
		Variant *string  `parquet:"variant,optional"`
		Sample  *int64   `parquet:"sample,optional"`
	}
	got := read[row](t, written(t, []facts.Fact{
		{Score: new(0.5), Scores: map[string]*float64{"right": new(1.0)},
			Own: []kind.Value{{Text: new("x")}, {Integer: new(int64(3))}}},
		{},
	}, []string{"right"}, []kind.Column{{Name: "variant"}, {Name: "sample", Integer: true}}))
	want := []row{{new(0.5), new(1.0), new("x"), new(int64(3))}, {}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestColumnsHaveTheirOrder(t *testing.T) {
	t.Parallel()
	b := written(t, nil, []string{"b", "a"}, []kind.Column{{Name: "z"}, {Name: "y"}})
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, field := range f.Schema().Fields() {
		names = append(names, field.Name())
	}
	want := "item id status class error finish_reason prompt completion completions prompt_tokens completion_tokens " +
		"score score_b score_a z y"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the columns are %s", got)
	}
}

// The same facts make the same bytes, in several row groups.
func TestBytesAreAFunctionOfTheFacts(t *testing.T) {
	t.Parallel()
	var all []facts.Fact
	for n := range 3000 {
		long := strings.Repeat(fmt.Sprint(n, " "), 5000)
		all = append(all, facts.Fact{Item: uint64(n), ID: new(fmt.Sprint(n)), Prompt: &long})
	}
	first := written(t, all, nil, nil)
	if !bytes.Equal(first, written(t, all, nil, nil)) {
		t.Error("the bytes differ")
	}
	f, err := parquet.OpenFile(bytes.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.RowGroups()); n < 2 || f.NumRows() != int64(len(all)) {
		t.Errorf("%d rows in %d row groups, want %d in several", f.NumRows(), n, len(all))
	}
}
