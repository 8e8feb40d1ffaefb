package export

import "rollout/gpuworker/tinylm/tokenizer"

// chatTemplate writes a chat as the tiny engine does, in Jinja, for software
// that reads the exported files.
func (m *Model) chatTemplate() string {
	if m.ChatTurns {
		return turnsTemplate
	}
	return textTemplate
}

// turnsTemplate is tokenizer.AppendTurn and AppendReply.
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

// textTemplate joins what is said with line ends: what a model that never saw
// a chat continues.
const textTemplate = "{%- for message in messages -%}" +
	"{%- if not loop.first -%}{{- '\\n' -}}{%- endif -%}{{- message.content -}}" +
	"{%- endfor -%}"
