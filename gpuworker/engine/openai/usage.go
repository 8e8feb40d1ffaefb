package openai

import (
	"math"
	"strconv"
	"strings"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// addUsage keeps an object of token counts. Servers that send one with every piece
// count up: the last one stands.
func (p *parts) addUsage(raw []byte) {
	if rawjson.IsObject(raw) && len(raw) <= maxErrorBody {
		p.usage = append(p.usage[:0], raw...)
	}
}

// tokens returns the answer's token counts, and the further members that the server
// counts, such as cached tokens: nil without any. Counts that are missing or not
// valid are unknown, and the number is then a token for each piece.
func (p *parts) tokens() (u engine.Usage, details []byte) {
	u = engine.Usage{PromptTokens: -1, CompletionTokens: -1}
	total := int64(-1)
	var further object
	// The object is a member of one that has been walked.
	_ = rawjson.Members(p.usage, func(name, v []byte) error {
		switch string(name) {
		case "prompt_tokens", "input_tokens": // the second in OpenAI's responses
			setCount(&u.PromptTokens, v)
		case "completion_tokens", "output_tokens":
			setCount(&u.CompletionTokens, v)
		case "total_tokens":
			setCount(&total, v)
		case "prompt_tokens_details", "input_tokens_details":
			setDetail(&u.CachedTokens, v, "cached_tokens")
			return further.add(name, v, 0)
		case "completion_tokens_details", "output_tokens_details":
			setDetail(&u.ReasoningTokens, v, "reasoning_tokens")
			return further.add(name, v, 0)
		default:
			if !strings.HasSuffix(string(name), "_time") { // differs in every answer
				return further.add(name, v, 0)
			}
		}
		return nil
	})
	if p.any && u.CompletionTokens < 0 { // vectors and scores are not generated
		if u.PromptTokens < 0 {
			u.PromptTokens = total
		}
		u.CompletionTokens = 0
	}
	u.CachedTokens = min(u.CachedTokens, max(u.PromptTokens, 0))
	u.ReasoningTokens = min(u.ReasoningTokens, max(u.CompletionTokens, 0))
	if u.Unknown = u.PromptTokens < 0 || u.CompletionTokens < 0; u.Unknown {
		u.PromptTokens = max(u.PromptTokens, 0)
		if u.CompletionTokens < 0 {
			u.CompletionTokens = p.pieces
		}
	}
	return u, further.json()
}

// maxCount bounds the tokens that are believed of a request: far above every context, and so
// low that sums of them and what they cost stay in their range.
const maxCount = 1 << 31

// setCount sets a count that is a whole number, such as 3 or 3.0.
func setCount(to *int64, v []byte) {
	f, err := strconv.ParseFloat(string(v), 64)
	if err == nil && f >= 0 && f < maxCount && f == math.Trunc(f) {
		*to = int64(f)
	}
}

// setDetail sets a count that is a member of an object of details.
func setDetail(to *int64, details []byte, member string) {
	if !rawjson.IsObject(details) {
		return
	}
	_ = rawjson.Members(details, func(name, v []byte) error { // it is part of one that has been walked
		if string(name) == member {
			setCount(to, v)
		}
		return nil
	})
}

// usageSoFar returns what the answer has cost so far, as far as it is known.
func (p *parts) usageSoFar() engine.Usage {
	u, _ := p.tokens()
	u.Unknown = false
	return u
}
