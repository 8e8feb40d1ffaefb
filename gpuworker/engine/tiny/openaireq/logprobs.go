package openaireq

import (
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/tinylm/sampling"
)

// chatLogprobs sets r.Logprobs from a chat's logprobs, a boolean, and
// top_logprobs, a number.
func (r *Request) chatLogprobs(b *body) error {
	var on bool
	if !absent(b.Logprobs) && json.Unmarshal(b.Logprobs, &on) != nil {
		return sampling.NewParamError("logprobs", "must be a boolean in a chat; set the number in top_logprobs")
	}
	top := int64(0)
	if b.TopLogprobs != nil {
		top = *b.TopLogprobs
	}
	switch {
	case top < 0 || top > sampling.MaxTop:
		return sampling.NewParamError("top_logprobs", "must be from 0 to %d, got %d", sampling.MaxTop, top)
	case top > 0 && !on:
		return sampling.NewParamError("top_logprobs", "needs logprobs to be true")
	case on:
		r.Logprobs = int(top)
	}
	return nil
}

// completionLogprobs sets r.Logprobs from a completion's logprobs, a number.
func (r *Request) completionLogprobs(b *body) error {
	if absent(b.Logprobs) {
		return nil
	}
	var top int64
	if json.Unmarshal(b.Logprobs, &top) != nil || top < 0 || top > sampling.MaxTop {
		return sampling.NewParamError("logprobs", "must be a number from 0 to %d in a completion", sampling.MaxTop)
	}
	r.Logprobs = int(top)
	return nil
}

// Token is a token of an answer or of an echoed prompt, with its log probability.
type Token struct {
	Bytes   []byte
	Logprob float32       // natural logarithm
	First   bool          // the first token of a prompt, which has no log probability
	Top     []Alternative // the likeliest tokens at this position, likeliest first
	Offset  int           // start of the token in the text, in characters
}

// Alternative is one of the likeliest tokens at a position.
type Alternative struct {
	Bytes   []byte
	Logprob float32
}

// AppendLogprobs appends the logprobs object of a choice: that of a chat
// completion if chat is true, else that of a completion.
func AppendLogprobs(out []byte, chat bool, tokens []Token) []byte {
	if chat {
		return appendChat(out, tokens)
	}
	out = append(out, `{"tokens":[`...)
	for i, t := range tokens {
		out = appendName(comma(out, i), t.Bytes)
	}
	out = append(out, `],"token_logprobs":[`...)
	for i, t := range tokens {
		if out = comma(out, i); t.First {
			out = append(out, "null"...)
		} else {
			out = appendNumber(out, t.Logprob)
		}
	}
	out = append(out, `],"top_logprobs":[`...)
	for i, t := range tokens {
		if out = comma(out, i); t.First {
			out = append(out, "null"...)
			continue
		}
		out = appendTop(out, t)
	}
	out = append(out, `],"text_offset":[`...)
	for i, t := range tokens {
		out = strconv.AppendInt(comma(out, i), int64(t.Offset), 10)
	}
	return append(out, "]}"...)
}

// appendTop appends the likeliest tokens as an object. As in vLLM, the token
// itself is always included. Of tokens with the same name, only the first is
// written.
func appendTop(out []byte, t Token) []byte {
	out = append(out, '{')
	written := map[string]bool{}
	add := func(bytes []byte, logprob float32) {
		if !written[string(bytes)] {
			out = appendNumber(append(appendName(comma(out, len(written)), bytes), ':'), logprob)
			written[string(bytes)] = true
		}
	}
	for _, a := range t.Top {
		add(a.Bytes, a.Logprob)
	}
	add(t.Bytes, t.Logprob)
	return append(out, '}')
}

func appendChat(out []byte, tokens []Token) []byte {
	out = append(out, `{"content":[`...)
	for i, t := range tokens {
		out = appendChatToken(comma(out, i), t.Bytes, t.Logprob)
		out = append(out, `,"top_logprobs":[`...)
		for k, a := range t.Top {
			out = append(appendChatToken(comma(out, k), a.Bytes, a.Logprob), '}')
		}
		out = append(out, "]}"...)
	}
	return append(out, "]}"...)
}

// appendChatToken appends an object without its closing brace.
func appendChatToken(out, token []byte, logprob float32) []byte {
	out = appendName(append(out, `{"token":`...), token)
	out = appendNumber(append(out, `,"logprob":`...), logprob)
	out = append(out, `,"bytes":[`...)
	for i, b := range token {
		out = strconv.AppendUint(comma(out, i), uint64(b), 10)
	}
	return append(out, ']')
}

// appendName appends a token as a string: its text, or, if it is not valid UTF-8,
// its bytes as OpenAI spells them, for example "bytes:\xe2\x9c".
func appendName(out, token []byte) []byte {
	if utf8.Valid(token) {
		out, _ = jsontext.AppendQuote(out, token)
		return out
	}
	name := []byte("bytes:")
	for _, b := range token {
		const hex = "0123456789abcdef"
		name = append(name, '\\', 'x', hex[b>>4], hex[b&15])
	}
	out, _ = jsontext.AppendQuote(out, name)
	return out
}

func appendNumber(out []byte, v float32) []byte {
	return strconv.AppendFloat(out, float64(v), 'g', -1, 32)
}

// comma appends a comma, except before the first element.
func comma(out []byte, i int) []byte {
	if i == 0 {
		return out
	}
	return append(out, ',')
}
