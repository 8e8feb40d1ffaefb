package dialect_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rollout/shared/dialect"
	"rollout/shared/fault"
)

func TestReadFailureReadsAnErrorRow(t *testing.T) {
	t.Parallel()
	place := dialect.Place{Item: 1 << 60, File: "prompts/x: y.jsonl", Line: 3}
	for d, line := range map[dialect.Name]string{
		dialect.Plain:   `{"id":"a-1","prompt":"p"}`,
		dialect.OpenAI:  `{"custom_id":"a-1",` + chatURL + `,"body":{"messages":[{"role":"user","content":"p"}]}}`,
		dialect.Bedrock: `{"recordId":"a-1","modelInput":{"messages":[{"role":"user","content":"p"}]}}`,
		dialect.Vertex:  `{"key":"a-1","request":{"contents":[{"role":"user","parts":[{"text":"p"}]}]}}`,
	} {
		it, err := dialect.Parse(d, []byte(line))
		if err != nil {
			t.Fatal(err)
		}
		want := it.Failure("", place, fault.TooLong, `the prompt has 9 tokens: "too many"`)
		got, ok := dialect.ReadFailure(d, dialect.AppendError(nil, d, want))
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(dialect.Failure{})); diff != "" || !ok {
			t.Errorf("%s: %v (-want +got):\n%s", d, ok, diff)
		}
		row := dialect.AppendOutput(nil, it, dialect.Model{URI: "m"},
			dialect.Result{ID: "a-1", Answers: make([]dialect.Answer, 1), GeneratedAt: time.Now()})
		if f, ok := dialect.ReadFailure(d, row); ok {
			t.Errorf("%s: an output row is read as the failure %+v", d, f)
		}
		if id, ok := dialect.ScanID(d, row); !ok || string(id) != "a-1" {
			t.Errorf("%s: the id of an output row is %q", d, id)
		}
	}
	for _, class := range fault.Classes {
		row := dialect.AppendError(nil, dialect.OpenAI, dialect.Failure{ID: "a", Class: class, Message: "m"})
		if f, ok := dialect.ReadFailure(dialect.OpenAI, row); !ok || f.Class != class {
			t.Errorf("a row of the class %s is read as %+v", class, f)
		}
	}
	// Earlier versions wrote the class where OpenAI has a code of its own.
	old := `{"id":"x","custom_id":"a","response":null,"error":{"code":"expired","message":"m","item":1}}`
	if f, ok := dialect.ReadFailure(dialect.OpenAI, []byte(old)); !ok || f.Class != fault.Expired {
		t.Errorf("an old row is read as %+v", f)
	}
	for _, row := range []string{"", "{", `{"item":-1,"class":"x"}`, `{"item":1}`, `{"error":null}`, `[]`} {
		for _, d := range []dialect.Name{dialect.Plain, dialect.OpenAI, dialect.Bedrock, dialect.Vertex} {
			if f, ok := dialect.ReadFailure(d, []byte(row)); ok {
				t.Errorf("%s: %q is read as %+v", d, row, f)
			}
		}
	}
}
