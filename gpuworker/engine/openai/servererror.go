package openai

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
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
//	{"object":"error","message":{"detail":[…]}}           Mistral
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
		Message jsontext.Value `json:"message"`
		Type    lenient        `json:"type"`
		Code    jsontext.Value `json:"code"`
		Param   lenient        `json:"param"`
	}
	if unmarshal(body, &flat) != nil {
		return serverError{message: string(body)}
	}
	s := serverError{kind: string(flat.Type), param: string(flat.Param)}
	s.setCode(flat.Code)
	switch flat.Message.Kind() {
	case jsontext.KindString:
		s.message = unquoted(flat.Message)
	case jsontext.KindBeginObject:
		var inner struct {
			Detail jsontext.Value `json:"detail"`
		}
		if unmarshal(flat.Message, &inner) == nil {
			s.param = cmp.Or(s.param, memberOf(inner.Detail))
		}
	}
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
		"maximum context length",                 // OpenAI, older vLLM, llama-cpp-python, SGLang, Mistral
		"the model's context length is only",     // vLLM
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
	// What is said about a model that answers no completions.
	onlyChatsMessages = []string{
		"not supported in the v1/completions endpoint",                     // OpenAI, 404: langchaingo#201
		"the completion operation does not work with the specified model,", // Azure, 400: langchainjs#2633
		"the model does not support completions api",                       // vLLM, 400 and 501
	}
	// What is said with a 400 about a model that the server does not have.
	noModelMessages = []string{
		"invalid model name passed in model=", // LiteLLM
		"is not a valid model id",             // OpenRouter
		"model not exist",                     // DeepSeek
	}
	// addedMembers are those that rollout adds to a request, or a config's [sampling].
	addedMembers = []string{
		"seed", "stream_options", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
		"repetition_penalty", "stop", "logprobs", "top_logprobs",
	}
	modelCodes = []string{"model_not_found", "modelnotfounderror", "deploymentnotfound"}
	// policyCodes say that a content policy forbids the prompt.
	policyCodes = []string{
		"content_policy_violation", "invalid_prompt", // OpenAI
		"content_filter", "responsibleaipolicyviolation", // Azure
		"moderation_blocked", "data_inspection_failed", "prohibited_content",
	}
	// quotaCodes say that a quota is used up that somebody must raise or pay.
	quotaCodes = []string{
		"insufficient_quota", "credit_balance_exhausted", "billing_hard_limit_reached", "billing_not_active", // OpenAI
		"budget_exceeded", // LiteLLM
	}
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
	return containsAny(strings.ToLower(s.message), tooLongMessages)
}

// aboutModel reports whether a 404 is about the model, or an adapter of it, and not the
// path.
func (s serverError) aboutModel() bool {
	message := strings.ToLower(s.message)
	return oneOf(modelCodes, s.code) || oneOf(modelCodes, s.kind) || s.param == "model" ||
		strings.Contains(message, "model") || strings.Contains(message, "lora adapter")
}

// onlyChats reports whether the reply to a completion says that the model answers chats
// alone.
func (s serverError) onlyChats(status int) bool {
	if status != http.StatusNotImplemented && (status < 400 || status >= 500) {
		return false
	}
	return containsAny(strings.ToLower(s.message), onlyChatsMessages)
}

// noModel reports whether the server says that it does not have the model. A message
// about what the model can't do is another matter.
func (s serverError) noModel(status int) bool {
	message := strings.ToLower(s.message)
	switch status {
	case http.StatusNotFound:
		return oneOf(modelCodes, s.code) || oneOf(modelCodes, s.kind) ||
			s.aboutModel() && (strings.Contains(message, "does not exist") || strings.Contains(message, "not found"))
	case http.StatusBadRequest:
		return oneOf(modelCodes, s.code) || oneOf(modelCodes, s.kind) || containsAny(message, noModelMessages)
	}
	return false
}

// forbidden reports whether a content policy forbids the prompt.
func (s serverError) forbidden() bool {
	return oneOf(policyCodes, s.code) || oneOf(policyCodes, s.kind)
}

// remedy returns what to do about a member of the request that the server refuses, if a
// config may be what added it; "" if it is another, or none is named.
func (s serverError) remedy() string {
	switch {
	case s.param == "max_tokens" && strings.Contains(s.message, "max_completion_tokens"):
		return `set request.max_tokens_field = "max_completion_tokens"`
	case slices.Contains(addedMembers, s.param):
		return fmt.Sprintf("if it is not the row's own, leave it out with request.omit = [%q]", s.param)
	case s.param == "stream", s.param == "" && strings.Contains(strings.ToLower(s.message), "stream"):
		return `if the server streams no answers, set engine.stream = "never"`
	}
	return ""
}

func oneOf(list []string, word string) bool {
	for _, w := range list {
		if strings.EqualFold(w, word) {
			return true
		}
	}
	return false
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}
