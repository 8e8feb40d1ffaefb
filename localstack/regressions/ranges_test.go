package regressions

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rollout/gpuworker/engine"
	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// rangesFile writes a file of four ranges, with awkward lines where the ranges
// meet, and holds the expected result of each line.
type rangesFile struct {
	w      *bufio.Writer
	offset int64
	lines  uint64
	want   []wanted          // items, in order
	seen   map[string]uint64 // the line of each id
}

type wanted struct {
	id    string // "" for a line without an id
	line  uint64
	class string // "" for an answer
	first uint64 // of a duplicate: the line that has the id first
}

func (f *rangesFile) write(t *testing.T, line string) {
	_, err := f.w.WriteString(line)
	must(t, err)
	f.offset += int64(len(line))
	f.lines++
}

// item writes a line of exactly size bytes, its line feed included.
func (f *rangesFile) item(t *testing.T, id string, size int64) {
	head := fmt.Sprintf(`{"id":%q,"prompt":"`, id)
	pad := size - int64(len(head)+len("\"}\n"))
	f.write(t, head+string(bytes.Repeat([]byte("p"), int(pad)))+"\"}\n")
	w := wanted{id: id, line: f.lines}
	switch first := f.seen[id]; {
	case size > jsonl.MaxLine+1:
		w.id, w.class = "", "invalid_line" // an over-long line is not parsed
	case first > 0:
		w.class, w.first = "duplicate_id", first
	default:
		f.seen[id] = f.lines
	}
	f.want = append(f.want, w)
}

// upTo fills the file up to the offset with one line, which is usually over-long.
func (f *rangesFile) upTo(t *testing.T, offset int64) {
	f.item(t, fmt.Sprintf("fill-%d", f.lines), offset-f.offset)
}

// writeRangesFile writes the file under another name and renames it to path.
func writeRangesFile(t *testing.T, path string) *rangesFile {
	const border = record.RangeSize
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	hidden := filepath.Join(filepath.Dir(path), ".wide")
	file, err := os.Create(hidden)
	must(t, err)
	f := &rangesFile{w: bufio.NewWriterSize(file, 1<<20), seen: map[string]uint64{}}
	f.item(t, "first", 100)
	f.item(t, "twice", 100)
	f.item(t, "twice", 100) // in the same range
	f.write(t, "\n")
	f.upTo(t, border-1000)
	f.item(t, "ends at the border", border-f.offset)
	f.item(t, "begins at the border", 500)
	f.item(t, "twice", 100) // in another range
	f.upTo(t, 2*border-20_000)
	f.item(t, "nearly there", 19_700)
	f.item(t, "straddles the border", 2<<20)
	f.item(t, "first", 100)
	f.write(t, "\r\n")
	f.item(t, "longer than a range", border+(2<<20)) // no line starts in the range that it covers
	f.item(t, "begins at the border", 200)
	f.item(t, "last", 100)
	must(t, f.w.Flush())
	must(t, file.Close())
	must(t, os.Rename(hidden, path))
	return f
}

func TestLinesAtRangeBoundariesAreKept(t *testing.T) {
	t.Parallel()
	p := onDisk(t)
	p.deploy.Defaults.Shard.Items = 16
	e := newRecordingEngine(func(context.Context, engine.Request) (engine.Answer, error) {
		return engine.Answer{Text: "yes", FinishReason: "stop"}, nil
	})
	p.functions()
	p.work(setup{engine: e, inFlight: 4})
	f := writeRangesFile(t, filepath.Join(p.bucket.Dir(), "prompts", "wide.jsonl"))
	info, err := p.ports.Blobs.Stat(t.Context(), "prompts/wide.jsonl", "")
	must(t, err)
	id := identity.UploadRun("local", info.Key, info.Version)
	o := p.awaitEnd(id)
	o.wantPhase(t, "completed_with_errors")
	var plan record.Plan
	for _, d := range p.documents(record.PlanKey(id)) {
		must(t, record.Decode(d.Value, &plan, d.Key))
	}
	if plan.Total != 4 || plan.Lines != f.lines || plan.Items != uint64(len(f.want)) {
		t.Errorf("the plan has %d ranges, %d lines, %d items, want 4, %d, %d", plan.Total, plan.Lines, plan.Items,
			f.lines, len(f.want))
	}
	out, errs := o.out, o.errs
	for i, w := range f.want {
		if w.class == "" {
			if len(out) == 0 || !bytes.HasPrefix(out[0], fmt.Appendf(nil, `{"id":%q,"prompt":"p`, w.id)) {
				t.Fatalf("item %d, line %d (%s) is not the next answer: %.100s", i, w.line, w.id, out)
			}
			out = out[1:]
			continue
		}
		if len(errs) == 0 {
			t.Fatalf("item %d, line %d (%s) has no error row", i, w.line, w.id)
		}
		r := parsed[errorRow](t, errs[:1])[0]
		if string(r.Class) != w.class || r.Item != uint64(i) || r.Line != w.line {
			t.Errorf("the error row is %+v, want %+v as item %d", r, w, i)
		}
		if first := fmt.Sprintf("line %d of prompts/wide.jsonl", w.first); w.first > 0 &&
			!bytes.Contains(errs[0], []byte(first)) {
			t.Errorf("the error row %s does not contain %q", errs[0], first)
		}
		errs = errs[1:]
	}
	if len(out)+len(errs) > 0 {
		t.Errorf("%d rows belong to no item", len(out)+len(errs))
	}
	if n := len(e.requests()); n != len(o.out) {
		t.Errorf("%d requests for %d answers", n, len(o.out))
	}
}
