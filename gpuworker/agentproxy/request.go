package agentproxy

import (
	"encoding/json"

	"rollout/shared/fault"
)

// request is what an agent asks, as its server gets it.
type request struct {
	body      []byte
	answers   int64 // that it asks for
	maxTokens int64 // of each; 0 if it does not say
}

const (
	// maxAnswers bounds the answers of a request.
	maxAnswers = 128
	// bytesPerToken estimates tokens from JSON.
	bytesPerToken = 4
	// unboundedAnswer is what a request is believed to take that does not bound its answer.
	unboundedAnswer = 1024
)

func (r request) promptTokens() int64 { return max(1, int64(len(r.body))/bytesPerToken) }

func (r request) completionTokens() int64 {
	if r.maxTokens == 0 {
		return unboundedAnswer * r.answers
	}
	return r.maxTokens * r.answers
}

func (r request) tokens() int64 { return r.promptTokens() + r.completionTokens() }

// droppedMembers are members of requests that name other models, keep something at the server,
// let it answer later, uncounted, or be paid otherwise.
var droppedMembers = []string{"models", "route", "provider", "providers", "fallbacks", "background", "store",
	"service_tier", "metadata", "user", "safety_identifier", "previous_response_id", "conversation"}

// parse reads a body, names the model in it, and lets a stream end with the count of its
// tokens. Its errors are Invalid.
func parse(path, model string, body []byte) (r request, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return r, fault.New(fault.Invalid, "the body is not a JSON object")
	}
	for _, name := range droppedMembers {
		delete(members, name)
	}
	if members["model"], err = json.Marshal(model); err != nil {
		return r, fault.WithKind(fault.Invalid, err, "name the model")
	}
	r.answers = 1
	for _, name := range []string{"n", "best_of"} {
		var n *int64
		if v, given := members[name]; given && (json.Unmarshal(v, &n) != nil || n != nil && (*n < 1 || *n > maxAnswers)) {
			return r, fault.New(fault.Invalid, "%s is not a number from 1 to %d", name, maxAnswers)
		}
		if n != nil {
			r.answers = max(r.answers, *n)
		}
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens", "max_output_tokens"} {
		var n *int64
		if v, given := members[name]; given && (json.Unmarshal(v, &n) != nil || n != nil && (*n < 0 || *n > 1<<40)) {
			return r, fault.New(fault.Invalid, "%s is not a number of tokens", name)
		}
		if n != nil {
			r.maxTokens = max(r.maxTokens, *n)
		}
	}
	if err := countStream(path, members); err != nil {
		return r, err
	}
	r.body, err = json.Marshal(members)
	return r, fault.WithKind(fault.Invalid, err, "write the body")
}

// countStream lets a stream end with the count of its tokens.
func countStream(path string, members map[string]json.RawMessage) error {
	var stream *bool
	if v, given := members["stream"]; given && json.Unmarshal(v, &stream) != nil {
		return fault.New(fault.Invalid, "stream is not true or false") // some servers take others for true
	}
	if stream == nil || !*stream || path == "responses" { // which always end with it
		return nil
	}
	options := map[string]json.RawMessage{}
	if given, ok := members["stream_options"]; ok && json.Unmarshal(given, &options) != nil {
		return fault.New(fault.Invalid, "stream_options is not an object")
	}
	if options == nil { // it was null
		options = map[string]json.RawMessage{}
	}
	options["include_usage"] = json.RawMessage("true")
	text, err := json.Marshal(options)
	members["stream_options"] = text
	return fault.WithKind(fault.Invalid, err, "write stream_options")
}
