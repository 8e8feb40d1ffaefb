package regressions

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"rollout/localstack/fakellm"
)

func TestC01OneByteOrderMarkIsDropped(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		const bom = "\xEF\xBB\xBF"
		p.functions()
		p.work(setup{})
		twin := func(name, file string) outcome {
			o := p.ended(p.upload("prompts/"+name+".jsonl", []byte(file)))
			o.phase(t, "completed")
			return o
		}
		const lines = "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n"
		plain := twin("plain", lines)
		plain.counts(t, 2, 0)
		for name, file := range map[string]string{
			"marked":            bom + lines,
			"marked-crlf":       bom + strings.ReplaceAll(lines, "\n", "\r\n"),
			"marked-no-newline": bom + strings.TrimSuffix(lines, "\n"),
			"marked-blank":      bom + "\n" + lines,
		} {
			if got := twin(name, file); timeless(got.out) != timeless(plain.out) {
				t.Errorf("%s: rows differ from those of the file without a mark:\n%s\n%s", name, timeless(got.out), timeless(plain.out))
			}
		}
		openai := "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"}}\n"
		marked, unmarked := twin("openai-marked", bom+openai), twin("openai", openai)
		if timeless(marked.out) != timeless(unmarked.out) {
			t.Errorf("a mark hides the dialect: %s", marked.out)
		}

		// Only one, and only at the file's begin: any other is that line's error.
		for name, file := range map[string]string{
			"two-marks":   bom + bom + lines,
			"second-line": "{\"prompt\":\"a\"}\n" + bom + "{\"prompt\":\"b\"}\n",
		} {
			o := p.ended(p.upload("prompts/"+name+".jsonl", []byte(file)))
			o.phase(t, "completed_with_errors")
			o.counts(t, 1, 1)
			if o.FailedByClass["invalid_line"] != 1 {
				t.Errorf("%s: %v", name, o.FailedByClass)
			}
		}
		only := p.ended(p.upload("prompts/only.jsonl", []byte(bom)))
		only.phase(t, "completed")
		only.counts(t, 0, 0)
	})
}

func TestC02OtherEncodingsAreRefusedByName(t *testing.T) {
	t.Parallel()
	const line = "{\"prompt\":\"a\"}\n"
	wide := func(order binary.AppendByteOrder, mark bool) []byte {
		var b []byte
		if mark {
			b = order.AppendUint16(b, 0xFEFF)
		}
		for _, u := range utf16.Encode([]rune(line)) {
			b = order.AppendUint16(b, u)
		}
		return b
	}
	p := onDisk(t)
	p.functions()
	for _, c := range []struct {
		name string
		file []byte
		says string
	}{
		{"le.jsonl", wide(binary.LittleEndian, true), "UTF-16LE"},
		{"be.jsonl", wide(binary.BigEndian, true), "UTF-16BE"},
		{"le-unmarked.jsonl", wide(binary.LittleEndian, false), "UTF-16LE"},
		{"be-unmarked.jsonl", wide(binary.BigEndian, false), "UTF-16BE"},
		{"utf32.jsonl", []byte("\xFF\xFE\x00\x00{\x00\x00\x00"), "UTF-32LE"},
		{"packed.jsonl", gzipped(t, []byte(line)), "gzip"},
		{"parquet.jsonl", []byte("PAR1rest"), "Parquet"},
		{"le.jsonl.gz", gzipped(t, wide(binary.LittleEndian, true)), "UTF-16LE"},
		{"le.jsonl.zst", zstdded(t, wide(binary.LittleEndian, true)), "UTF-16LE"},
	} {
		o := p.ended(p.upload("prompts/"+c.name, c.file))
		o.phase(t, "failed")
		if !strings.Contains(o.Message, c.says) || !strings.Contains(o.Message, c.name) {
			t.Errorf("%s: %q does not name the file and %s", c.name, o.Message, c.says)
		}
	}
}

func TestC02BytesThatAreNoUTF8AreTheirLinesError(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{})
		o := p.ended(p.upload("prompts/x.jsonl", []byte("{\"prompt\":\"a\"}\n{\"prompt\":\"\xFF\xFE\"}\n{\x00\"\x00\n{\"id\":\"c\",\"prompt\":\"caf\xE9\"}\n{\"prompt\":\"b\"}\n")))
		o.phase(t, "completed_with_errors")
		o.counts(t, 2, 3)
		rows := parsed[errorRow](t, o.errs)
		for i, line := range []uint64{2, 3, 4} {
			if rows[i].Line != line || rows[i].Class != "invalid_line" {
				t.Errorf("%+v; want invalid_line, line %d", rows[i], line)
			}
		}
		if string(rows[2].ID) != `"c"` {
			t.Errorf("line 4 lost its id: %s", rows[2].ID)
		}
	})
}

func TestC03RecordsEndAtLineFeedsOnly(t *testing.T) {
	t.Parallel()
	// Everything that some reader takes for the end of a line.
	separators := []string{"\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u001c", "\u001d", "\u001e", "\r", "\n", "\r\n", "\u2028\u2029"}
	var file strings.Builder
	for i, s := range separators {
		raw := s
		if s[0] < 0x20 { // JSON has these as escapes only
			raw = ""
			for _, c := range []byte(s) {
				raw += fmt.Sprintf(`\u%04x`, c)
			}
		}
		fmt.Fprintf(&file, "{\"id\":\"%d%s\",\"prompt\":\"x%sy\",\"extra%s\":[\"%s\"]}\n", i, raw, raw, raw, raw)
	}
	engines := map[string]setup{
		"in process": {},
		"over http":  {engine: overHTTP(t, fakeServer(t, fakellm.Config{}))},
	}
	for name, s := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onDisk(t)
			p.functions()
			p.work(s)
			o := p.ended(p.upload("prompts/x.jsonl", []byte(file.String())))
			o.phase(t, "completed")
			o.counts(t, len(separators), 0)
			for i, r := range parsed[answerRow](t, o.out) {
				if s := separators[i]; r.Prompt != "x"+s+"y" || !strings.Contains(r.Completion, "x"+s+"y") {
					t.Errorf("%q: prompt %q, completion %q", s, r.Prompt, r.Completion)
				}
				if !strings.HasPrefix(string(r.ID), fmt.Sprintf(`"%d`, i)) {
					t.Errorf("row %d has the id %s", i, r.ID)
				}
			}
		})
	}
}
