package vendors

// vllm/entrypoints/openai (server_utils.py, models/serving.py, chat_completion/protocol.py). Only paths below /v1 need
// the key. Its port opens when the model is loaded.
func vllm() Vendor {
	return Vendor{
		Name: "vLLM", Base: "/v1", Public: []string{"/health"}, Health: Reply{Status: 200},
		Models: Reply{Status: 200, Body: `{"object":"list","data":[{"id":"served","object":"model","created":1,` +
			`"owned_by":"vllm","root":"/models/served","parent":null,"max_model_len":256,"permission":[]},{"id":"other",` +
			`"object":"model","created":1,"owned_by":"vllm","root":"/adapters/other","parent":"served",` +
			`"max_model_len":null,"permission":[]}]}`},
		Answer: `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"served","choices":[{"index":0,` +
			`"message":{"role":"assistant","content":"ok","refusal":null,"annotations":null,"audio":null,` +
			`"function_call":null,"tool_calls":[],"reasoning_content":null},"logprobs":null,"finish_reason":"stop",` +
			`"stop_reason":null,"token_ids":null}],"service_tier":null,"system_fingerprint":null,"usage":` +
			`{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1,"prompt_tokens_details":null},` +
			`"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}`,
		NoRoute: Reply{Status: 404, Body: `{"detail":"Not Found"}`},
		Denied:  Reply{Status: 401, Body: `{"error":"Unauthorized"}`},
		Missing: Reply{Status: 404, Body: "{\"error\":{\"message\":\"The model `missing` does not exist.\"," +
			`"type":"NotFoundError","param":"model","code":404}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"You passed 257 input tokens and requested 0 output ` +
			`tokens. However, the model's context length is only 256 tokens, resulting in a maximum input length of 256 ` +
			`tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=257)",` +
			`"type":"BadRequestError","param":"input_tokens","code":400}}`},
		OnlyChats: Reply{Status: 501, Body: `{"error":{"message":"The model does not support Completions API",` +
			`"type":"NotImplementedError","param":null,"code":501}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"The server is overloaded","type":"Service Unavailable",` +
			`"param":null,"code":503}}`},
	}
}

// sglang/srt (utils/auth.py, entrypoints/openai/serving_base.py and protocol.py, managers/scheduler.py). /health is
// 503 until the first answer that it makes for itself; requests are answered meanwhile. It takes any model's name.
func sglang() Vendor {
	return Vendor{
		Name: "SGLang", Base: "/v1", Public: []string{"/health"}, Health: Reply{Status: 200},
		Models: Reply{Status: 200, Body: `{"object":"list","data":[{"id":"served","object":"model","created":1,` +
			`"owned_by":"sglang","root":"served","parent":null,"max_model_len":40960},{"id":"other","object":"model",` +
			`"created":1,"owned_by":"sglang","root":"/adapters/other","parent":"served","max_model_len":null}]}`},
		Answer: `{"id":"1","object":"chat.completion","created":1,"model":"served","choices":[{"index":0,"message":` +
			`{"role":"assistant","content":"ok","reasoning_content":null,"tool_calls":null},"logprobs":null,` +
			`"finish_reason":"stop","matched_stop":151645}],"usage":{"prompt_tokens":3,"total_tokens":4,` +
			`"completion_tokens":1,"prompt_tokens_details":null,"reasoning_tokens":0},"metadata":` +
			`{"weight_version":"default"}}`,
		Loading: Loading{Health: Reply{Status: 503}},
		NoRoute: Reply{Status: 404, Body: `{"detail":"Not Found"}`},
		Denied:  Reply{Status: 401, Body: `{"error":"Unauthorized"}`},
		TooLong: Reply{Status: 400, Body: `{"object":"error","message":"The input (61709 tokens) is longer than the ` +
			`model's context length (40960 tokens).","type":"BadRequestError","param":null,"code":400}`},
		Full: Reply{Status: 503, Body: `{"object":"error","message":"The request queue is full.","type":"503",` +
			`"param":null,"code":503}`},
	}
}

// llama.cpp's tools/server (server-http.cpp, server-context.cpp). While it loads the model, each path says so. It
// takes any model's name, and queues all requests.
func llamaCPP() Vendor {
	loading := Reply{Status: 503, Body: `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`}
	return Vendor{
		Name: "llama.cpp", Base: "/v1", Public: []string{"/models", "/health"},
		Models: Reply{Status: 200, Body: `{"models":[{"name":"served","model":"served","type":"model",` +
			`"capabilities":["completion"]}],"object":"list","data":[{"id":"served","object":"model","created":1,` +
			`"owned_by":"llamacpp","meta":{"n_ctx_train":256,"n_vocab":512}}]}`},
		Health:  Reply{Status: 200, Body: `{"status":"ok"}`},
		Loading: Loading{Health: loading, Models: loading, Chats: loading},
		Answer: `{"choices":[{"finish_reason":"stop","index":0,"message":{"role":"assistant","content":"ok"}}],` +
			`"created":1,"model":"served","system_fingerprint":"b1-1","object":"chat.completion","usage":` +
			`{"completion_tokens":1,"prompt_tokens":3,"total_tokens":4},"id":"chatcmpl-1","timings":{"prompt_n":3,` +
			`"prompt_ms":1.5,"predicted_n":1,"predicted_ms":0.5}}`,
		NoRoute: Reply{Status: 404, Body: `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`},
		Denied:  Reply{Status: 401, Body: `{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"code":400,"message":"request (300 tokens) exceeds the available ` +
			`context size (256 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":300,` +
			`"n_ctx":256}}`},
	}
}

// Ollama's openai/openai.go, server/routes.go and server/sched.go. It has no key and no /health, loads a model when it
// is asked for, and cuts prompts that are too long.
func ollama() Vendor {
	return Vendor{
		Name: "Ollama", Base: "/v1", Models: list("library", Model, "other"), Public: []string{"/models", "/health"},
		Answer: `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"served","system_fingerprint":` +
			`"fp_ollama","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],` +
			`"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}` + "\n",
		NoRoute: Reply{Status: 404, Body: "404 page not found"},
		Denied:  Reply{Status: 401, Body: `{"error":"unauthorized"}`}, // of a proxy in front of it
		Missing: Reply{Status: 404, Body: `{"error":{"message":"model 'missing' not found","type":"not_found_error",` +
			`"param":null,"code":null}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"server busy, please try again.  maximum pending requests ` +
			`exceeded","type":"api_error","param":null,"code":null}}`},
	}
}

// text-generation-inference's router/src (server.rs, validation.rs). A wrong key has an empty reply. It takes any
// model's name. Its port opens when the model is loaded; it is unhealthy while its generation fails.
func tgi() Vendor {
	return Vendor{
		Name: "TGI", Base: "/v1", Models: list(Model, Model), Public: []string{"/models", "/health"},
		Health: Reply{Status: 200},
		Loading: Loading{Health: Reply{Status: 503, Body: `{"error":"unhealthy","error_type":"healthcheck"}`},
			Chats: Reply{Status: 424, Body: `{"error":"Request failed during generation: the shard is gone",` +
				`"error_type":"generation"}`}},
		Answer: `{"object":"chat.completion","id":"","created":1,"model":"served","system_fingerprint":"3.0.0-sha-1",` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"logprobs":null,` +
			`"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`,
		NoRoute: Reply{Status: 404},
		Denied:  Reply{Status: 401},
		TooLong: Reply{Status: 422, Body: "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must " +
			"be <= 2048. Given: 3000 `inputs` tokens and 100 `max_new_tokens`\",\"error_type\":\"validation\"}"},
		Limited: Reply{Status: 429, Body: `{"error":"Model is overloaded","error_type":"overloaded"}`},
	}
}
