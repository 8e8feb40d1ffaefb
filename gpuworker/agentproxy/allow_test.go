package agentproxy_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rollout/gpuworker/agentproxy"
	"rollout/shared/onlinewire"
)

// Files as an agent sends them.
var (
	png  = dataURL("image/png", "\x89PNG\x0D\x0A\x1A\x0A....")
	pdf  = dataURL("application/pdf", "%PDF-1.7\n")
	wave = base64.StdEncoding.EncodeToString([]byte("RIFF....WAVEfmt "))
	// playlist is one that a decoder of videos follows.
	playlist = "#EXTM3U\n#EXTINF:1,\nhttp://10.0.0.1/x\n"
)

func dataURL(media, text string) string {
	return "data:" + media + ";base64," + base64.StdEncoding.EncodeToString([]byte(text))
}

func TestRequestsThatTheModelAloneAnswersPass(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ path, body string }{
		{"chat/completions", `{"model":"m","messages":[{"role":"system","content":"a"},
			{"role":"user","name":"b","content":[{"type":"text","text":"see http://example.com"},
			{"type":"image_url","image_url":{"url":"` + png + `","detail":"low"}},
			{"type":"image_url","image_url":"` + png + `"},
			{"type":"input_audio","input_audio":{"data":"` + wave + `","format":"wav"}},
			{"type":"file","file":{"file_data":"` + pdf + `","filename":"a.pdf"}}]},
			{"role":"assistant","content":null,"refusal":null,"audio":null,"annotations":[],
			"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"1","content":"done"}],
			"tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":
			{"type":"object","$schema":"http://json-schema.org/draft-07/schema#",
			"properties":{"$ref":{"type":"string"},"url":{"$ref":"#/$defs/u"}},"$defs":{"u":{"type":"string"}}}}},
			{"type":"custom","custom":{"name":"g","format":{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}}}],
			"tool_choice":{"type":"function","function":{"name":"f"}},"logit_bias":{"5":-1},"stop":["a","b"],
			"web_search_options":null,"temperature":0.5,"response_format":{"type":"json_schema","json_schema":
			{"name":"a","schema":{"type":"object"}}},"chat_template_kwargs":{"enable_thinking":false}}`},
		{"completions", `{"prompt":[[1,2],[3]],"echo":true,"guided_json":"{\"type\":\"object\"}"}`},
		{"embeddings", `{"input":["a","b"],"encoding_format":"float","dimensions":8}`},
		{"responses", `{"input":"a"}`},
		{"responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},
			{"type":"input_image","image_url":"` + png + `","detail":"auto"},
			{"type":"input_file","file_data":"` + pdf + `","filename":"a.pdf"}]},
			{"type":"reasoning","id":"r","summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"x"},
			{"type":"message","id":"m","status":"completed","role":"assistant","content":[{"type":"output_text",
			"text":"a","annotations":[],"logprobs":[]}]},
			{"type":"function_call","id":"f","call_id":"c","name":"f","arguments":"{}","status":"completed"},
			{"type":"function_call_output","call_id":"c","output":"a"}],"include":["reasoning.encrypted_content"],
			"tools":[{"type":"function","name":"f","parameters":{},"strict":true},{"type":"custom","name":"g"}],
			"tool_choice":"auto","text":{"format":{"type":"json_schema","name":"n","schema":{}}},
			"reasoning":{"effort":"low"},"previous_response_id":null,"store":true}`},
	} {
		s := &servers{answer: says(200, chat)}
		p := newProxy(s, agentproxy.Limits{})
		if w := post(t, p, "/v1/"+test.path, test.body); w.Code != 200 || len(s.got) != 1 || p.Use().Forbidden != 0 {
			t.Errorf("%s: %d %s", test.path, w.Code, w.Body)
		} else if test.path == "responses" && !strings.Contains(s.got[0], `"store":false`) {
			t.Errorf("the server keeps %s", s.got[0])
		}
	}
}

func TestRequestsForMoreThanTheModelAreRefused(t *testing.T) {
	t.Parallel()
	const chats, responses = "chat/completions", "responses"
	part := func(p string) string { return `{"messages":[{"role":"user","content":[` + p + `]}]}` }
	input := func(p string) string { return `{"input":[{"role":"user","content":[` + p + `]}]}` }
	for _, test := range []struct{ path, body, member string }{
		{chats, `{"web_search_options":{}}`, "web_search_options"},
		{chats, `{"plugins":[{"id":"web"}]}`, "plugins"},
		{chats, `{"Tools":[]}`, "Tools"},
		{chats, `{"kv_transfer_params":{"remote_host":"10.0.0.1"}}`, "kv_transfer_params"},
		{chats, `{"chat_template":"{{ x }}"}`, "chat_template"},
		{chats, `{"chat_template_kwargs":{"chat_template":"x"}}`, "chat_template_kwargs.chat_template"},
		{chats, `{"modalities":["text","audio"]}`, "modalities[1]"},
		{chats, `{"tools":[{"type":"web_search"}]}`, "tools[0].type"},
		{chats, `{"tools":[{"type":"function","function":{"name":"f"}},{"type":"mcp","server_url":"http://x"}]}`,
			"tools[1].type"},
		{chats, `{"tools":[{"type":"function","type":"code_interpreter"}]}`, "tools[0].type"},
		{chats, `{"tools":[{"type":"function","type":"function"}]}`, "tools[0].type"},
		{chats, `{"tools":[{"function":{"name":"f"}}]}`, "tools[0].type"},
		{chats, `{"tools":{"type":"function"}}`, "tools"},
		{chats, `{"tools":[{"type":"function","function":{"parameters":{"items":[{"$ref":"http://x/s"}]}}}]}`,
			"tools[0].function.parameters.items[0].$ref"},
		{chats, `{"guided_json":"{\"$ref\":\"file:///etc/passwd\"}"}`, "guided_json.$ref"},
		{chats, `{"response_format":{"type":"json_schema","json_schema":{"schema":{"$dynamicRef":"x"}}}}`,
			"response_format.json_schema.schema.$dynamicRef"},
		{chats, `{"response_format":{"type":"structural_tag"}}`, "response_format.type"},
		{chats, `{"json_schema":` + strings.Repeat(`{"not":`, 200) + `1` + strings.Repeat(`}`, 200) + `}`, ""},
		{chats, `{"messages":"x"}`, "messages"},
		{chats, `{"messages":[{"role":"user","content":{"type":"text"}}]}`, "messages[0].content"},
		{chats, `{"messages":[{"role":"assistant","audio":{"id":"a"}}]}`, "messages[0].audio"},
		{chats, `{"messages":[{"role":"user","content":"a","content":"b"}]}`, "messages[0].content"},
		{chats, part(`{"type":"image_url","image_url":{"url":"http://10.0.0.1/"}}`),
			"messages[0].content[0].image_url.url"},
		{chats, part(`{"type":"image_url","image_url":"https://x/a.png"}`), "messages[0].content[0].image_url"},
		{chats, part(`{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}`),
			"messages[0].content[0].image_url.url"},
		{chats, part(`{"type":"image_url","image_url":{"url":"` + dataURL("image/svg+xml", "<svg/>") + `"}}`),
			"messages[0].content[0].image_url.url"},
		{chats, part(`{"type":"image_url","image_url":{"url":"` + dataURL("image/png", playlist) + `"}}`),
			"messages[0].content[0].image_url.url"},
		{chats, part(`{"type":"input_audio","input_audio":{"format":"wav","data":"` +
			base64.StdEncoding.EncodeToString([]byte(playlist)) + `"}}`), "messages[0].content[0].input_audio.data"},
		{chats, part(`{"type":"input_audio","input_audio":{"format":"wav","data":"http://x/a.wav"}}`),
			"messages[0].content[0].input_audio.data"},
		{chats, part(`{"type":"video_url","video_url":{"url":"` + png + `"}}`), "messages[0].content[0].type"},
		{chats, part(`{"type":"file","file":{"file_id":"f"}}`), "messages[0].content[0].file.file_id"},
		{chats, part(`{"type":"text","text":"a","image_url":{"url":"http://x"}}`), "messages[0].content[0].image_url"},
		{chats, part(`{"type":"image_url","image_url":{"url":"` + png + `","url":"http://x"}}`),
			"messages[0].content[0].image_url.url"},
		{chats, part(`{"type":"text","text":"a","uuid":"of-another"}`), "messages[0].content[0].uuid"},
		{"completions", `{"prompt":{"prompt_string":"a","multimodal_data":["x"]}}`, "prompt"},
		{"completions", `{"prompt_embeds":"gASV"}`, "prompt_embeds"},
		{"embeddings", `{"messages":[]}`, "messages"},
		{"embeddings", `{"input":[{"image":"http://x"}]}`, "input[0]"},
		{responses, `{"previous_response_id":"resp_1"}`, "previous_response_id"},
		{responses, `{"conversation":"conv_1"}`, "conversation"},
		{responses, `{"prompt":{"id":"p"}}`, "prompt"},
		{responses, `{"tools":[{"type":"web_search_preview"}]}`, "tools[0].type"},
		{responses, `{"tools":[{"type":"file_search","vector_store_ids":["v"]}]}`, "tools[0].type"},
		{responses, `{"tools":[{"type":"mcp","server_url":"http://x","server_label":"a"}]}`, "tools[0].type"},
		{responses, `{"tool_choice":{"type":"web_search"}}`, "tool_choice.type"},
		{responses, `{"input":[{"type":"item_reference","id":"a"}]}`, "input[0].type"},
		{responses, `{"input":[{"id":"a","type":"mcp_call"}]}`, "input[0].type"},
		{responses, input(`{"type":"input_image","image_url":"http://x"}`), "input[0].content[0].image_url"},
		{responses, input(`{"type":"input_image","file_id":"f"}`), "input[0].content[0].file_id"},
		{responses, input(`{"type":"input_file","file_url":"http://x/a.pdf"}`), "input[0].content[0].file_url"},
		{responses, `{"include":["file_search_call.results"]}`, "include[0]"},
	} {
		s := &servers{answer: says(200, chat)}
		p := newProxy(s, agentproxy.Limits{})
		w := post(t, p, "/v1/"+test.path, test.body)
		var said struct{ Error onlinewire.Problem }
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || w.Code != http.StatusBadRequest ||
			said.Error.Code != "not_allowed" || said.Error.Param == nil ||
			test.member != "" && *said.Error.Param != test.member || len(said.Error.Message) > 1000 {
			t.Errorf("%s: %d %s", test.body, w.Code, w.Body)
		}
		if use := p.Use(); len(s.got) > 0 || use.Forbidden != 1 || use.FirstForbidden != said.Error.Message ||
			use.Requests != 0 {
			t.Errorf("%s: %d requests were passed on, %+v", test.body, len(s.got), use)
		}
	}
}

// A schema is read once, however its references are nested.
func TestNestedReferencesOfASchemaAreReadOnce(t *testing.T) {
	t.Parallel()
	for depth, code := range map[int]int{60: 200, 70: 400, 5000: 400} {
		schema := strings.Repeat(`{"$ref":`, depth) + `"#/$defs/x"` + strings.Repeat(`}`, depth)
		s := &servers{answer: says(200, chat)}
		body := `{"messages":[],"guided_json":` + schema + `}`
		if got := post(t, newProxy(s, agentproxy.Limits{}), "/v1/chat/completions", body); got.Code != code {
			t.Errorf("depth %d: %d %s", depth, got.Code, got.Body)
		}
	}
}

// What stands behind a value that is nested too deep is not passed on unread.
func TestNothingIsHiddenBehindDeepValues(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for _, members := range []string{
		`"messages":[],"tools":[{"a":` + deep + `,"type":"web_search"}]`,
		`"messages":[` + deep + `,{"content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]`,
		`"messages":[],"guided_json":{"a":` + deep + `,"$ref":"http://x"}`,
		`"messages":[],"logit_bias":{"a":` + deep + `}`,
	} {
		s := &servers{answer: says(200, chat)}
		got := post(t, newProxy(s, agentproxy.Limits{}), "/v1/chat/completions", "{"+members+"}")
		if got.Code != 400 || len(s.got) > 0 {
			t.Errorf("%.60s: %d %s", members, got.Code, got.Body)
		}
	}
}

// A decoder skips the tag before a sound, and finds the format of what follows by itself.
func TestSoundsWithTagsHaveASoundBehindThem(t *testing.T) {
	t.Parallel()
	const tag = "ID3\x04\x00\x00\x00\x00\x00\x03abc"
	for text, code := range map[string]int{
		"\xff\xfb\x90\x00": 200, tag + "\xff\xfb\x90\x00": 200, tag + tag + "\xff\xfb\x90\x00": 200,
		tag + playlist: 400, tag + tag + playlist: 400, "ID3": 400, tag: 400,
		"ID3\x04\x00\x00\x7f\x7f\x7f\x7f" + playlist: 400,
	} {
		s := &servers{answer: says(200, chat)}
		body := `{"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"mp3","data":"` +
			base64.StdEncoding.EncodeToString([]byte(text)) + `"}}]}]}`
		if got := post(t, newProxy(s, agentproxy.Limits{}), "/v1/chat/completions", body); got.Code != code {
			t.Errorf("%q: %d %s", text, got.Code, got.Body)
		}
	}
}

// Whatever an agent sends, no URL and no tool of the server is in what is passed on.
func FuzzAllowedRequests(f *testing.F) {
	for _, seed := range []string{
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"http://x"}}]}]}`,
		`{"messages":[{"content":[{"type":"image_url","image_url":{"url":"` + png + `"}}]}],"tools":[{"type":"mcp"}]}`,
		`{"input":[{"role":"user","content":[{"type":"input_file","file_url":"http://x"}]}],"tools":[{"type":"function"}]}`,
		`{"response_format":{"type":"json_schema","json_schema":{"schema":{"$ref":"http://x"}}}}`,
		`{"prompt":["a",[1,2]],"n":2}`,
	} {
		for path := range 4 {
			f.Add(uint8(path), seed)
		}
	}
	paths := onlinewire.Paths()
	f.Fuzz(func(t *testing.T, path uint8, body string) {
		s := &servers{answer: says(200, chat)}
		post(t, newProxy(s, agentproxy.Limits{}), "/v1/"+paths[int(path)%len(paths)], body)
		if len(s.got) == 0 {
			return
		}
		var passed map[string]any
		if err := json.Unmarshal([]byte(s.got[0]), &passed); err != nil {
			t.Fatalf("%s is passed on as %s: %v", body, s.got[0], err)
		}
		if bad := reaching("", passed); bad != "" {
			t.Errorf("%s is passed on with %s", s.got[0], bad)
		}
	})
}

// reaching returns what of a request would let a server reach beyond the model.
func reaching(name string, value any) string {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			if bad := reaching(name, e); bad != "" {
				return bad
			}
		}
	case map[string]any:
		if kind, ok := v["type"].(string); ok && name == "tools" && kind != "function" && kind != "custom" {
			return "the tool " + kind
		}
		for n, e := range v {
			if slices.Contains([]string{"parameters", "schema", "json_schema", "guided_json", "json", "logit_bias",
				"reasoning", "stream_options"}, n) {
				continue // their members have any names
			}
			if bad := reaching(n, e); bad != "" {
				return bad
			}
		}
	case string:
		switch name {
		case "url", "image_url", "file_data":
			if !strings.HasPrefix(v, "data:") {
				return name + " " + v
			}
		case "file_url", "file_id", "server_url", "video_url", "audio_url", "previous_response_id":
			return name
		}
	}
	return ""
}
