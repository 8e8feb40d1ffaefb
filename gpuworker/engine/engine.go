// Package engine is the worker's port to an inference server or an in-process
// model. A request goes in; an answer or a classified fault comes out.
//
// The implementations are openai (any OpenAI-compatible HTTP server), balancer
// (several servers as one engine), tiny (the built-in model) and mock (answers
// without a model). Package enginetest is their conformance suite. An engine
// never retries a request, never sees a run or a shard, and never decides
// whether a fault is charged to an item.
package engine

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"rollout/shared/core/ratelimit"
)

// Endpoint is the kind of request. Example: "chat".
type Endpoint string

// The endpoints of requests.
const (
	Chat       Endpoint = "chat"       // /v1/chat/completions
	Completion Endpoint = "completion" // /v1/completions
	Responses  Endpoint = "responses"  // /v1/responses
	Embeddings Endpoint = "embeddings" // /v1/embeddings
	Rerank     Endpoint = "rerank"     // /v1/rerank
	Score      Endpoint = "score"      // /v1/score
)

// Options are what a run asks of its requests beside their bodies. They are shared by
// many requests and do not change.
type Options struct {
	Header          http.Header // besides the client's own
	Query           url.Values  // added to the URL
	Whole           bool        // answers are never streamed
	NoStreamOptions bool        // a stream is not asked for its token counts
}

// Request asks for one answer: n is always 1, and the executor makes n requests.
type Request struct {
	Endpoint Endpoint
	// Body is the JSON object to post: model, prompt or messages, sampling
	// parameters and seed. It lacks stream and stream_options, which the client
	// adds. The bytes are deterministic and are sent as they are. An engine does
	// not read them after Answer has returned.
	Body []byte
	// Exclusive asks for a server that works on nothing else, as far as the
	// server reports that. The request waits a bounded time for it. The caller
	// has nothing else in flight.
	Exclusive bool
	// CountTokens asks for the best estimate of the answer's tokens if the server
	// does not report them: by the server's tokenizer, if it has one.
	CountTokens bool
	// FitMaxTokens lowers a max_tokens that does not fit the model's context, as the
	// user has not asked for it.
	FitMaxTokens bool
	// Servers names those that may get the request, of an engine with several; nil is any.
	Servers []string
	// Path replaces that of the Endpoint, from the root of the server; "" does not.
	// Its answer may be any JSON object.
	Path string
	// Model tells the model from others of the engine. Example: "Qwen/Qwen2.5-0.5B".
	Model string
	// MaxTokens is the most tokens that the answer may have; 0 if that is not known.
	MaxTokens int64
	// Streamed asks for a stream where the engine would choose a whole answer.
	Streamed bool
	// Whole asks for an answer that is not streamed. The caller finds out by itself
	// whether the server works on it.
	Whole bool
	// Options may be nil.
	Options *Options
}

// Answer is a complete answer. Text may hold any Unicode, including U+2028.
type Answer struct {
	Text         string
	FinishReason string          // "stop", "length", "tool_calls", …; "" for null
	Reasoning    string          // reasoning_content, if the server separates it
	ToolCalls    json.RawMessage // joined of their pieces; nil without any
	Logprobs     json.RawMessage // nil without any
	Model        string          // the model that answered, by the server's word
	Server       string          // which one answered, of an engine with several
	Usage        Usage
	Rest         Rest
	// RateLimit is what the server says about its limits with the answer.
	RateLimit ratelimit.Report
	// MaxTokens is the value to which max_tokens was lowered, because the
	// requested one did not fit the model's context; 0 if it was not lowered.
	MaxTokens int64
}

// Rest is what a server sends besides the fields of an Answer: refusals, annotations,
// token ids, usage details and whatever else. Each is a JSON object, nil without any
// member, and the same whether the answer is streamed or whole. Members that differ
// in every answer (id, created, system_fingerprint, timings) are left out, and so are
// those that are null or empty.
type Rest struct {
	Message json.RawMessage // of choices[0].message
	Choice  json.RawMessage // of choices[0]
	Usage   json.RawMessage // of usage
	Body    json.RawMessage // of the answer itself
	// SaysReasoning says that the server calls the member with the Reasoning
	// reasoning, and not reasoning_content.
	SaysReasoning bool
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	// CachedTokens are those of PromptTokens that the server had in its cache, and
	// ReasoningTokens those of CompletionTokens that are a model's reasoning; 0 where it does
	// not report them.
	CachedTokens    int64 `json:"-"`
	ReasoningTokens int64 `json:"-"`
	// Unknown says that the server did not report both numbers: they are then
	// estimates, for budgets, rates and wasted tokens.
	Unknown bool `json:"-"`
}

// Engine answers requests. All methods are safe for concurrent use.
//
// Answer calls progress (never nil) at each sign that the server works on this
// request: at the response headers, at every streamed piece, and as long as something
// else vouches for a whole answer. It may call it from another goroutine, and does not
// after it has returned. Faults are *fault.Error values:
//
//	Invalid      a fault of the request; class too_long, or refused (any 4xx not listed below)
//	Throttled    429, 503, 408 or 425; RetryAfter is the server's hint
//	Unavailable  no connection, or it broke before the answer ended: the server may have crashed
//	Corrupt      class engine: 5xx, a 200 without choices, malformed or oversized answers,
//	             answers that end in error or abort, white space instead of a required shape
//	Denied       401, 402 or 403: the key is wrong or unpaid, for every request;
//	             or a 404 that says that the server does not have the model
//	Canceled     ctx ended first
//
// StatusError in the chain says what the server answered, RateLimitOf what that says
// about its limits, and ServerOf which one it was. ServerError says that the whole server
// may be at fault, and PartialUsage what the failed request cost. CrashError, HangError,
// WholeError and ErrWhitespace say what happened.
type Engine interface {
	Answer(ctx context.Context, r Request, progress func()) (Answer, error)
	// Ready returns the name of the served model once the engine can answer, and
	// Unavailable while it loads or is down.
	Ready(ctx context.Context) (model string, err error)
	// Close releases connections and memory. Answers in flight fail with
	// Unavailable.
	Close() error
}
