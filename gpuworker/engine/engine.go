// Package engine is the worker's port to an inference server or an in-process
// model: a request in, an answer or a classified fault out.
//
// Implementations: openai (any OpenAI-compatible HTTP server) and mock
// (deterministic, in process). Engines never retry, never see a run or a
// shard, and never decide whether a fault is charged to an item.
package engine

import (
	"context"
	"encoding/json"
)

// Endpoint is the kind of request. Example: "chat".
type Endpoint string

// The endpoints that requests are made for.
const (
	Chat       Endpoint = "chat"       // /v1/chat/completions
	Completion Endpoint = "completion" // /v1/completions
)

// Request is one question with one answer (n is always 1; the executor
// expands n).
type Request struct {
	Endpoint Endpoint
	// Body is the JSON object to post: model, prompt or messages, sampling
	// parameters and seed; without stream and stream_options, which the
	// client adds. Bytes are deterministic and must be sent as they are. An
	// engine does not read them after it has answered.
	Body []byte
	// Exclusive asks for a server that works on nothing else, as far as it says
	// what it works on: the request waits a bounded time for that. The caller
	// has nothing else in flight meanwhile.
	Exclusive bool
}

// Answer is a complete answer. Text may hold any Unicode, also U+2028.
type Answer struct {
	Text         string
	FinishReason string          // "stop", "length", "tool_calls", …; "" for null
	Reasoning    string          // reasoning_content, where a server separates it
	ToolCalls    json.RawMessage // as the server sent them, merged; nil if none
	Logprobs     json.RawMessage // nil if none
	Model        string          // the model that the server says answered
	Usage        Usage
	// MaxTokens is what max_tokens was lowered to, because what was asked for
	// did not fit the model's context; 0 if it was not.
	MaxTokens int64
}

// Usage counts tokens. Zero where the server does not say.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// CrashError is in the chain of an Unavailable fault if the server died, or was
// started anew, while the request was with it: the request may be why. A
// connection that breaks while the server lives on, and a request that never
// reached a server, are Unavailable without it.
type CrashError struct {
	Server string // which one. Example: "http://127.0.0.1:8000/v1"
	Start  string // names the start of the server that ended; "" if it does not say
	Solo   bool   // the server worked on nothing else, as far as it says
}

func (d *CrashError) Error() string {
	if d.Start == "" {
		return "the inference server " + d.Server + " died meanwhile"
	}
	return "the inference server " + d.Server + ", started at " + d.Start + ", died meanwhile"
}

// Engine answers requests; many at once.
//
// Answer calls progress (never nil) whenever the server shows a sign of work
// on this request: response headers and every streamed piece. Faults are
// *fault.Error values:
//
//	Invalid      the request's own fault; class too_long or refused (any 4xx but those below)
//	Throttled    429, 503, 408 or 425; RetryAfter is the server's hint
//	Unavailable  cannot connect, or the connection broke before an answer ended: the server may be dead
//	Corrupt      class engine: 5xx, a 200 without choices, malformed or oversized answers,
//	             answers that end in error or abort, white space where a shape was asked for
//	Denied       401, 402 or 403: the key is wrong, or unpaid, for every request;
//	             or a 404 that says that the server does not have the model
//	Canceled     ctx ended first
//
// Trouble in the chain says that the whole server may be at fault, Spent what
// the request cost all the same, Hung, Died and ErrBlank what they say.
type Engine interface {
	Answer(ctx context.Context, r Request, progress func()) (Answer, error)
	// Ready reports nil once the engine can answer, with the served model's
	// name; Unavailable while it loads or is down.
	Ready(ctx context.Context) (model string, err error)
	// Close releases connections and memory. In-flight answers fail.
	Close() error
}
