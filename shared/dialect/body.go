package dialect

import (
	"math"
	"slices"
	"strconv"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/jsonl"
)

// AnswerCount returns how many answers the item gets: the number in the line, or else the
// run's n, or else 1.
func (it *Item) AnswerCount(s config.Sampling) int {
	switch {
	case it.N > 0:
		return it.N
	case s.N != nil && *s.N > 0:
		return *s.N
	}
	return 1
}

// ItemID returns the id of the item at the index of its run. It is of version 2 if the
// row has parameters of its own, or the run has settings of its requests.
func (it *Item) ItemID(m Model, index uint64) identity.ContentID {
	if m.Original != nil {
		m = *m.Original
	}
	if len(it.params) == 0 && len(m.Request) == 0 {
		return identity.Item(m.ID, it.Request, m.Params, index)
	}
	more := []byte{'{'}
	if len(it.params) > 0 {
		more = append(append(more, `"parameters":`...), it.params...)
	}
	if len(m.Request) > 0 {
		if len(more) > 1 {
			more = append(more, ',')
		}
		more = append(append(more, `"request":`...), m.Request...)
	}
	return identity.Item2(m.ID, it.Request, m.Params, append(more, '}'), index)
}

// RowID returns the line's own id, or the item id in hex.
func (it *Item) RowID(item identity.ContentID) string {
	if it.HasID {
		return it.ID
	}
	return item.String()
}

// Prompt returns what the model reads, as the request has it: the tools, which servers
// put before the chat, and the prompt or the messages.
func (it *Item) Prompt() (tools, prompt []byte) {
	for _, m := range it.body {
		switch string(m.Name) {
		case "tools":
			tools = m.Value
		case "prompt", "messages":
			prompt = m.Value
		}
	}
	return tools, prompt
}

// MaxTokens returns the most tokens that an answer may have, by the line or else by the
// run's params; 0 if neither bounds it.
func (it *Item) MaxTokens(s config.Sampling) int64 {
	for _, m := range it.body {
		switch string(m.Name) {
		case "max_tokens", "max_completion_tokens":
			n, _ := strconv.ParseInt(string(m.Value), 10, 64) // the server refuses what is not a number
			return max(0, n)
		}
	}
	if s.MaxTokens != nil {
		return int64(*s.MaxTokens)
	}
	return 0
}

// Body appends the request for decode 0, 1, … of the item, the same bytes on every
// machine. Members of the line stay as they were written, in their order, except for
// these: the model is the run's, and n, stream and stream_options are omitted. Sampling
// params of the run follow for members that the line does not have. A seed is always
// there.
func (it *Item) Body(dst []byte, modelURI string, s config.Sampling, item identity.ContentID, decode int) []byte {
	dst = append(slices.Grow(dst, it.bodySize(modelURI)), '{')
	has := present{}
	for _, m := range it.body {
		has.add(m.Name)
	}
	if !has.model {
		dst = append(dst, `"model":`...)
		dst = append(jsonl.AppendString(dst, modelURI), ',')
	}
	for _, m := range it.body {
		switch string(m.Name) {
		case "n", "stream", "stream_options":
			continue
		case "model":
			dst = append(dst, `"model":`...)
			dst = jsonl.AppendString(dst, modelURI)
		case "seed":
			if m.Value[0] == 'n' {
				continue
			}
			has.seed = true
			dst = append(dst, `"seed":`...)
			dst = appendSeed(dst, m.Value, decode)
		default:
			dst = append(dst, m.RawName...)
			dst = append(dst, ':')
			dst = append(dst, m.Value...)
		}
		dst = append(dst, ',')
	}
	dst = has.fill(dst, it.Endpoint, s)
	if !has.seed {
		dst = append(dst, `"seed":`...)
		if s.Seed != nil {
			dst = appendSeed(dst, strconv.AppendInt(nil, *s.Seed, 10), decode)
		} else {
			dst = strconv.AppendUint(dst, uint64(identity.Seed(item, uint32(decode))), 10)
		}
		dst = append(dst, ',')
	}
	dst[len(dst)-1] = '}'
	return dst
}

// bodySize estimates the size of a body in bytes. Only with unusually long sampling params
// a body is longer.
func (it *Item) bodySize(modelURI string) int {
	const params = 256
	size := params + len(modelURI)
	for _, m := range it.body {
		size += len(m.RawName) + len(m.Value) + 2
	}
	return size
}

// appendSeed appends the seed of a decode. For decode 0 it is as written.
func appendSeed(dst, written []byte, decode int) []byte {
	if decode == 0 {
		return append(dst, written...)
	}
	return strconv.AppendUint(dst, uint64(identity.DecodeSeed(written, uint32(decode))), 10)
}

// present records the members of a body, so that the run's params do not repeat them.
type present struct {
	model, seed, temperature, topP, topK, minP bool
	repetition, presence, frequency, maxTokens bool
	stop, logprobs                             bool
}

func (w *present) add(name []byte) {
	switch string(name) {
	case "model":
		w.model = true
	case "temperature":
		w.temperature = true
	case "top_p":
		w.topP = true
	case "top_k":
		w.topK = true
	case "min_p":
		w.minP = true
	case "repetition_penalty":
		w.repetition = true
	case "presence_penalty":
		w.presence = true
	case "frequency_penalty":
		w.frequency = true
	case "max_tokens", "max_completion_tokens":
		w.maxTokens = true
	case "stop":
		w.stop = true
	case "logprobs", "top_logprobs":
		w.logprobs = true
	}
}

// fill appends the run's params that the body lacks, each followed by a comma.
func (w *present) fill(dst []byte, e Endpoint, s config.Sampling) []byte {
	dst = fillFloat(dst, w.temperature, "temperature", s.Temperature)
	dst = fillFloat(dst, w.topP, "top_p", s.TopP)
	dst = fillInt(dst, w.topK, "top_k", s.TopK)
	dst = fillFloat(dst, w.minP, "min_p", s.MinP)
	dst = fillFloat(dst, w.repetition, "repetition_penalty", s.RepetitionPenalty)
	dst = fillFloat(dst, w.presence, "presence_penalty", s.PresencePenalty)
	dst = fillFloat(dst, w.frequency, "frequency_penalty", s.FrequencyPenalty)
	dst = fillInt(dst, w.maxTokens, "max_tokens", s.MaxTokens)
	if !w.stop && len(s.Stop) > 0 {
		dst = append(dst, `"stop":[`...)
		for _, stop := range s.Stop {
			dst = append(jsonl.AppendString(dst, stop), ',')
		}
		dst[len(dst)-1] = ']'
		dst = append(dst, ',')
	}
	if w.logprobs || s.Logprobs == nil {
		return dst
	}
	if e == Completion {
		return fillInt(dst, false, "logprobs", s.Logprobs)
	}
	dst = append(dst, `"logprobs":true,`...)
	return fillInt(dst, false, "top_logprobs", s.Logprobs)
}

func fillFloat(dst []byte, present bool, name string, v *float64) []byte {
	if present || v == nil {
		return dst
	}
	return append(appendFloat(appendName(dst, name), *v), ',')
}

func fillInt(dst []byte, present bool, name string, v *int) []byte {
	if present || v == nil {
		return dst
	}
	return append(strconv.AppendInt(appendName(dst, name), int64(*v), 10), ',')
}

// appendName appends a name that needs no escapes, and a colon.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// appendFloat appends the shortest text of v, in the form of encoding/json.
func appendFloat(dst []byte, v float64) []byte {
	if abs := math.Abs(v); abs == 0 || abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, v, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, v, 'e', -1, 64)
	if n := len(dst); n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst
}
