package dataset_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/gpuworker/training/dataset"
	"rollout/shared/fault"
)

func TestRowsOfExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want, err string }{
		{line: `{"prompt":"Q","completion":"A"}`, want: `{Q [] A}`},
		{line: `{"prompt":"","completion":"A","id":7}`, want: `{ [] A}`},
		{line: `{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}`, want: `{ [{user Q}] A}`},
		{line: `{"messages":[{"role":"assistant","content":"A"}]}`, want: `{ [] A}`},
		{line: `{"prompt":"Q"`, err: "the row is not JSON: unexpected EOF, at byte 14"},
		{line: `[1]`, err: "the row is not a JSON object"},
		{line: `"Q"`, err: "the row is not a JSON object"},
		{line: `{}`, err: `the row has neither "prompt" and "completion" nor "messages"`},
		{line: `{"completion":"A"}`, err: `"prompt" is missing`},
		{line: `{"prompt":"Q"}`, err: `"completion" is missing`},
		{line: `{"prompt":"Q","completion":""}`, err: "completion is empty: there is nothing to learn"},
		{line: `{"prompt":"Q","completion":3}`, err: "/completion must not be a number"},
		{
			line: `{"prompt":"Q","completion":"A","messages":[]}`,
			err:  "the row has messages and also prompt or completion: remove one of the two",
		},
		{line: `{"messages":[]}`, err: "messages has no assistant turn: there is nothing to learn"},
		{line: `{"messages":"A"}`, err: "/messages must not be a string"},
		{
			line: `{"messages":[{"role":"user","content":"Q"}]}`,
			err:  "messages has no assistant turn: there is nothing to learn",
		},
		{
			line: `{"messages":[{"role":"tool","content":"Q"}]}`,
			err:  `messages[0].role is "tool": it must be system, user or assistant`,
		},
		{
			line: `{"messages":[{"role":"assistant","content":"A"},{"role":"assistant","content":"B"}]}`,
			err:  "messages has 2 assistant turns: write a row for each",
		},
		{
			line: `{"messages":[{"role":"assistant","content":"A"},{"role":"user","content":"B"}]}`,
			err:  "messages must end with the assistant turn: remove what follows it",
		},
		{
			line: `{"messages":[{"role":"assistant","content":""}]}`,
			err:  "the assistant turn is empty: there is nothing to learn",
		},
		{
			line: `{"prompt":"Q","prompt":"R","completion":"A"}`,
			err:  `the row is not JSON: duplicate object member name, at byte 15`,
		},
		{line: "{\"prompt\":\"\xff\",\"completion\":\"A\"}", err: "the row is not valid UTF-8"},
	} {
		row, err := dataset.ParseExample([]byte(c.line))
		check(t, c.line, fmt.Sprint(row), err, c.want, c.err)
	}
}

func TestRowsOfPairs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want, err string }{
		{line: `{"prompt": "What is 2+2?", "chosen": "4", "rejected": "5"}`, want: "{What is 2+2? 4 5}"},
		{line: `{"chosen":"4","rejected":"5"}`, err: `"prompt" is missing`},
		{line: `{"prompt":"Q","rejected":"5"}`, err: `"chosen" is missing`},
		{line: `{"prompt":"Q","chosen":"4"}`, err: `"rejected" is missing`},
		{line: `{"prompt":"Q","chosen":"","rejected":"5"}`, err: "chosen and rejected must not be empty"},
		{
			line: `{"prompt":"Q","chosen":"4","rejected":"4"}`,
			err:  "chosen and rejected are the same: there is nothing to prefer",
		},
		{line: `{"prompt":null}`, err: `"prompt" is missing`},
		{line: ``, err: "the row is not JSON: unexpected EOF, at byte 1"},
	} {
		row, err := dataset.ParsePair([]byte(c.line))
		check(t, c.line, fmt.Sprint(row), err, c.want, c.err)
	}
}

func check(t *testing.T, line, got string, err error, want, wantErr string) {
	t.Helper()
	if wantErr == "" && (err != nil || got != want) {
		t.Errorf("%s: got %s, %v, want %s", line, got, err, want)
	}
	if wantErr != "" && (err == nil || err.Error() != wantErr) {
		t.Errorf("%s:\ngot  %v\nwant %s", line, err, wantErr)
	}
}

func example(line []byte) error {
	_, err := dataset.ParseExample(line)
	return err
}

// openRows writes a file and opens it.
func openRows(t *testing.T, content string) *dataset.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := dataset.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestErrorsOfRowsHaveFileAndLine(t *testing.T) {
	t.Parallel()
	f := openRows(t, "{\"prompt\":\"Q\",\"completion\":\"A\"}\n\n  \nx\n{\"prompt\":\"Q\"}\n")
	_, err := dataset.Open(t.Context(), f, example)
	want := f.Name() + ":4: the row is not JSON: invalid character 'x' at start of value, at byte 1\n" +
		f.Name() + `:5: "completion" is missing`
	if !fault.Is(err, fault.Invalid) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestOpenRefusesFilesWithoutValidRows(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name, content, want string
		ctx                 context.Context
	}{
		{"empty", "", ": the file has no rows", t.Context()},
		{"blank", "\n \n", ": the file has no rows", t.Context()},
		{"gzip", "\x1f\x8b\x08\x00", "the file is gzip, not JSON lines in UTF-8", t.Context()},
		{"UTF-16", "\xff\xfe{\x00", "the file is UTF-16LE", t.Context()},
		{"many bad rows", strings.Repeat("x\n", 100), "stopped after 20 errors, there may be more", t.Context()},
		{
			"canceled", strings.Repeat("{\"prompt\":\"Q\",\"completion\":\"A\"}\n", 2000),
			"context canceled", canceled,
		},
	} {
		_, err := dataset.Open(c.ctx, openRows(t, c.content), example)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") > 20 {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "absent"), t.TempDir()} {
		if _, err := dataset.OpenFile(path); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an Invalid fault that names it", path, err)
		}
	}
}

// TestAnyRowIsFoundInAFileOfManyRows reads a file with more rows than groups, so
// that a group has several rows.
func TestAnyRowIsFoundInAFileOfManyRows(t *testing.T) {
	t.Parallel()
	const rows = 600_000
	var b strings.Builder
	for i := range rows {
		fmt.Fprintf(&b, "%d\n", i)
		if i%3 == 0 {
			b.WriteString("\n")
		}
	}
	f := openRows(t, b.String())
	x, err := dataset.Open(t.Context(), f, func([]byte) error { return nil })
	if err != nil || x.Rows() != rows {
		t.Fatalf("%d rows, %v", x.Rows(), err)
	}
	for _, i := range []uint64{0, 1, 2, 3, 4, 5, 262_143, 262_144, 524_287, 524_288, rows - 1} {
		row, err := x.Row(i)
		if err != nil || string(row.Line) != fmt.Sprint(i) || row.Number != 1+i+(i+2)/3 {
			t.Errorf("row %d is %q in line %d, %v; want %d in line %d", i, row.Line, row.Number, err, i, 1+i+(i+2)/3)
		}
	}
}

func TestChangedFileIsDetected(t *testing.T) {
	t.Parallel()
	f := openRows(t, "1\n2\n3\n")
	x, err := dataset.Open(t.Context(), f, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Name(), []byte("1\n9\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = x.Row(1)
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), f.Name()+":2: the file has changed") {
		t.Errorf("changed row: %v, want a Corrupt fault", err)
	}
	if row, err := x.Row(2); err != nil || string(row.Line) != "3" {
		t.Errorf("unchanged row: %q, %v; want 3", row.Line, err)
	}
	if err := os.Truncate(f.Name(), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Row(2); !fault.Is(err, fault.Corrupt) {
		t.Errorf("removed row: %v, want a Corrupt fault", err)
	}
}

func TestEveryRowOccursOncePerEpoch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.Uint64Range(1, 300).Draw(t, "rows")
		o := dataset.Order{Seed: rapid.Uint64().Draw(t, "seed"), Rows: rows}
		epoch := rapid.Uint64Range(0, 1<<40).Draw(t, "epoch")
		seen := map[uint64]bool{}
		for i := range rows {
			seen[o.At(epoch*rows+i)] = true
		}
		if uint64(len(seen)) != rows {
			t.Fatalf("%d of %d rows occur", len(seen), rows)
		}
	})
}

func TestOrdersDifferByEpochAndSeedAndNeverChange(t *testing.T) {
	t.Parallel()
	order := func(seed, epoch uint64) (out []uint64) {
		o := dataset.Order{Seed: seed, Rows: 10}
		for i := range uint64(10) {
			out = append(out, o.At(10*epoch+i))
		}
		return out
	}
	got := fmt.Sprint(order(0, 0), order(0, 1), order(1, 0))
	if want := goldenOrders; got != want {
		t.Errorf("got  %s\nwant %s: training resumed from older snapshots would use other rows", got, want)
	}
}

func FuzzRows(f *testing.F) {
	f.Add([]byte(`{"prompt":"Q","completion":"A","chosen":"a","rejected":"b"}`))
	f.Add([]byte(`{"messages":[{"role":"user","content":"Q"},{"role":"assistant","content":"A"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if e, err := dataset.ParseExample(line); err == nil && e.Answer == "" {
			t.Errorf("%q has no answer", line)
		}
		if p, err := dataset.ParsePair(line); err == nil && (p.Chosen == "" || p.Rejected == "") {
			t.Errorf("%q has an empty answer", line)
		}
	})
}

const goldenOrders = "[7 8 3 2 4 6 5 9 1 0] [1 8 4 0 3 5 2 7 9 6] [6 7 8 5 9 1 2 3 4 0]"
