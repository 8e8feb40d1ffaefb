// Package dialect is the four shapes of input lines, and the rows that answer
// them: plain, OpenAI batch, Bedrock and Vertex.
//
// It turns one line into an Item, an Item into the body of a request, and
// answers and failures into output and error rows, byte for byte the same
// anywhere (invariant I10). It does no I/O, never buffers more than a line,
// and keeps numbers, escapes and key order as they were written.
//
// Bedrock and Vertex requests become chat requests. What can't be said in one
// (images, tools, a schema) is that line's error and never left out silently;
// text parts of one message are joined by a newline, as servers do.
package dialect

import (
	"encoding/json"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Name is a dialect. A file has one. Example: "openai".
type Name string

// The dialects.
const (
	Plain   Name = "plain"   // {"prompt": …} or {"messages": […]}, optional id
	OpenAI  Name = "openai"  // {"custom_id", "method", "url", "body"}
	Bedrock Name = "bedrock" // {"recordId", "modelInput"}, messages style
	Vertex  Name = "vertex"  // {"request": {"contents": …}}
)

// Endpoint is the kind of request a line makes. Example: "chat".
type Endpoint string

// The endpoints.
const (
	Chat       Endpoint = "chat"
	Completion Endpoint = "completion"
)

// Answer is one answer of an engine, to one decode of an item.
type Answer struct {
	Text             string
	FinishReason     string
	Reasoning        string
	ToolCalls        json.RawMessage
	Logprobs         json.RawMessage
	Usage            Usage
	ClampedMaxTokens int64 // what max_tokens was lowered to, to fit the model's context; 0 if it was not
}

// Usage counts tokens.
type Usage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// Model is what every output row of a run says about the model and its
// sampling params.
type Model struct {
	URI    string
	ID     identity.ContentID
	Params []byte // config.Sampling.Canonical()
}

// Place says where an item came from.
type Place struct {
	Item uint64 // item index in the run
	File string // the input object's key
	Line uint64 // line number in the file, from 1, blank lines included
}

// Result is an answered item: one answer a decode, in order.
type Result struct {
	ID          string // the item's own id, or its item id in hex
	Answers     []Answer
	GeneratedAt time.Time
}

// Failure is a failed item; Item.Failure makes one.
type Failure struct {
	ID      string // the item's own id if it has a readable one, else its item id; "" if neither is known
	Place   Place
	Class   fault.Class
	Message string

	rawID []byte // as written in the line; nil if not known
}
