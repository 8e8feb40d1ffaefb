package dialect

import (
	"cmp"
	"encoding/json"
	"slices"
)

// noReason is the name of the reason of answers for which the server gave none.
const noReason = "none"

// HasFinishReason reports whether an answer in an output row that AppendOutput wrote has
// one of the finish reasons, named as the server named them; "none" is an answer without
// a reason. The vertex dialect tells only stop, length and none from all others.
func HasFinishReason(d Name, row []byte, reasons []string) bool {
	name := func(reason string) string { return reason }
	switch d {
	case Bedrock:
		name = bedrockReason
	case Vertex:
		name = vertexReason
	}
	got := finishReasons(d, row)
	return slices.ContainsFunc(reasons, func(r string) bool {
		if r == noReason {
			r = ""
		}
		return slices.Contains(got, name(r))
	})
}

// finishReasons returns the finish reasons in an output row, as the dialect writes them;
// "" is none. A row that cannot be read has no reason.
func finishReasons(d Name, row []byte) (reasons []string) {
	switch d {
	case OpenAI:
		var r struct{ Response struct{ Body openAIEnds } }
		if json.Unmarshal(row, &r) == nil {
			reasons = r.Response.Body.reasons()
		}
	case Bedrock:
		type message struct {
			StopReason string `json:"stop_reason"`
		}
		var r struct {
			ModelOutput  message
			ModelOutputs []message
		}
		if json.Unmarshal(row, &r) == nil {
			all := r.ModelOutputs // of several answers, the first among them
			if len(all) == 0 {
				all = []message{r.ModelOutput}
			}
			for _, m := range all {
				reasons = append(reasons, m.StopReason)
			}
		}
	case Vertex:
		var r struct {
			Response struct {
				Candidates []struct{ FinishReason string }
			}
		}
		if json.Unmarshal(row, &r) == nil {
			for _, c := range r.Response.Candidates {
				reasons = append(reasons, c.FinishReason)
			}
		}
	default:
		answers, err := ReadCompletions(row)
		for _, a := range answers {
			if err == nil {
				reasons = append(reasons, a.FinishReason)
			}
		}
	}
	return reasons
}

// openAIEnds is how the answers of an OpenAI body ended.
type openAIEnds struct {
	Choices []struct {
		FinishReason string `json:"finish_reason"`
	}
	Status     string                  // of a response
	Incomplete struct{ Reason string } `json:"incomplete_details"`
}

func (b openAIEnds) reasons() (out []string) {
	for _, c := range b.Choices {
		out = append(out, c.FinishReason)
	}
	if len(out) > 0 {
		return out
	}
	switch { // as the engine names them
	case b.Status == "completed":
		return []string{"stop"}
	case b.Incomplete.Reason == "max_output_tokens":
		return []string{"length"}
	case b.Status == "incomplete":
		return []string{cmp.Or(b.Incomplete.Reason, b.Status)}
	}
	return []string{""}
}
