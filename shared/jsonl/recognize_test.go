package jsonl_test

import (
	"strings"
	"testing"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

func TestRecognizeNamesOtherFormats(t *testing.T) {
	t.Parallel()
	many := strings.Repeat(`{"prompt": "some text of a prompt", "n": 1},`+"\n", 100)
	for name, c := range map[string]struct {
		head string
		cut  bool // there is more of the file
		want string
	}{
		"JSON lines":                      {head: `{"prompt":"a"}` + "\n" + `{"prompt":"b"}` + "\n"},
		"one line":                        {head: `{"prompt":"a"}`},
		"one line that is cut":            {head: `{"prompt":"a`, cut: true},
		"nothing":                         {head: ""},
		"empty lines":                     {head: "\n\n"},
		"lines of other values":           {head: "[1,2,3]\n\"s\"\nnull\n"},
		"a list among lines":              {head: "[1,2,3]\n{\"prompt\":\"a\"}\n"},
		"a list of objects among lines":   {head: "[{\"a\":1}]\n{\"prompt\":\"a\"}\n"},
		"a bracket among lines":           {head: "[\n{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n"},
		"a first line that is cut":        {head: "{\"prompt\":\n{\"prompt\":\"a\"}\n"},
		"a first line cut in a list":      {head: "{\"messages\": [\n{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n"},
		"a first line cut in a text":      {head: "{\"prompt\": \"a\n{\"prompt\":\"b\"}\n"},
		"brackets without an end":         {head: strings.Repeat("{oops\n", 10)},
		"no JSON":                         {head: "no\n{\"prompt\":\n[]\n"},
		"prose":                           {head: "This is a text.\nIt has lines.\n"},
		"a comma in prose, and an object": {head: "Hello, world\nBye, moon\n{\"prompt\":\"a\"}\n"},

		"an array":                       {head: `[{"prompt":"a"},{"prompt":"b"}]`, want: "a JSON array"},
		"an array over lines":            {head: "[\n{\"prompt\":\"a\"},\n{\"prompt\":\"b\"}\n]\n", want: "a JSON array"},
		"an array with a mark":           {head: "\xEF\xBB\xBF\n[{\"prompt\":\"a\"}]\n", want: "a JSON array"},
		"an array that is cut":           {head: "[" + many, cut: true, want: "a JSON array"},
		"an array on one line, cut":      {head: `[{"prompt":"a"},{"prom`, cut: true, want: "a JSON array"},
		"an array, cut in an escape":     {head: `[{"prompt":"a\u00`, cut: true, want: "a JSON array"},
		"an array with a comma too many": {head: "[\n" + many + "]\n", want: "a JSON array"},
		"an array that ends too early":   {head: "[\n" + many, want: "a JSON array"},
		"arrays on lines":                {head: "[{\"prompt\":\"a\"}]\n[{\"prompt\":\"b\"}]\n", want: "a JSON array"},
		"pretty-printed": {head: "{\n  \"prompt\": \"a\"\n}\n{\n  \"prompt\": \"b\"\n}\n",
			want: "pretty-printed"},
		"pretty-printed with lists":   {head: "{\"m\": [\n{\"role\": \"user\"}\n]}\n", want: "pretty-printed"},
		"pretty-printed, cut":         {head: "{\n  \"prompt\": \"a", cut: true, want: "pretty-printed"},
		"Parquet":                     {head: "PAR1\x15\x00", want: "Parquet"},
		"CSV":                         {head: "id,prompt\n1,\"a\nb\"\n2,c\n", want: "CSV"},
		"CSV with CRLF":               {head: "id,prompt\r\n1,a\r\n", want: "CSV"},
		"CSV with semicolons":         {head: "id;prompt\n1;a, b\n", want: "CSV"},
		"TSV":                         {head: "id\tprompt\n1\ta\n", want: "CSV"},
		"CSV of one column":           {head: "prompt\nHello, you\nBye\n", want: "CSV"},
		"CSV that is cut":             {head: "id,prompt\n1,a\n2,b\n3,\"c", cut: true, want: "CSV"},
		"CSV, cut inside a character": {head: "id,prompt\n1,a\n2,b\n3,\xc3", cut: true, want: "CSV"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := jsonl.Recognize("prompts/x.jsonl", []byte(c.head), !c.cut)
			if c.want == "" && err != nil || c.want != "" && (!fault.Is(err, fault.Invalid) ||
				!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "rollout convert ")) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestConvertCommandsCanBeCopied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, from, want string }{
		{"prompts/x.jsonl", "json", "`rollout convert --from json x.jsonl x-lines.jsonl`"},
		{"a/x.json", "json", "`rollout convert x.json x.jsonl`"},
		{"x.csv.gz", "", "`rollout convert x.csv.gz x.jsonl`"},
		{"x.jsonl.zst", "csv", "`rollout convert --from csv x.jsonl.zst x-lines.jsonl`"},
		{"it's my file.parquet", "", "`rollout convert 'it'\\''s my file.parquet' 'it'\\''s my file.jsonl'`"},
	} {
		if got := jsonl.ConvertCommand(c.name, c.from); got != c.want {
			t.Errorf("ConvertCommand(%q, %q) = %s, want %s", c.name, c.from, got, c.want)
		}
	}
}
