package dialect_test

import (
	"strings"
	"testing"

	"rollout/shared/dialect"
	"rollout/shared/fault"
)

func TestTensorsAreRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	for line, tensor := range map[string]string{
		`{"prompt":"a","prompt_embeds":"gASV"}`: "", // it is not sent
		`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"a",` +
			`"prompt\u005fembeds":["gASV"]}}`: "prompt_embeds",
		`{"messages":[{"role":"user","content":"the _embeds"}]}`:        "",
		`{"messages":[{"role":"user","content":"\u00e9"}]}`:             "",
		`{"prompt":"prompt_embeds"}`:                                    "",
		`{"messages":[{"content":[{"type":"text","text":"_embeds"}]}]}`: "",
		`{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},` +
			`{"type":"image_embeds","image_embeds":"gASV"}]}]}`: "image_embeds",
		`{"messages":[{"role":"user","content":[{"audio_embed\u0073":"gASV"}]}]}`:                      "audio_embeds",
		`{"messages":[{"role":"user","content":["x",{"type":"image_embeds","image_embeds":"gASV"}]}]}`: "image_embeds",
		`{"messages":[{"content":[{"image_embeds":"gASV"}],"Content":"x"}]}`:                           "image_embeds",
		`{"messages":[{"content":[{"image_embeds":"gASV"}],"content":"x"}]}`:                           "image_embeds",
		`{"messages":[{"content":[[{"a":1}],{"type":{"image_embeds":1}}]}]}`:                           "image_embeds",
		`{"text_1":"a","text_2":{"content":[{"type":"image_embeds","image_embeds":"gASV"}]}}`:          "image_embeds",
		`{"query":"a","documents":["b",{"content":[{"image_embeds":"gASV"}]}]}`:                        "image_embeds",
		`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m",` +
			`"messages":[{"role":"user","content":"a"}],` +
			`"tools":[{"function":{"parameters":{"properties":{"word_embeds":{"type":"string"}}}}}]}}`: "",
		`{"messages":[{"role":"user","content":[{"type":"image\u005fembeds"}]}]}`: "image_embeds",
		`{"custom_id":"a","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"a",` +
			`"prompt_embeds":"gASV"}}`: "prompt_embeds",
		`{"custom_id":"a","method":"POST","url":"/v1/responses","body":{"model":"m","input":[{"role":"user",` +
			`"content":[{"type":"image_embeds"}]}]}}`: "image_embeds",
	} {
		name := dialect.Plain
		if strings.Contains(line, "custom_id") {
			name = dialect.OpenAI
		}
		it, err := dialect.Parse(name, []byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		err = it.CheckTensors(false)
		if refused := fault.Is(err, fault.Invalid) && strings.Contains(err.Error(), tensor+", a tensor"); refused !=
			(tensor != "") {
			t.Errorf("%s: %v", line, err)
		}
		if err := it.CheckTensors(true); err != nil {
			t.Errorf("%s, allowed: %v", line, err)
		}
	}
}
