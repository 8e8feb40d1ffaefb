package openai

import (
	"context"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
)

// bytesPerToken is how many bytes of text count as a token without a tokenizer. Most
// tokenizers make fewer tokens of it.
const bytesPerToken = 3

// estimate sets the tokens of an answer whose server did not report them: by vLLM's
// /tokenize, else by the length of the texts. They stay Unknown.
func (c *Client) estimate(ctx context.Context, body []byte, a *engine.Answer) {
	var prompt, completion overflow
	model, asked := []byte(`""`), 0
	// The body has been sent as JSON; without a model the server takes its own.
	_ = rawjson.Members(body, func(name, v []byte) error {
		switch string(name) {
		case "model":
			model = v
		case "prompt", "messages", "input", "query", "documents", "tools":
			asked += len(v)
		}
		return nil
	})
	question := append(append([]byte(`{"model":`), model...), `,"add_special_tokens":false,`...)
	question = append(appendMember(question, "prompt", a.Reasoning+a.Text), '}')
	if c.countTokens(ctx, body, &prompt) && (a.Text+a.Reasoning == "" || c.countTokens(ctx, question, &completion)) {
		a.Usage.PromptTokens, a.Usage.CompletionTokens = prompt.prompt, completion.prompt
		return
	}
	if c.estimates.CompareAndSwap(false, true) {
		c.logger.Warn("the inference server reports no tokens and has no /tokenize; the run's token budget counts estimates",
			"url", c.base.String())
	}
	answered := int64(len(a.Text)+len(a.Reasoning)+len(a.ToolCalls)+bytesPerToken-1) / bytesPerToken
	a.Usage.PromptTokens = max(a.Usage.PromptTokens, int64(asked/bytesPerToken))
	a.Usage.CompletionTokens = max(a.Usage.CompletionTokens, answered)
}
