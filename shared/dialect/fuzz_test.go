package dialect_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollout/shared/config"
	"rollout/shared/dialect"
	"rollout/shared/fault"
)

// oneLine fails the test unless row is one line of valid JSON without repeated names at
// the top level.
func oneLine(t *testing.T, row []byte) {
	t.Helper()
	if len(row) == 0 || bytes.IndexByte(row, '\n') != len(row)-1 || bytes.IndexByte(row, '\r') >= 0 || !json.Valid(row) {
		t.Fatalf("not one line of JSON: %q", row)
	}
	d := json.NewDecoder(bytes.NewReader(row))
	seen := map[string]bool{}
	d.Token()
	for d.More() {
		name, _ := d.Token()
		if seen[name.(string)] {
			t.Fatalf("%q is repeated: %s", name, row)
		}
		seen[name.(string)] = true
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzParse parses hostile lines, and uses them as answers of an engine as well. Every
// row is one line of JSON.
func FuzzParse(f *testing.F) {
	for i, d := range dialect.Names() {
		lines, err := os.ReadFile(filepath.Join("testdata", string(d)+".jsonl"))
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(lines) {
			f.Add(byte(i), bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	m, s := run()
	f.Fuzz(func(t *testing.T, pick byte, line []byte) {
		d := dialect.Names()[int(pick)%len(dialect.Names())]
		before := bytes.Clone(line)
		it, err := dialect.Parse(d, line)
		if id, ok := dialect.ScanID(d, line); ok != it.HasID || string(id) != it.ID {
			t.Fatalf("ScanID returns %q, %v, Parse %q, %v", id, ok, it.ID, it.HasID)
		}
		dialect.Detect(line)
		oneLine(t,
			dialect.AppendError(nil, d, it.Failure("", dialect.Place{File: string(line)}, fault.ClassOf(err), string(line))))
		oneLine(t, dialect.AppendError(nil, d, dialect.Failure{ID: string(line)}))
		if err != nil {
			if fault.ClassOf(err) != fault.InvalidLine {
				t.Fatalf("%v has class %q", err, fault.ClassOf(err))
			}
			return
		}
		if !json.Valid(line) || !json.Valid(it.Request) {
			t.Fatalf("%q is accepted", line)
		}
		id := it.ItemID(m, 1)
		for k, s := range []config.Sampling{{}, s, {Seed: ptr(int64(-1))}} {
			body := it.Body(nil, m.URI, s, id, k)
			oneLine(t, append(bytes.ReplaceAll(body, []byte("\r"), []byte("!")), '\n'))
			if again := it.Body(nil, m.URI, s, id, k); !bytes.Equal(body, again) {
				t.Fatalf("the body is %s, then %s", body, again)
			}
		}
		text := string(line)
		answer := dialect.Answer{Text: text, FinishReason: text, Reasoning: text, ToolCalls: line, Logprobs: line}
		for n := range 3 {
			r := dialect.Result{ID: it.RowID(id), Answers: []dialect.Answer{answer, answer}[:min(n, 2)],
				GeneratedAt: time.Unix(int64(len(line)), 0)}
			oneLine(t, dialect.AppendOutput(nil, it, m, r))
		}
		if !bytes.Equal(line, before) {
			t.Fatal("the line has changed")
		}
	})
}
