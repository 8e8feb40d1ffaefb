package openai_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"rollout/gpuworker/engine/openai"
)

// canned answers every request with the same bytes and without a network, so that
// only the client's cost is measured.
type canned struct {
	status      int
	contentType string
	body        []byte
}

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: c.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {c.contentType}}, Body: io.NopCloser(bytes.NewReader(c.body))}, nil
}

func BenchmarkReadAnswer(b *testing.B) {
	pieces := func(n int) []byte {
		var s []string
		for i := range n {
			s = append(s, fmt.Sprintf(`{"id":"chatcmpl-0123456789abcdef0123456789abcdef",`+
				`"object":"chat.completion.chunk","created":1700000000,"model":"meta-llama/Llama-3.1-8B-Instruct",`+
				`"choices":[{"index":0,"delta":{"content":" word%d"},"logprobs":null,"finish_reason":null}]}`, i))
		}
		s = append(s, `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
			`{"id":"c","object":"chat.completion.chunk","choices":[],`+
				`"usage":{"prompt_tokens":3,"completion_tokens":200,"total_tokens":203}}`)
		return []byte(events(s...))
	}
	for _, c := range []struct {
		name string
		canned
	}{
		{"stream of 1", canned{200, "text/event-stream", pieces(1)}},
		{"stream of 200", canned{200, "text/event-stream", pieces(200)}},
		{"whole", canned{200, "application/json", []byte(`{"id":"c","object":"chat.completion","model":"m",` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("word ", 200) +
			`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":200}}`)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			client, err := openai.New(openai.Config{BaseURL: "http://h", Logger: slog.New(slog.DiscardHandler),
				HTTPClient: &http.Client{Transport: c.canned}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(c.body)))
			for b.Loop() {
				if _, err := client.Answer(b.Context(), hello, func() {}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
