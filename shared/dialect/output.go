package dialect

import (
	"bytes"
	"slices"

	"rollout/shared/grade"
	"rollout/shared/jsonl"
)

// AppendOutput appends the output row of an answered item: one line of valid JSON that
// ends in LF and has no other line break, for every answer of an engine. Except for the
// time, the row is the same on every machine.
//
// The row repeats the line's own bytes as they were written. The line's unknown members
// follow the row's members, in order. A member whose name the row needs itself gets
// "input_" before its name, so that no member is lost and no name is repeated.
func AppendOutput(dst []byte, it *Item, m Model, r Result) []byte {
	w := row{b: append(slices.Grow(dst, outputSize(it, m, r)), '{'), graded: len(r.Scores) > 0}
	switch it.dialect {
	case OpenAI:
		w.openAI(it, m, r)
	case Bedrock:
		w.bedrock(it, m, r)
	case Vertex:
		w.vertex(it, m, r)
	default:
		w.plain(it, m, r)
	}
	if w.graded {
		w.b = append(append(w.b, r.Scores...), ',')
	}
	if len(r.Agent) > 0 {
		w.raw("agent", r.Agent)
	}
	own := it.dialect == Plain && !r.first().Rest.empty()
	w.extra(it, own)
	return w.close()
}

// outputSize estimates the size of an output row in bytes. Few rows are longer.
func outputSize(it *Item, m Model, r Result) int {
	const names, escapes = 512, 16 // one of 16 bytes needs an escape
	size := names + len(r.Scores) + len(it.rawID) + len(it.Request) + len(m.Params) + len(m.URI)
	for _, a := range r.Answers {
		size += len(a.Text) + len(a.Text)/escapes + len(a.Reasoning) + len(a.ToolCalls) + len(a.Logprobs) + names
		size += len(a.Rest.Message) + len(a.Rest.Choice) + len(a.Rest.Usage) + len(a.Rest.Body)
	}
	for _, e := range it.extra {
		size += len(e.RawName) + len(e.Value) + len(prefix) + 2
	}
	return size
}

// first returns the first answer.
func (r Result) first() Answer {
	if len(r.Answers) == 0 {
		return Answer{}
	}
	return r.Answers[0]
}

// usage returns the tokens of all answers. It counts the prompt once, as for one request
// with n answers.
func (r Result) usage() Usage {
	u := Usage{PromptTokens: r.first().Usage.PromptTokens}
	for _, a := range r.Answers {
		u.CompletionTokens += a.Usage.CompletionTokens
		u.Unknown = u.Unknown || a.Usage.Unknown
	}
	return u
}

// prefix marks a member of the input whose name the row needs itself.
const prefix = "input_"

// isReserved reports whether output rows of the dialect have a member with that name.
func isReserved(d Name, name []byte) bool {
	switch string(name) {
	case copyOf:
		return true
	case "id":
		return d == Plain || d == OpenAI
	case "completion", "completions", "sampling_params", "model_uri", "finish_reason", "reasoning", "tool_calls",
		"logprobs", "max_tokens_clamped", "model_content_id", "completion_blob_id", "usage", "generated_at":
		return d == Plain
	case "response":
		return d == OpenAI || d == Vertex
	case "error":
		return d == OpenAI || d == Bedrock
	case "modelOutput", "modelOutputs":
		return d == Bedrock
	case "status", "processed_time":
		return d == Vertex
	}
	return false
}

// extra writes the unknown members of the line. Response says that the plain row has
// a member response of its own.
func (w *row) extra(it *Item, response bool) {
	for _, m := range it.extra {
		if isReserved(it.dialect, m.Name) || response && string(m.Name) == "response" ||
			w.graded && slices.Contains(grade.Members, string(m.Name)) {
			w.b = jsonl.AppendQuoted(w.b, freeName(m.Name, it.extra))
		} else {
			w.b = append(w.b, m.RawName...)
		}
		w.b = append(w.b, ':')
		if bytes.ContainsAny(m.Value, "\r\n") {
			w.b = jsonl.Compact(w.b, m.Value)
		} else {
			w.b = append(w.b, m.Value...)
		}
		w.b = append(w.b, ',')
	}
}

// freeName puts prefix before name until no other member has that name.
func freeName(name []byte, others []jsonl.Member) string {
	for free := prefix + string(name); ; free = prefix + free {
		taken := slices.ContainsFunc(others, func(m jsonl.Member) bool { return string(m.Name) == free })
		if !taken {
			return free
		}
	}
}
