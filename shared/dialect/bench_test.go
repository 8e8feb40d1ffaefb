package dialect_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/shared/dialect"
)

// benchLine returns a line of 1.2 KB.
func benchLine(d dialect.Name, id string) []byte {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, again.\\n", 21)
	if d == dialect.OpenAI {
		return fmt.Appendf(nil, `{"custom_id":"row-000001",%s,"body":{"model":"m",`+
			`"messages":[{"role":"user","content":"%s"}]}}`, chatURL, text)
	}
	return fmt.Appendf(nil, `{"prompt":"%s","category":"animals"%s}`, text, id)
}

func BenchmarkParse(b *testing.B) {
	for _, d := range []dialect.Name{dialect.Plain, dialect.OpenAI} {
		b.Run(string(d), func(b *testing.B) {
			line := benchLine(d, `,"id":"row-000001"`)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := dialect.Parse(d, line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkScanID(b *testing.B) {
	line := benchLine(dialect.Plain, `,"id":"row-000001"`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := dialect.ScanID(dialect.Plain, line); !ok {
			b.Fatal("the id is not found")
		}
	}
}

func BenchmarkBody(b *testing.B) {
	m, s := run()
	it, err := dialect.Parse(dialect.Plain, benchLine(dialect.Plain, ""))
	if err != nil {
		b.Fatal(err)
	}
	id := it.ItemID(m, 0)
	dst := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		dst = it.Body(dst[:0], m.URI, s, id, 0)
	}
}

func BenchmarkItemID(b *testing.B) {
	m, _ := run()
	it, err := dialect.Parse(dialect.Plain, benchLine(dialect.Plain, ""))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		it.ItemID(m, 0)
	}
}

func BenchmarkAppendOutput(b *testing.B) {
	m, _ := run()
	it, err := dialect.Parse(dialect.Plain, benchLine(dialect.Plain, `,"id":"row-000001"`))
	if err != nil {
		b.Fatal(err)
	}
	answer := dialect.Answer{Text: strings.Repeat("An answer of a few words. ", 12), FinishReason: "stop"}
	r := dialect.Result{ID: it.ID, Answers: []dialect.Answer{answer}, GeneratedAt: time.Unix(1, 0)}
	dst := make([]byte, 0, 8192)
	b.ReportAllocs()
	for b.Loop() {
		dst = dialect.AppendOutput(dst[:0], it, m, r)
	}
}
