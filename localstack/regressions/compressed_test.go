package regressions

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(b)
	must(t, err)
	must(t, w.Close())
	return out.Bytes()
}

func zstdded(t *testing.T, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	defer w.Close()
	return w.EncodeAll(b, nil)
}

func TestInvalidCompressedInputFailsTheRun(t *testing.T) {
	t.Parallel()
	lines := prompts(20_000)
	gz, zst := gzipped(t, lines), zstdded(t, lines)
	flipped := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0xFF
		return b
	}
	for name, c := range map[string]struct {
		key  string
		file []byte
		want string // part of the message
	}{
		"truncated gzip":       {"x.jsonl.gz", gz[:len(gz)/2], "unpack"},
		"gzip without its sum": {"x.jsonl.gz", gz[:len(gz)-4], "unpack"},
		"gzip of wrong sum":    {"x.jsonl.gz", flipped(gz, len(gz)-5), "unpack"},
		"flipped gzip":         {"x.jsonl.gz", flipped(gz, len(gz)/2), "unpack"},
		"gzip header alone":    {"x.jsonl.gz", gz[:10], "unpack"},
		"garbage as gzip":      {"x.jsonl.gz", []byte("{\"prompt\":\"a\"}\n"), "unpack gzip"},
		"nothing as gzip":      {"x.jsonl.gz", nil, "unpack gzip"},
		"truncated zstd":       {"x.jsonl.zst", zst[:len(zst)/2], "unpack"},
		"flipped zstd":         {"x.jsonl.zst", flipped(zst, len(zst)/2), "unpack"},
		"garbage as zstd":      {"x.jsonl.zst", []byte("{\"prompt\":\"a\"}\n"), "unpack"},
		"garbage after gzip":   {"x.jsonl.gz", append(bytes.Clone(gz), "garbage, garbage"...), "unpack"},
		"zstd as gzip":         {"x.jsonl.gz", zst, "unpack gzip"},
		"bomb of zeros":        {"x.jsonl.gz", gzipped(t, make([]byte, 50<<20)), "input.max_unpacked"},
		"bomb of lines": {"x.jsonl.gz", gzipped(t, bytes.Repeat([]byte("{\"prompt\":\"a\"}\n"), 1<<20)),
			"input.max_unpacked"},
		"bomb of one line": {"x.jsonl.zst", zstdded(t, bytes.Repeat([]byte("{"), 20<<20)), "input.max_unpacked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulated(t, func(t *testing.T, p *system) {
				p.configure("[input]\nmax_unpacked = 1_500_000")
				e := newRecordingEngine(nil)
				p.functions()
				p.work(setup{engine: e})
				o := p.awaitEnd(p.upload("prompts/"+c.key, c.file))
				o.wantPhase(t, "failed")
				if !strings.Contains(o.Message, c.want) || !strings.HasSuffix(o.Message, ")") ||
					!strings.Contains(o.Message, c.key) {
					t.Errorf("the message %q does not contain %s, %q and a remedy", o.Message, c.key, c.want)
				}
				if n := len(e.requests()); n > 0 {
					t.Errorf("%d requests for an invalid file, want 0", n)
				}
			})
		})
	}
}

func TestCompressedInputGivesTheRowsOfThePlainFile(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		lines := append(prompts(300), "{oops\n\n{\"prompt\":\"last\"}"...)
		p.configure(fmt.Sprintf("[input]\nmax_unpacked = %d", len(lines))) // the exact size
		p.functions()
		p.work(setup{})
		plain := p.awaitEnd(p.upload("prompts/x.jsonl", lines))
		plain.wantCounts(t, 301, 1)
		half := len(lines) / 2
		for key, file := range map[string][]byte{
			"gz.jsonl.gz": gzipped(t, lines), "zst.jsonl.zst": zstdded(t, lines),
			"members.jsonl.gz": append(gzipped(t, lines[:half]), gzipped(t, lines[half:])...),
			"frames.jsonl.zst": append(zstdded(t, lines[:half]), zstdded(t, lines[half:])...),
		} {
			o := p.awaitEnd(p.upload("prompts/"+key, file))
			o.wantPhase(t, "completed_with_errors")
			o.wantCounts(t, 301, 1)
			if timeless(o.out) != timeless(plain.out) {
				t.Errorf("%s: the rows differ from those of the plain file", key)
			}
			if r := parsed[errorRow](t, o.errs)[0]; r.Line != 301 || r.File != "prompts/"+key {
				t.Errorf("%s: the error row is %+v, want line 301", key, r)
			}
		}
	})
}
