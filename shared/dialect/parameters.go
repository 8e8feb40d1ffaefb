package dialect

import (
	"bytes"
	"slices"

	"rollout/shared/jsonl"
)

// isParameter reports whether a member of a plain row is sent with its request. The
// list is frozen: it is part of item ids (see identity.ItemSchema2). Members that
// people use as columns (user, metadata, priority, n, model, documents) are not in it.
func isParameter(name string) bool {
	switch name {
	case "temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
		"stop_token_ids", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias",
		"logprobs", "top_logprobs", "prompt_logprobs", "ignore_eos", "skip_special_tokens", "bad_words",
		"include_stop_str_in_output", "return_token_ids":
		return true
	case "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format",
		"reasoning_effort", "verbosity", "modalities", "chat_template", "chat_template_kwargs",
		"add_generation_prompt", "continue_final_message", "add_special_tokens", "mm_processor_kwargs":
		return true
	case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
		"guided_decoding_backend":
		return true
	}
	return false
}

// setParameters adds the parameters of a plain row to its request.
func (it *Item) setParameters(params []jsonl.Member) error {
	if len(params) == 0 {
		return nil
	}
	for _, m := range params {
		if string(m.Name) == "seed" {
			if err := checkSeed("seed", m.Value); err != nil {
				return err
			}
		}
	}
	it.body = append(it.body, params...)
	sorted := slices.SortedFunc(slices.Values(params), func(a, b jsonl.Member) int {
		return bytes.Compare(a.Name,
			b.Name)
	})
	it.params = []byte{'{'}
	for i, m := range sorted {
		if i > 0 {
			it.params = append(it.params, ',')
		}
		it.params = append(jsonl.AppendQuoted(it.params, string(m.Name)), ':')
		it.params = append(it.params, m.Value...)
	}
	it.params = append(it.params, '}')
	return nil
}
