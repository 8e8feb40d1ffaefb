package openai_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// The pieces of one answer, and its whole.
const (
	firstPiece = `{"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}`
	lastPiece  = `{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}`
	pieceUsage = `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
	wholeHello = `{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},` +
		`"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`
)

// pretty spreads JSON over lines.
func pretty(json, newline string) string {
	return strings.NewReplacer("{", "{"+newline, ",", ","+newline+" ", "}", newline+"}").Replace(json)
}

// Servers and proxies wrap answers in many ways, and name their content type wrongly.
func TestAnswerIsReadInEveryFraming(t *testing.T) {
	t.Parallel()
	all := []string{firstPiece, lastPiece, pieceUsage}
	data := func(separator string) string { return "data: " + strings.Join(all, separator+"data: ") + separator }
	const sse = "text/event-stream"
	for _, c := range []struct{ name, contentType, body string }{
		{"events", sse, events(all...)},
		{"events as plain text", "text/plain; charset=utf-8", events(all...)},
		{"events without a content type", "", events(all...)},
		{"events as JSON", "application/json", events(all...)},
		{"events without [DONE]", sse, data("\n\n")},
		{"a byte order mark", sse, "\xEF\xBB\xBF" + events(all...)},
		{"lines end in CR", sse, strings.ReplaceAll(events(all...), "\n", "\r")},
		{"lines end in CRLF", sse, strings.ReplaceAll(events(all...), "\n", "\r\n")},
		{"lines end in turn", sse, "data: " + firstPiece + "\r\r\ndata: " + lastPiece + "\n\rdata: " + pieceUsage + "\r\n\r"},
		{"no space after the colon", sse, strings.ReplaceAll(events(all...), "data: ", "data:")},
		{"comments, ids, names, retry and unknown fields", sse, ": hi\n\nretry: 3000\nevent: message\nid: 7\n" +
			strings.ReplaceAll(events(all...), "\n\n", "\n: ping\nid\nx: y\n\n")},
		{"data over several lines", sse, "data: " + pretty(firstPiece, "\ndata: ") + "\n\ndata: " +
			pretty(lastPiece, "\ndata:") + "\n\ndata: " + pieceUsage + "\n\n"},
		{"events without blank lines", sse, data("\n") + "data: [DONE]\n"},
		{"the end of the last line is missing", sse, strings.TrimRight(data("\n\n"), "\n")},
		{"bare values among events", sse, firstPiece + "\n\ndata: " + lastPiece + "\n\ndata: " + pieceUsage + "\n\n"},
		{"a value per line", "application/x-ndjson", strings.Join(all, "\n") + "\n"},
		{"a value per line as JSON", "application/json", strings.Join(all, "\n")},
		{"a whole answer", "application/json", wholeHello},
		{"a whole answer as an event stream", sse, wholeHello},
		{"a whole answer in an event", sse, "data: " + wholeHello + "\n\n"},
		{"a whole answer over several lines", "application/json", pretty(wholeHello, "\n")},
		{"a whole answer over lines that end in CR", "", pretty(wholeHello, "\r")},
		{"a whole answer after blank lines", "application/json", "\n\n \n" + wholeHello + "\n\n"},
		{"a whole answer after a byte order mark", "application/json", "\xEF\xBB\xBF" + wholeHello},
		{"a whole answer in a list", "application/json", "[" + wholeHello + "]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, packing := range []string{"", "gzip", "deflate", "gzip that was unpacked"} {
				for _, chunk := range []int{len(c.body), 1, 7} {
					got, err := ask(t, serve(t, sendsPacked(packing, c.contentType, c.body, chunk)), hello)
					want := engine.Answer{Text: "Hello", FinishReason: "stop",
						Usage: engine.Usage{PromptTokens: 3, CompletionTokens: 2}}
					if diff := cmp.Diff(want, got); err != nil || diff != "" {
						t.Fatalf("packing %q, %d bytes at once: %v\n%s", packing, chunk, err, diff)
					}
				}
			}
		})
	}
}

// sendsPacked returns a handler that sends the body compressed, a few bytes at a
// time.
func sendsPacked(packing, contentType, body string, chunk int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = nil
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		var packed bytes.Buffer
		var z io.WriteCloser
		switch encoding, _, _ := strings.Cut(packing, " "); packing {
		case "gzip":
			z = gzip.NewWriter(&packed)
		case "deflate":
			z = zlib.NewWriter(&packed)
		default:
			w.Header().Set("Content-Encoding", encoding)
		}
		if z == nil {
			packed.WriteString(body)
		} else {
			w.Header().Set("Content-Encoding", packing)
			_, _ = io.WriteString(z, body)
			_ = z.Close()
		}
		for b := packed.Bytes(); len(b) > 0; b = b[min(chunk, len(b)):] {
			if _, err := w.Write(b[:min(chunk, len(b))]); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// An answer that may be cut is asked for again: its text is not an answer.
func TestAnswerThatMayBeCutIsNoAnswer(t *testing.T) {
	t.Parallel()
	piece := func(finish string) string {
		return `{"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":` + finish + `}]}`
	}
	data := func(pieces ...string) string { return "data: " + strings.Join(pieces, "\n\ndata: ") + "\n\n" }
	const complete = ""
	for _, c := range []struct {
		name   string
		server http.HandlerFunc
		says   string // of the fault; complete for an answer
	}{
		{"a finish reason", streams(data(piece(`"stop"`))), complete},
		{"a finish reason and a broken connection", aborts(streams(data(piece(`"length"`)))), complete},
		{"an unknown finish reason", streams(data(piece(`"eos_token"`))), complete},
		{"a finish reason that is an object", streams(data(piece(`{"type":"stop","matched":2}`))), complete},
		{"[DONE]", streams(data(piece("null"), "[DONE]")), complete},
		{"[DONE] and a broken connection", aborts(streams(data(piece(`""`), "[DONE]"))), complete},
		{"a whole answer", whole(`{"choices":[{"message":{"content":"half"},"finish_reason":null}]}`), complete},
		{"empty finish reasons", streams(data(piece(`""`), piece(`""`))), "without a finish reason"},
		{"empty finish reasons and a broken connection", aborts(streams(data(piece(`""`)))), "before the answer did"},
		{"no finish reason", streams(data(piece("null"))), "without a finish reason"},
		{"no finish reason before the usage", streams(data(piece("null"), pieceUsage)), "without a finish reason"},
		{"no finish reason and a broken connection", aborts(streams(data(piece("null")))), "before the answer did"},
		{"a value per line without an end", whole(piece("null") + "\n" + piece("null") + "\n"), "without a finish reason"},
		{"one piece as JSON", whole(piece("null")), "without a finish reason"},
		{"a cut whole answer", aborts(whole(wholeHello[:90])), "before the answer did"},
		{"a cut whole answer whose length is unknown", closes(wholeHello[:90]), "before the answer did"},
		{"a cut event", closes("data: " + wholeHello[:90]), "before the answer did"},
		{"a length that is not reached", short(wholeHello), complete},
		{"a length that is not reached, of half", short(wholeHello[:90]), "before the answer did"},
		{"cut gzip", cutGzip(data(piece(`null`))), "before the answer did"},
		{"gave up: abort", streams(data(piece(`"abort"`), "[DONE]")), "aborted"},
		{"gave up: cancelled", whole(`{"choices":[{"message":{"content":"half"},"finish_reason":"cancelled"}]}`), "aborted"},
		{"gave up: no resources", streams(data(piece(`"insufficient_system_resource"`))), "aborted"},
		{"an error event", streams(data(piece("null")) + "event: error\ndata: overloaded\n\ndata: [DONE]\n\n"), "overloaded"},
		{"an error in a list", whole(`[{"error":{"message":"overloaded","code":500}}]`), "overloaded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, err := ask(t, serve(t, c.server), hello)
			switch {
			case c.says == complete && (err != nil || !strings.HasPrefix(a.Text, "h") && a.Text != "Hello"):
				t.Errorf("%+v, %v", a, err)
			case c.says != complete && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%+v, %v; want the fault %q", a, err, c.says)
			case c.says != complete && !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Corrupt):
				t.Errorf("%v is %v, and not asked again", err, fault.KindOf(err))
			}
		})
	}
}

// aborts breaks the connection after what h sends.
func aborts(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// hijacked writes raw bytes to the connection and closes it.
func hijacked(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, response)
	}
}

// closes sends a body whose end is the end of the connection.
func closes(body string) http.HandlerFunc {
	return hijacked("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body)
}

// short promises more bytes than it sends.
func short(body string) http.HandlerFunc {
	return hijacked(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		len(body)+50, body))
}

// cutGzip sends a gzip archive without its end.
func cutGzip(body string) http.HandlerFunc {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, body)
	_ = z.Flush()
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		sends(200, "text/event-stream", packed.String())(w, r)
	}
}

func TestUnpackedAnswersAreBounded(t *testing.T) {
	t.Parallel()
	bomb := `{"choices":[{"message":{"content":"` + strings.Repeat("a", 64<<20) + `"},"finish_reason":"stop"}]}`
	_, err := ask(t, serve(t, sendsPacked("gzip", "application/json", bomb, 1<<20)), hello)
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "larger") {
		t.Errorf("%v (%v)", err, fault.KindOf(err))
	}
	_, err = ask(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		sends(400, "application/json", "\x1f\x8b"+strings.Repeat("x", 100))(w, r)
	}), hello)
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("a damaged archive: %v (%v)", err, fault.KindOf(err))
	}
}

func TestMessageOfPackedErrorIsRead(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"error":{"message":"maximum context length is 10","code":400}}`)
	_ = z.Close()
	_, err := ask(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		sends(400, "application/json", packed.String())(w, r)
	}), hello)
	if fault.ClassOf(err) != fault.TooLong {
		t.Errorf("%v", err)
	}
}
