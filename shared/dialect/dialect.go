// Package dialect reads the four formats of input lines and writes the rows that
// answer them: plain, OpenAI batch, Bedrock and Vertex.
//
// Parse turns a line into an Item, Item.Body turns an Item into the body of a request,
// and AppendOutput and AppendError turn answers and failures into rows. All bytes are
// the same on every machine (I10, see shared/README.md). Numbers, escapes and the order
// of keys stay as they were written. The package does no I/O, and buffers at most a
// line.
//
// Bedrock and Vertex requests become chat requests. Content that a chat request cannot
// express (images, tools, a schema) is an error of that line, and is never omitted
// silently. Text parts of one message are joined by a newline, as servers do.
package dialect

import (
	"encoding/json"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Name is the name of a dialect. All lines of a file have the same. Example: "openai".
type Name string

// The dialects.
const (
	Plain   Name = "plain"   // {"prompt": …} or {"messages": […]}, optional id
	OpenAI  Name = "openai"  // {"custom_id", "method", "url", "body"}
	Bedrock Name = "bedrock" // {"recordId", "modelInput"}, messages style
	Vertex  Name = "vertex"  // {"request": {"contents": …}}
)

// Endpoint is the kind of a line's request. Example: "chat".
type Endpoint string

// The endpoints.
const (
	Chat       Endpoint = "chat"
	Completion Endpoint = "completion"
	Responses  Endpoint = "responses"
	Embeddings Endpoint = "embeddings"
	Rerank     Endpoint = "rerank"
	Score      Endpoint = "score"
)

// Samples reports whether requests to the endpoint have sampling parameters and a seed.
func (e Endpoint) Samples() bool { return e == Chat || e == Completion }

// Answer is the answer of an engine to one decode of an item.
type Answer struct {
	Text             string
	FinishReason     string
	Reasoning        string
	ToolCalls        json.RawMessage
	Logprobs         json.RawMessage
	Usage            Usage
	Rest             Rest
	ClampedMaxTokens int64 // max_tokens after it was lowered to fit the model's context; 0 if it was not
}

// Rest is what the server sent besides the fields of an Answer, as JSON objects: the
// further members of choices[0].message, of choices[0], of usage and of the answer
// itself. They are nil without any. SaysReasoning says that the server calls the
// message's member reasoning, and not reasoning_content.
type Rest struct {
	Message       json.RawMessage
	Choice        json.RawMessage
	Usage         json.RawMessage
	Body          json.RawMessage
	SaysReasoning bool
}

// Usage is the number of tokens of a request. Rows have null for numbers that are
// Unknown.
type Usage struct {
	PromptTokens     int64
	CompletionTokens int64
	// CachedTokens and ReasoningTokens are parts of the two, as far as the server reports
	// them. Rows have them among what else the server sent.
	CachedTokens, ReasoningTokens int64

	Unknown bool
}

// Model describes the model of a run and its settings, for item ids and output rows.
type Model struct {
	URI     string
	ID      identity.ContentID
	Params  []byte // config.Sampling.Canonical()
	Request []byte // config.Request.Canonical(); nil without settings
	// Original, if not nil, is the model by whose settings ids are computed: that of the
	// run which first asked the items, if they are asked again with other settings.
	Original *Model
}

// NewModel returns the Model of a run with the config.
func NewModel(uri string, id identity.ContentID, c config.Run) Model {
	return Model{URI: uri, ID: id, Params: c.Sampling.Canonical(), Request: c.Request.Canonical()}
}

// Place is the origin of an item.
type Place struct {
	Item uint64 // the item index in the run
	File string // the label of the input
	Line uint64 // the line in the file, from 1, blank lines included
}

// Result is an answered item.
type Result struct {
	ID          string   // the item's own id, or its item id in hex
	Answers     []Answer // one for each decode, in order
	GeneratedAt time.Time
	// Scores are the row's members with the scores of its answers, as
	// grade.AppendMembers writes them; empty in a run without graders.
	Scores []byte
	// Agent is the JSON of what is known of the agent that answered; empty of a model.
	Agent []byte
}

// Failure is a failed item. Use Item.Failure to create one.
type Failure struct {
	ID      string // the item's own id if it is readable, else the item id; "" if both are unknown
	Place   Place
	Class   fault.Class
	Message string

	rawID []byte // as written in the line; nil if unknown
}
