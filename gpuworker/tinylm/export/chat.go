package export

import "rollout/gpuworker/tinylm/tokenizer"

// chatTemplate returns a Jinja template that renders a chat as the tiny engine
// does.
func (m *Model) chatTemplate() string {
	if m.ChatTurns {
		return turnsTemplate
	}
	return textTemplate
}

// turnsTemplate renders what Tokenizer.AppendTurn and AppendGenerationPrompt
// append.
const turnsTemplate = "{%- for message in messages -%}" +
	"{%- if message.role == 'assistant' -%}" +
	"{{- '" + tokenizer.Assistant + "' + message.content + '" + tokenizer.EndOfText + "' -}}" +
	"{%- elif message.role == 'user' -%}" +
	"{{- '" + tokenizer.User + "' + message.content -}}" +
	"{%- elif message.role == 'system' or message.role == 'developer' -%}" +
	"{{- '" + tokenizer.System + "' + message.content -}}" +
	"{%- else -%}" +
	"{{- raise_exception('role ' + message.role + ': this model knows system, user and assistant') -}}" +
	"{%- endif -%}" +
	"{%- endfor -%}" +
	"{%- if add_generation_prompt -%}{{- '" + tokenizer.Assistant + "' -}}{%- endif -%}"

// textTemplate joins the messages with line breaks, for a model that was not
// trained on chats and continues plain text.
const textTemplate = "{%- for message in messages -%}" +
	"{%- if not loop.first -%}{{- '\\n' -}}{%- endif -%}{{- message.content -}}" +
	"{%- endfor -%}"
