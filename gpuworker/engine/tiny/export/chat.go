package export

import "rollout/gpuworker/engine/tiny/tokenizer"

// chatTemplate writes a chat as tokenizer.AppendTurn and AppendReply do, in
// Jinja, for software that reads the exported files.
const chatTemplate = "{%- for message in messages -%}" +
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
