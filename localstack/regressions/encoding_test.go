package regressions

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"rollout/localstack/fakellm"
)

func TestC01OneLeadingByteOrderMarkIsDropped(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		const bom = "\xEF\xBB\xBF"
		p.functions()
		p.work(setup{})
		answer := func(name, file string) outcome {
			o := p.awaitEnd(p.upload("prompts/"+name+".jsonl", []byte(file)))
			o.wantPhase(t, "completed")
			return o
		}
		const lines = "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n"
		plain := answer("plain", lines)
		plain.wantCounts(t, 2, 0)
		for name, file := range map[string]string{
			"marked":            bom + lines,
			"marked-crlf":       bom + strings.ReplaceAll(lines, "\n", "\r\n"),
			"marked-no-newline": bom + strings.TrimSuffix(lines, "\n"),
			"marked-blank":      bom + "\n" + lines,
		} {
			if got := answer(name, file); timeless(got.out) != timeless(plain.out) {
				t.Errorf("%s: the rows differ from those of the file without a mark:\n%s\n%s", name, timeless(got.out),
					timeless(plain.out))
			}
		}
		openai := "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"}}\n"
		marked, unmarked := answer("openai-marked", bom+openai), answer("openai", openai)
		if timeless(marked.out) != timeless(unmarked.out) {
			t.Errorf("the dialect is not detected after a mark: %s", marked.out)
		}

		// Only one mark at the start of the file is dropped. Any other is an error of its
		// line.
		for name, file := range map[string]string{
			"two-marks":   bom + bom + lines,
			"second-line": "{\"prompt\":\"a\"}\n" + bom + "{\"prompt\":\"b\"}\n",
		} {
			o := p.awaitEnd(p.upload("prompts/"+name+".jsonl", []byte(file)))
			o.wantPhase(t, "completed_with_errors")
			o.wantCounts(t, 1, 1)
			if o.FailedByClass["invalid_line"] != 1 {
				t.Errorf("%s: the classes are %v, want one invalid_line", name, o.FailedByClass)
			}
		}
		only := p.awaitEnd(p.upload("prompts/only.jsonl", []byte(bom)))
		only.wantPhase(t, "completed")
		only.wantCounts(t, 0, 0)
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
		want string // the format's name in the message
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
		o := p.awaitEnd(p.upload("prompts/"+c.name, c.file))
		o.wantPhase(t, "failed")
		if !strings.Contains(o.Message, c.want) || !strings.Contains(o.Message, c.name) {
			t.Errorf("%s: the message %q does not contain the file and %s", c.name, o.Message, c.want)
		}
	}
}

func TestC02InvalidUTF8IsAnErrorOfItsLine(t *testing.T) {
	t.Parallel()
	simulated(t, func(t *testing.T, p *system) {
		p.functions()
		p.work(setup{})
		o := p.awaitEnd(p.upload("prompts/x.jsonl",
			[]byte("{\"prompt\":\"a\"}\n{\"prompt\":\"\xFF\xFE\"}\n{\x00\"\x00\n"+
				"{\"id\":\"c\",\"prompt\":\"caf\xE9\"}\n{\"prompt\":\"b\"}\n")))
		o.wantPhase(t, "completed_with_errors")
		o.wantCounts(t, 2, 3)
		rows := parsed[errorRow](t, o.errs)
		for i, line := range []uint64{2, 3, 4} {
			if rows[i].Line != line || rows[i].Class != "invalid_line" {
				t.Errorf("the error row is %+v, want invalid_line for line %d", rows[i], line)
			}
		}
		if string(rows[2].ID) != `"c"` {
			t.Errorf("line 4 has the id %s, want \"c\"", rows[2].ID)
		}
	})
}

func TestC03RecordsEndAtLineFeedsOnly(t *testing.T) {
	t.Parallel()
	// Characters that some readers take for the end of a line.
	separators := []string{"\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u001c", "\u001d", "\u001e", "\r", "\n",
		"\r\n", "\u2028\u2029"}
	var file strings.Builder
	for i, s := range separators {
		raw := s
		if s[0] < 0x20 { // JSON allows these as escapes only
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
			o := p.awaitEnd(p.upload("prompts/x.jsonl", []byte(file.String())))
			o.wantPhase(t, "completed")
			o.wantCounts(t, len(separators), 0)
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
