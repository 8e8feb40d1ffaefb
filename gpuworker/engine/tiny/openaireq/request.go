// Package openaireq parses the bodies of OpenAI-compatible requests for the tiny
// engine, and writes log probabilities in the format of such responses.
//
// It supports the members that vLLM documents. Members that request what the
// engine cannot do (tools, JSON output, best_of, suffix) are refused by name;
// unknown members are ignored, as in vLLM. Requests are not trusted: the size of
// everything in them is bounded. The package uses neither a model nor HTTP.
package openaireq

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/tinylm/sampling"
	"rollout/shared/fault"
)

// Bounds of a request.
const (
	MaxChoices  = 256 // maximum number of answers to one request: prompts × n
	maxN        = 128
	maxStops    = 16
	maxStop     = 256 // bytes of a stop string
	maxMessages = 4096
)

// Request is a parsed request.
type Request struct {
	Chat         bool
	Model        string    // "" if the request names none
	Prompts      []Prompt  // of a completion
	Messages     []Message // of a chat
	N            int       // number of answers to each prompt
	Sampling     sampling.Params
	Seed         uint64
	HasSeed      bool     // whether the request has a seed
	Max          int64    // max_tokens; -1 if absent
	Min          int64    // min_tokens: the end of text and stops are ignored before
	Stop         []string // stop strings
	StopIDs      []int32  // stop tokens
	KeepStop     bool     // the text includes the stop string
	IgnoreEOS    bool     // the end of text does not end the answer
	Logprobs     int      // number of alternatives to each token; -1: no log probabilities
	Echo         bool     // the text begins with the prompt
	Stream       bool
	IncludeUsage bool // a stream ends with the token counts
}

// Prompt is a prompt as a text or as tokens.
type Prompt struct {
	Text   string
	Tokens []int32 // nil if the prompt is a text
}

// lenient accepts JSON that vLLM accepts: invalid UTF-8 and duplicate names.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// body has the members of both endpoints' requests.
type body struct {
	Model    string         `json:"model"`
	Prompt   jsontext.Value `json:"prompt"`
	Messages jsontext.Value `json:"messages"`
	Suffix   *string        `json:"suffix"`

	MaxTokens           *int64 `json:"max_tokens"`
	MaxCompletionTokens *int64 `json:"max_completion_tokens"`
	MinTokens           *int64 `json:"min_tokens"`

	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int64             `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              *int64             `json:"seed"`

	N                    *int64         `json:"n"`
	BestOf               *int64         `json:"best_of"`
	Stop                 jsontext.Value `json:"stop"`
	StopTokenIDs         []int32        `json:"stop_token_ids"`
	IncludeStopStrInText bool           `json:"include_stop_str_in_output"`
	IgnoreEOS            bool           `json:"ignore_eos"`
	Logprobs             jsontext.Value `json:"logprobs"`
	TopLogprobs          *int64         `json:"top_logprobs"`
	Echo                 bool           `json:"echo"`
	Stream               bool           `json:"stream"`
	StreamOptions        *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`

	ResponseFormat *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	Tools             []jsontext.Value `json:"tools"`
	ToolChoice        jsontext.Value   `json:"tool_choice"`
	StructuredOutputs jsontext.Value   `json:"structured_outputs"`
	GuidedJSON        jsontext.Value   `json:"guided_json"`
	GuidedRegex       jsontext.Value   `json:"guided_regex"`
	GuidedChoice      jsontext.Value   `json:"guided_choice"`
	GuidedGrammar     jsontext.Value   `json:"guided_grammar"`
}

// ParseChat parses the body of a request for /v1/chat/completions. vocab is the
// size of the model's vocabulary. Faults are Invalid, of class refused, and name
// the member.
func ParseChat(data []byte, vocab int) (Request, error) {
	b, err := read(data)
	if err != nil {
		return Request{}, err
	}
	r, err := b.request(vocab)
	if err != nil {
		return r, err
	}
	r.Chat = true
	if r.Messages, err = messages(b.Messages); err != nil {
		return r, err
	}
	if b.Echo {
		return r, sampling.NewParamError("echo", "is not supported for chats")
	}
	if r.Max < 0 && b.MaxCompletionTokens != nil {
		r.Max = *b.MaxCompletionTokens
	}
	return r, r.chatLogprobs(b)
}

// ParseCompletion parses the body of a request for /v1/completions, like
// ParseChat.
func ParseCompletion(data []byte, vocab int) (Request, error) {
	b, err := read(data)
	if err != nil {
		return Request{}, err
	}
	r, err := b.request(vocab)
	if err != nil {
		return r, err
	}
	if r.Prompts, err = prompts(b.Prompt, vocab); err != nil {
		return r, err
	}
	if len(r.Prompts)*r.N > MaxChoices {
		return r, sampling.NewParamError("prompt", "and n ask for %d answers, at most %d are allowed: send several requests",
			len(r.Prompts)*r.N, MaxChoices)
	}
	r.Echo = b.Echo
	return r, r.completionLogprobs(b)
}

// read decodes a body. Errors name the member if the decoder reports it.
func read(data []byte) (*body, error) {
	var b body
	err := json.Unmarshal(data, &b, lenient)
	if err == nil {
		return &b, nil
	}
	var typed *json.SemanticError
	if errors.As(err, &typed) && typed.JSONPointer != "" {
		name := strings.ReplaceAll(strings.TrimPrefix(string(typed.JSONPointer), "/"), "/", ".")
		return nil, sampling.NewParamError(name, "must not be a JSON %s", kindName(typed.JSONKind))
	}
	return nil, refused(fmt.Errorf("the request's body is not a JSON object: %w", err))
}

// kindName returns the name of a JSON type for messages.
func kindName(k jsontext.Kind) string {
	switch k {
	case jsontext.KindBeginObject:
		return "object"
	case jsontext.KindBeginArray:
		return "array"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "boolean"
	case jsontext.KindNumber:
		return "number like this"
	}
	return k.String()
}

func refused(err error) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: err}
}

// request parses the members that both endpoints have.
func (b *body) request(vocab int) (Request, error) {
	r := Request{
		Model: b.Model, N: 1, Sampling: sampling.Default(), Max: -1, KeepStop: b.IncludeStopStrInText,
		IgnoreEOS: b.IgnoreEOS, StopIDs: b.StopTokenIDs, Logprobs: -1, Stream: b.Stream,
		IncludeUsage: b.StreamOptions != nil && b.StreamOptions.IncludeUsage,
	}
	if err := b.refuseUnsupported(); err != nil {
		return r, err
	}
	if b.StreamOptions != nil && !b.Stream {
		return r, sampling.NewParamError("stream_options", "is only for streams: set stream, or omit stream_options")
	}
	if b.Seed != nil {
		r.Seed, r.HasSeed = uint64(*b.Seed), true
	}
	if b.N != nil {
		if *b.N < 1 || *b.N > maxN {
			return r, sampling.NewParamError("n", "must be from 1 to %d, got %d", maxN, *b.N)
		}
		r.N = int(*b.N)
	}
	if b.BestOf != nil && *b.BestOf != int64(r.N) {
		return r, sampling.NewParamError("best_of", "must be n (%d), got %d: answers are not ranked", r.N, *b.BestOf)
	}
	if b.MaxTokens != nil {
		if *b.MaxTokens < 0 {
			return r, sampling.NewParamError("max_tokens", "must be at least 1, got %d", *b.MaxTokens)
		}
		r.Max = *b.MaxTokens
	}
	if b.MaxCompletionTokens != nil && *b.MaxCompletionTokens < 0 {
		return r, sampling.NewParamError("max_completion_tokens", "must be at least 1, got %d", *b.MaxCompletionTokens)
	}
	if b.MinTokens != nil {
		if *b.MinTokens < 0 {
			return r, sampling.NewParamError("min_tokens", "must not be negative, got %d", *b.MinTokens)
		}
		r.Min = *b.MinTokens
	}
	if err := b.params(&r.Sampling); err != nil {
		return r, err
	}
	if err := r.Sampling.Check(vocab); err != nil {
		return r, err
	}
	var err error
	r.Stop, err = stops(b.Stop)
	if err == nil && len(b.StopTokenIDs) > maxStops {
		err = sampling.NewParamError("stop_token_ids", "must have at most %d ids, has %d", maxStops, len(b.StopTokenIDs))
	}
	return r, err
}

// refuseUnsupported returns a fault if the request uses a member that the engine
// does not support.
func (b *body) refuseUnsupported() error {
	switch {
	case b.Suffix != nil && *b.Suffix != "":
		return sampling.NewParamError("suffix", "is not supported: the model only continues texts")
	case b.ResponseFormat != nil && b.ResponseFormat.Type != "" && b.ResponseFormat.Type != "text":
		return sampling.NewParamError("response_format", "%.64q is not supported: the model answers in text",
			b.ResponseFormat.Type)
	case len(b.Tools) > 0 && string(b.ToolChoice) != `"none"`:
		return sampling.NewParamError("tools", "are not supported: the model answers in text")
	}
	for _, m := range []struct {
		name  string
		value jsontext.Value
	}{{"structured_outputs", b.StructuredOutputs}, {"guided_json", b.GuidedJSON}, {"guided_regex", b.GuidedRegex},
		{"guided_choice", b.GuidedChoice}, {"guided_grammar", b.GuidedGrammar}} {
		if !absent(m.value) {
			return sampling.NewParamError(m.name, "is not supported: the model answers in text")
		}
	}
	return nil
}

// absent reports whether a member is missing or null.
func absent(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == jsontext.KindNull }

// params sets the sampling parameters that the request has.
func (b *body) params(p *sampling.Params) error {
	for _, m := range []struct {
		from *float64
		to   *float32
	}{{b.Temperature, &p.Temperature}, {b.TopP, &p.TopP}, {b.MinP, &p.MinP}, {b.RepetitionPenalty, &p.Repetition},
		{b.PresencePenalty, &p.Presence}, {b.FrequencyPenalty, &p.Frequency}} {
		if m.from != nil {
			*m.to = float32(*m.from)
		}
	}
	if b.TopK != nil {
		p.TopK = int(max(min(*b.TopK, math.MaxInt32), math.MinInt32))
	}
	if len(b.LogitBias) > sampling.MaxBiases {
		return sampling.NewParamError("logit_bias", "must name at most %d tokens, names %d",
			sampling.MaxBiases, len(b.LogitBias))
	}
	for name, v := range b.LogitBias {
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return sampling.NewParamError("logit_bias", "%.32q is not the id of a token", name)
		}
		if p.Bias == nil {
			p.Bias = map[int32]float32{}
		}
		p.Bias[int32(id)] = float32(v)
	}
	return nil
}

// stops parses the member "stop": a string or a list of strings. Empty strings are
// ignored.
func stops(v jsontext.Value) ([]string, error) {
	if absent(v) {
		return nil, nil
	}
	var list []string
	if v.Kind() == jsontext.KindString {
		list = []string{text(v)}
	} else if err := json.Unmarshal(v, &list, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, sampling.NewParamError("stop", "must be a string or a list of strings")
	}
	if len(list) > maxStops {
		return nil, sampling.NewParamError("stop", "must have at most %d strings, has %d", maxStops, len(list))
	}
	var out []string
	for _, s := range list {
		if len(s) > maxStop {
			return nil, sampling.NewParamError("stop", "must be at most %d bytes long, one has %d", maxStop, len(s))
		}
		if s != "" {
			out = append(out, s)
		}
	}
	return out, nil
}

// text returns the text of a JSON string. Invalid UTF-8 becomes U+FFFD.
func text(v jsontext.Value) string {
	out, _ := jsontext.AppendUnquote(nil, v) // the only possible error is invalid UTF-8
	return string(out)
}
