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

// oneLine fails unless row is one line of valid JSON without repeated names at
// its top.
func oneLine(t *testing.T, row []byte) {
	t.Helper()
	if len(row) == 0 || row[len(row)-1] != '\n' || bytes.IndexByte(row, '\n') != len(row)-1 || bytes.IndexByte(row, '\r') >= 0 || !json.Valid(row) {
		t.Fatalf("not one line of JSON: %q", row)
	}
	d := json.NewDecoder(bytes.NewReader(row))
	seen := map[string]bool{}
	d.Token()
	for d.More() {
		name, _ := d.Token()
		if seen[name.(string)] {
			t.Fatalf("%q is there twice: %s", name, row)
		}
		seen[name.(string)] = true
		var skip json.RawMessage
		if err := d.Decode(&skip); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzParse also feeds the line to all that is made of it, and uses it as what
// an engine says.
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
			t.Fatalf("ScanID says %q, %v, Parse %q, %v", id, ok, it.ID, it.HasID)
		}
		dialect.Detect(line)
		oneLine(t, dialect.AppendError(nil, d, it.Failure("", dialect.Place{File: string(line)}, fault.ClassOf(err), string(line))))
		oneLine(t, dialect.AppendError(nil, d, dialect.Failure{ID: string(line)}))
		if err != nil {
			if fault.ClassOf(err) != fault.InvalidLine {
				t.Fatalf("%v has class %q", err, fault.ClassOf(err))
			}
			return
		}
		if !json.Valid(line) || !json.Valid(it.Request) {
			t.Fatalf("%q was accepted", line)
		}
		id := it.ItemID(m, 1)
		for k, s := range []config.Sampling{{}, s, {Seed: ptr(int64(-1))}} {
			body := it.Body(nil, m.URI, s, id, k)
			oneLine(t, append(bytes.ReplaceAll(body, []byte("\r"), []byte("!")), '\n'))
			if again := it.Body(nil, m.URI, s, id, k); !bytes.Equal(body, again) {
				t.Fatalf("%s is another body than %s", again, body)
			}
		}
		said := dialect.Answer{Text: string(line), FinishReason: string(line), Reasoning: string(line), ToolCalls: line, Logprobs: line}
		for n := range 3 {
			r := dialect.Result{ID: it.RowID(id), Answers: []dialect.Answer{said, said}[:min(n, 2)], GeneratedAt: time.Unix(int64(len(line)), 0)}
			oneLine(t, dialect.AppendOutput(nil, it, m, r))
		}
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
	})
}
