package agentproxy

import "maps"

// What agents may send is a list of what is known to be answered by the model alone. All else is
// refused: a server may look in the web for an agent (tools that it runs itself, "plugins"), fetch a
// URL for it (images, files), ask other hosts ("kv_transfer_params"), run code of the request's
// ("chat_template", "logits_processors"), or know what another agent has left there
// ("previous_response_id", files by their ids).

// droppedMembers are members that are not passed on, because an answer without them is as good.
// They name other models or ways to them, keep something at the server or let it answer later,
// uncounted, are paid otherwise, or tell the server who asks.
var droppedMembers = []string{"models", "route", "provider", "providers", "fallbacks", "background", "store",
	"service_tier", "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}

// stateRemedy is for members that name what an earlier request has left at the server.
const stateRemedy = "nothing is kept at the server: send the whole conversation"

// remedies are those of members that agents are likely to send.
var remedies = map[string]string{
	"previous_response_id": stateRemedy, "conversation": stateRemedy, "prompt": stateRemedy,
	"web_search_options": "agents have no network but the model: leave it out",
	"plugins":            "agents have no network but the model: leave it out",
}

// allowed are the members of requests by path, and their shapes.
var allowed = map[string]map[string]shape{
	"chat/completions": merged(sampling, answerForm, map[string]shape{
		"messages": list(message), "modalities": list(words("text")), "parallel_tool_calls": scalar,
		"tools": list(chatTool), "functions": list(function), "tool_choice": textOr(toolChoice),
		"function_call": textOr(toolChoice), "prediction": object(map[string]shape{"type": words("content"),
			"content": textOr(list(chatPart))}),
		"chat_template_kwargs":  object(thinking),
		"add_generation_prompt": scalar, "continue_final_message": scalar,
	}),
	"completions": merged(sampling, answerForm, map[string]shape{"prompt": prompt, "suffix": scalar, "echo": scalar}),
	"embeddings": {"model": scalar, "input": prompt, "encoding_format": scalar, "dimensions": scalar,
		"truncate_prompt_tokens": scalar},
	"responses": {"model": scalar, "input": textOr(list(inputItem)), "instructions": scalar,
		"max_output_tokens": scalar, "max_tool_calls": scalar, "parallel_tool_calls": scalar,
		"reasoning": dictionary(scalar), "temperature": scalar, "top_p": scalar, "top_logprobs": scalar, "top_k": scalar,
		"seed": scalar, "truncation": scalar, "stream": scalar, "stream_options": dictionary(scalar),
		"text":        object(map[string]shape{"verbosity": scalar, "format": byType("text", formats)}),
		"include":     list(words("reasoning.encrypted_content", "message.output_text.logprobs")),
		"tools":       list(responseTool),
		"tool_choice": textOr(toolChoice),
	},
}

// sampling are the members of chats and completions that say how tokens are drawn and counted.
var sampling = map[string]shape{
	"model": scalar, "n": scalar, "best_of": scalar, "max_tokens": scalar, "max_completion_tokens": scalar,
	"min_tokens": scalar, "stream": scalar, "stream_options": dictionary(scalar), "seed": scalar,
	"temperature": scalar, "top_p": scalar, "top_k": scalar, "min_p": scalar, "typical_p": scalar,
	"frequency_penalty": scalar, "presence_penalty": scalar, "repetition_penalty": scalar, "repeat_penalty": scalar,
	"length_penalty": scalar, "use_beam_search": scalar, "logit_bias": dictionary(scalar), "logprobs": scalar,
	"top_logprobs": scalar, "prompt_logprobs": scalar, "stop": scalarOr(list(scalar)), "stop_token_ids": list(scalar),
	"bad_words": list(scalar), "allowed_token_ids": list(scalar), "ignore_eos": scalar, "skip_special_tokens": scalar,
	"spaces_between_special_tokens": scalar, "include_stop_str_in_output": scalar, "add_special_tokens": scalar,
	"truncate_prompt_tokens": scalar, "return_tokens_as_token_ids": scalar, "return_token_ids": scalar,
	"reasoning_effort": scalar, "include_reasoning": scalar, "separate_reasoning": scalar, "verbosity": scalar,
}

// answerForm are the members that say which form an answer has.
var answerForm = map[string]shape{
	"response_format": byType("", formats), "grammar": scalar, "json_schema": schemaText,
	"guided_json": schemaText, "guided_regex": scalar, "guided_choice": list(scalar), "guided_grammar": scalar,
	"structured_outputs": object(map[string]shape{"json": schemaText, "regex": scalar, "choice": list(scalar),
		"grammar": scalar, "json_object": scalar, "whitespace_pattern": scalar}),
}

// formats are the forms of answers by type.
var formats = map[string]map[string]shape{
	"text":        {},
	"json_object": {"schema": schema},
	"json_schema": {"json_schema": object(schemaForm), "name": scalar, "description": scalar, "strict": scalar,
		"schema": schema},
}

var schemaForm = map[string]shape{"name": scalar, "description": scalar, "strict": scalar, "schema": schema}

// thinking are the settings of templates that say how much a model thinks.
var thinking = map[string]shape{"enable_thinking": scalar, "thinking": scalar, "reasoning_effort": scalar,
	"thinking_budget": scalar}

// prompt is a text or a list of tokens, or a list of some.
var prompt = scalarOr(list(scalarOr(list(scalar))))

// The messages of a chat.
var (
	message = object(map[string]shape{
		"role": words("system", "developer", "user", "assistant", "tool", "function"), "name": scalar,
		"content": textOr(list(chatPart)), "refusal": scalar, "tool_call_id": scalar, "tool_calls": list(toolCall),
		"function_call": object(call), "reasoning": scalar, "reasoning_content": scalar, "annotations": empty,
	})
	chatPart = byType("", map[string]map[string]shape{
		"text":     {"text": scalar},
		"refusal":  {"refusal": scalar},
		"thinking": {"thinking": scalar},
		"image_url": {"image_url": textOrURL(object(map[string]shape{"url": dataURL(images), "detail": scalar}),
			images)},
		"input_audio": {"input_audio": audio},
		"file":        {"file": file},
	})
	call     = map[string]shape{"name": scalar, "arguments": scalar}
	toolCall = byType("function", map[string]map[string]shape{
		"function": {"id": scalar, "index": scalar, "function": object(call)},
		"custom":   {"id": scalar, "index": scalar, "custom": object(map[string]shape{"name": scalar, "input": scalar})},
	})
)

var (
	audio = object(map[string]shape{"data": base64Data(sounds), "format": words("wav", "mp3")})
	file  = object(map[string]shape{"file_data": dataURL(documents), "filename": scalar})
)

// textOrURL is a data: URL as a text, or of another shape.
func textOrURL(other shape, types []string) shape {
	return func(value []byte) *violation {
		if value[0] == '"' {
			return dataURL(types)(value)
		}
		return other(value)
	}
}

// The tools that agents run themselves.
var (
	functionForm = map[string]shape{"name": scalar, "description": scalar, "parameters": schema, "strict": scalar}
	function     = object(functionForm)
	customForm   = map[string]shape{"name": scalar, "description": scalar, "format": byType("",
		map[string]map[string]shape{"text": {}, "grammar": {"syntax": scalar, "definition": scalar,
			"grammar": object(map[string]shape{"syntax": scalar, "definition": scalar})}})}
	chatTool = byType("", map[string]map[string]shape{
		"function": {"function": function}, "custom": {"custom": object(customForm)}})
	responseTool = byType("", map[string]map[string]shape{"function": functionForm, "custom": customForm})
	toolName     = object(map[string]shape{"name": scalar})
	toolChoice   = byType("function", map[string]map[string]shape{
		"function": {"function": toolName, "name": scalar}, "custom": {"custom": toolName, "name": scalar}})
)

// inputItem is an item of a response's input: a message, or what an earlier response has said.
var inputItem = byType("message", map[string]map[string]shape{
	"message": {"role": words("system", "developer", "user", "assistant"), "content": textOr(list(inputPart)),
		"id": scalar, "status": scalar, "phase": scalar},
	"reasoning": {"id": scalar, "status": scalar, "encrypted_content": scalar, "summary": list(said),
		"content": list(said)},
	"function_call":        {"id": scalar, "status": scalar, "call_id": scalar, "name": scalar, "arguments": scalar},
	"function_call_output": {"id": scalar, "status": scalar, "call_id": scalar, "output": textOr(list(inputPart))},
	"custom_tool_call":     {"id": scalar, "status": scalar, "call_id": scalar, "name": scalar, "input": scalar},
	"custom_tool_call_output": {"id": scalar, "status": scalar, "call_id": scalar,
		"output": textOr(list(inputPart))},
})

var (
	inputPart = byType("", map[string]map[string]shape{
		"input_text": {"text": scalar}, "refusal": {"refusal": scalar},
		"output_text": {"text": scalar, "annotations": empty, "logprobs": list(tokenOdds)},
		"input_image": {"image_url": dataURL(images), "detail": scalar},
		"input_file":  {"file_data": dataURL(documents), "filename": scalar},
		"input_audio": {"input_audio": audio},
	})
	said = byType("", map[string]map[string]shape{"summary_text": {"text": scalar}, "reasoning_text": {"text": scalar}})
	odds = map[string]shape{"token": scalar, "logprob": scalar, "bytes": list(scalar)}
	// tokenOdds are the logprobs of a token that an earlier response has.
	tokenOdds = object(merged(odds, map[string]shape{"top_logprobs": list(object(odds))}))
)

// merged returns the members of all.
func merged(all ...map[string]shape) map[string]shape {
	into := map[string]shape{}
	for _, m := range all {
		maps.Copy(into, m)
	}
	return into
}

// admit says what is wrong with a member of a request; nil if agents may send it.
func admit(path, name string, value []byte) *violation {
	of := allowed[path][name]
	if isNull(value) {
		return nil
	}
	if of == nil {
		remedy, ok := remedies[name]
		if !ok {
			remedy = "leave it out"
		}
		return wrong(remedy, "it is not among the members that agents may send").in(named(name))
	}
	if v := of(value); v != nil {
		return v.in(named(name))
	}
	return nil
}
