package agentproxy

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"rollout/shared/fault"
)

// request is what an agent asks, as its server gets it.
type request struct {
	path      string
	body      []byte
	answers   int64 // that it asks for
	maxTokens int64 // of each; 0 if it does not say
	stream    bool
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
	switch {
	case r.path == "embeddings":
		return 0
	case r.maxTokens == 0:
		return unboundedAnswer * r.answers
	}
	return r.maxTokens * r.answers
}

// abandoned returns how many tokens of answers a request is charged for whose agent has left. Of
// a stream it has seen all that there were.
func (r request) abandoned() int64 {
	if r.stream {
		return 0
	}
	return r.completionTokens()
}

// boundMembers are the members that bound an answer.
var boundMembers = []string{"max_tokens", "max_completion_tokens", "max_output_tokens"}

// clamp bounds the answers to a number of tokens together, and to one token each at least.
func (r *request) clamp(tokens int64) {
	most := max(1, tokens/r.answers)
	var members map[string]json.RawMessage
	if r.completionTokens() <= most*r.answers || json.Unmarshal(r.body, &members) != nil {
		return
	}
	bound := json.RawMessage(strconv.FormatInt(most, 10))
	given := false
	for _, name := range boundMembers {
		if v, ok := members[name]; ok && string(v) != "null" {
			members[name], given = bound, true
		}
	}
	switch {
	case given:
	case r.path == "responses":
		members["max_output_tokens"] = bound
	default:
		members["max_tokens"] = bound
	}
	if body, err := json.Marshal(members); err == nil {
		r.body, r.maxTokens = body, most
	}
}

func (r request) tokens() int64 { return r.promptTokens() + r.completionTokens() }

// parse reads a body, drops or refuses what agents may not send, names the model in it, and lets a
// stream end with the count of its tokens. Its errors are Invalid, or a *violation of a body with a
// member that is refused.
func parse(path, model string, body []byte) (r request, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return r, fault.New(fault.Invalid, "the body is not a JSON object")
	}
	for _, name := range droppedMembers {
		delete(members, name)
	}
	for _, name := range slices.Sorted(maps.Keys(members)) { // the first of several is the same each time
		if v := admit(path, name, members[name]); v != nil {
			return r, v
		}
	}
	if path == "responses" {
		members["store"] = json.RawMessage("false") // else it is true
	}
	if members["model"], err = json.Marshal(model); err != nil {
		return r, fault.WithKind(fault.Invalid, err, "name the model")
	}
	r.path, r.answers = path, 1
	for _, name := range []string{"n", "best_of"} {
		var n *int64
		if v, given := members[name]; given && (json.Unmarshal(v, &n) != nil || n != nil && (*n < 1 || *n > maxAnswers)) {
			return r, fault.New(fault.Invalid, "%s is not a number from 1 to %d", name, maxAnswers)
		}
		if n != nil {
			r.answers = max(r.answers, *n)
		}
	}
	if r.answers *= prompts(members["prompt"]); r.answers > maxAnswers {
		return r, fault.New(fault.Invalid, "it asks for %d answers, at most %d are allowed", r.answers, maxAnswers)
	}
	for _, name := range boundMembers {
		var n *int64
		if v, given := members[name]; given && (json.Unmarshal(v, &n) != nil || n != nil && (*n < 0 || *n > 1<<40)) {
			return r, fault.New(fault.Invalid, "%s is not a number of tokens", name)
		}
		if n != nil {
			r.maxTokens = max(r.maxTokens, *n)
		}
	}
	if r.stream, err = countStream(path, members); err != nil {
		return r, err
	}
	r.body, err = json.Marshal(members)
	return r, fault.WithKind(fault.Invalid, err, "write the body")
}

// prompts returns how many prompts a member has: a list of texts or of lists of tokens has
// several, and all else is one.
func prompts(member json.RawMessage) int64 {
	var list []json.RawMessage
	if json.Unmarshal(member, &list) != nil || len(list) == 0 || list[0][0] != '"' && list[0][0] != '[' {
		return 1
	}
	return int64(len(list))
}

// countStream lets a stream end with the count of its tokens. It reports whether the answer is one.
func countStream(path string, members map[string]json.RawMessage) (bool, error) {
	var stream *bool
	if v, given := members["stream"]; given && json.Unmarshal(v, &stream) != nil {
		return false, fault.New(fault.Invalid, "stream is not true or false") // some servers take others for true
	}
	if stream == nil || !*stream || path == "responses" { // which always end with it
		return stream != nil && *stream, nil
	}
	options := map[string]json.RawMessage{}
	if given, ok := members["stream_options"]; ok && json.Unmarshal(given, &options) != nil {
		return true, fault.New(fault.Invalid, "stream_options is not an object")
	}
	if options == nil { // it was null
		options = map[string]json.RawMessage{}
	}
	options["include_usage"] = json.RawMessage("true")
	text, err := json.Marshal(options)
	members["stream_options"] = text
	return true, fault.WithKind(fault.Invalid, err, "write stream_options")
}
