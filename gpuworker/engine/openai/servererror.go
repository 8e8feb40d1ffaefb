package openai

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// serverError is a server's description of an error, in any of these shapes:
//
//	{"error":{"message":…,"type":…,"code":…}}            OpenAI, vLLM, llama.cpp
//	{"error":"…"}                                         Ollama, TGI
//	{"object":"error","message":…,"type":…,"code":…}     older vLLM, SGLang
//	{"detail":"Not Found"}                                FastAPI
type serverError struct {
	message string
	kind    string // type
	code    string // a name; "" for a number
	param   string // the member of the request that is refused; "" if it names none
	status  int    // code, if it is an HTTP status; else 0
}

func parseServerError(body []byte) serverError {
	var flat struct {
		Error   jsontext.Value `json:"error"`
		Detail  jsontext.Value `json:"detail"`
		Message lenient        `json:"message"`
		Type    lenient        `json:"type"`
		Code    jsontext.Value `json:"code"`
		Param   lenient        `json:"param"`
	}
	if unmarshal(body, &flat) != nil {
		return serverError{message: string(body)}
	}
	s := serverError{message: string(flat.Message), kind: string(flat.Type), param: string(flat.Param)}
	s.setCode(flat.Code)
	switch flat.Error.Kind() {
	case jsontext.KindBeginObject:
		nested := parseServerError(flat.Error)
		if nested.status == 0 {
			nested.status = s.status
		}
		s = nested
	case jsontext.KindString:
		s.message = unquoted(flat.Error)
	}
	if len(flat.Detail) > 0 {
		s.message = cmp.Or(s.message, unquoted(flat.Detail))
		s.param = cmp.Or(s.param, memberOf(flat.Detail))
	}
	if s.message == "" {
		s.message = string(body)
	}
	return s
}

// memberOf returns the member of the body that FastAPI's first detail is about; "" if
// it is about none.
func memberOf(detail jsontext.Value) string {
	var details []struct {
		Location []jsontext.Value `json:"loc"`
	}
	if detail.Kind() != jsontext.KindBeginArray || unmarshal(detail, &details) != nil || len(details) == 0 {
		return ""
	}
	if at := details[0].Location; len(at) > 1 && unquoted(at[0]) == "body" {
		return unquoted(at[1])
	}
	return ""
}

// setCode takes a code that is a number, a number in a string, or a name.
func (s *serverError) setCode(raw jsontext.Value) {
	if len(raw) == 0 || raw.Kind() == jsontext.KindNull {
		return
	}
	text := unquoted(raw)
	n, err := strconv.Atoi(text)
	if err != nil {
		s.code = text
	} else if 400 <= n && n < 600 {
		s.status = n
	}
}

// unquoted returns a string's text, or any other value's JSON.
func unquoted(v jsontext.Value) string {
	if v.Kind() != jsontext.KindString {
		return string(v)
	}
	text, _ := jsontext.AppendUnquote(nil, v) // valid; what is not UTF-8 becomes U+FFFD
	return string(text)
}

// How servers say that a prompt exceeds the model's context. Codes and types are
// compared; messages are searched in lower case.
var (
	tooLongCodes = []string{
		"context_length_exceeded",   // OpenAI, llama-cpp-python
		"exceed_context_size_error", // llama.cpp
		"context_window_exceeded", "prompt_too_long", "input_too_long",
	}
	tooLongMessages = []string{
		"maximum context length",                 // OpenAI, vLLM, llama-cpp-python, SGLang, Mistral
		"longer than the maximum model length",   // vLLM
		"longer than the model's context length", // SGLang
		"exceeds the model's maximum",            // SGLang
		"exceeds the maximum allowed length",     // SGLang
		"exceeds the available context size",     // llama.cpp
		"exceed context window",                  // llama-cpp-python
		"exceeds the context window",             // hosted APIs
		"max_new_tokens` must be <=",             // TGI
		"`inputs` must have less than",           // TGI
		"prompt is too long",                     // Anthropic, Groq
		"prompt too long",                        // Ollama
		"input is too long",                      // Bedrock
		"exceeds the maximum number of tokens",   // Gemini
		"please reduce the length of the",        // OpenAI's family
		"too many tokens: ",                      // Cohere
	}
	modelCodes = []string{"model_not_found", "modelnotfounderror", "deploymentnotfound"}
	// policyCodes say that a content policy forbids the prompt.
	policyCodes = []string{
		"content_policy_violation", "invalid_prompt", // OpenAI
		"content_filter", "responsibleaipolicyviolation", // Azure
		"moderation_blocked", "data_inspection_failed", "prohibited_content",
	}
	// quotaCodes say that a quota is used up that somebody must raise or pay.
	quotaCodes = []string{"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
)

// tooLong reports whether the prompt does not fit the model. A message counts only
// with a 4xx: messages of other errors may repeat the prompt.
func (s serverError) tooLong(status int) bool {
	if oneOf(tooLongCodes, s.code) || oneOf(tooLongCodes, s.kind) {
		return true
	}
	if status < 400 || status >= 500 {
		return false
	}
	message := strings.ToLower(s.message)
	for _, m := range tooLongMessages {
		if strings.Contains(message, m) {
			return true
		}
	}
	return false
}

// aboutModel reports whether a 404 is about the model and not the path.
func (s serverError) aboutModel() bool {
	return oneOf(modelCodes, s.code) || oneOf(modelCodes, s.kind) ||
		strings.Contains(strings.ToLower(s.message), "model")
}

// noModel reports whether a 404 says that the server does not have the model. A
// message about what the model can't do is another matter.
func (s serverError) noModel() bool {
	message := strings.ToLower(s.message)
	return oneOf(modelCodes, s.code) || oneOf(modelCodes, s.kind) ||
		strings.Contains(message, "model") &&
			(strings.Contains(message, "does not exist") || strings.Contains(message, "not found"))
}

// forbidden reports whether a content policy forbids the prompt.
func (s serverError) forbidden() bool {
	return oneOf(policyCodes, s.code) || oneOf(policyCodes, s.kind)
}

func oneOf(list []string, word string) bool {
	for _, w := range list {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}
