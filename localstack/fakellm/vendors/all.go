package vendors

// All returns all vendors.
func All() []Vendor {
	return []Vendor{openAI(), azure(), vllm(), sglang(), llamaCPP(), ollama(), liteLLM(), tgi()}
}

func openAI() Vendor {
	return Vendor{
		Name: "OpenAI", Base: "/v1", Models: list("system"),
		NoRoute: Reply{Status: 404, Body: `{"error":{"message":"Invalid URL (GET ` +
			`/health)","type":"invalid_request_error",` +
			`"param":null,"code":null}}`},
		Denied: Reply{Status: 401, Body: `{"error":{"message":"Incorrect API key provided: sk-wrong. You can find ` +
			`your API ` +
			`key at https://platform.openai.com/account/api-keys.","type":"invalid_request_error","param":null,` +
			`"code":"invalid_api_key"}}`},
		Missing: Reply{Status: 404, Body: "{\"error\":{\"message\":\"The model `missing` does not exist or you do not " +
			"have " +
			"access to it.\",\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"model_not_found\"}}"},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 8192 tokens. ` +
			`However, ` +
			`your messages resulted in 9001 tokens. Please reduce the length of the messages.",` +
			`"type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		Limited: Reply{Status: 429, RetryAfter: "1", Body: `{"error":{"message":"Rate limit reached for served on ` +
			`requests per ` +
			`min (RPM): Limit 3, Used 3, Requested 1. Please try again in 1s.","type":"requests","param":null,` +
			`"code":"rate_limit_exceeded"}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"The engine is currently overloaded, please try again later",` +
			`"type":"server_error","param":null,"code":null}}`},
		Filtered: Reply{Status: 400, Body: `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially ` +
			`violating our usage policy.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`},
	}
}

func azure() Vendor {
	return Vendor{
		Name: "Azure", Base: "/openai/deployments/served", KeyHeader: "Api-Key",
		Query:   map[string]string{"api-version": "2024-10-21"},
		NoRoute: Reply{Status: 404, Body: `{"error":{"code":"404","message":"Resource not found"}}`},
		Denied: Reply{Status: 401, Body: `{"error":{"code":"401","message":"Access denied due to invalid subscription ` +
			`key or ` +
			`wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct regional API ` +
			`endpoint for your resource."}}`},
		Missing: Reply{Status: 404, Body: `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this ` +
			`resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and try ` +
			`again."}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 8192 tokens. ` +
			`However, ` +
			`your messages resulted in 9001 tokens. Please reduce the length of the messages.",` +
			`"type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		Limited: Reply{Status: 429, RetryAfter: "7", Body: `{"error":{"code":"429","message":"Requests to the ` +
			`ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded token rate limit of ` +
			`your current OpenAI S0 pricing tier. Please retry after 7 seconds."}}`},
		Full: Reply{Status: 503, Body: `{"error":{"code":"InternalServerError","message":"The service is temporarily ` +
			`unable ` +
			`to process your request. Please try again later."}}`},
		Filtered: Reply{Status: 400, Body: `{"error":{"message":"The response was filtered due to the prompt ` +
			`triggering Azure ` +
			`OpenAI's content management policy. Please modify your prompt and retry.","type":null,"param":"prompt",` +
			`"code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation",` +
			`"content_filter_result":{"violence":{"filtered":true,"severity":"medium"}}}}}`},
	}
}

func vllm() Vendor {
	return Vendor{
		Name: "vLLM", Base: "/v1", Models: list("vllm"), Health: Reply{Status: 200}, Open: false,
		NoRoute: Reply{Status: 404, Body: `{"detail":"Not Found"}`},
		Denied:  Reply{Status: 401, Body: `{"error":"Unauthorized"}`},
		Missing: Reply{Status: 404, Body: "{\"error\":{\"message\":\"The model `missing` does not exist.\"," +
			`"type":"NotFoundError","param":"model","code":404}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 256 tokens. ` +
			`However, ` +
			`you requested 300 tokens in the messages, Please reduce the length of the messages.",` +
			`"type":"BadRequestError","param":null,"code":400}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"The server is overloaded","type":"ServiceUnavailableError",` +
			`"param":null,"code":503}}`},
	}
}

func sglang() Vendor {
	return Vendor{
		Name: "SGLang", Base: "/v1", Models: list("sglang"), Health: Reply{Status: 200}, Open: true,
		Loading: Reply{Status: 503},
		NoRoute: Reply{Status: 404, Body: `{"detail":"Not Found"}`},
		Denied:  Reply{Status: 401, Body: `{"error":"Unauthorized"}`},
		TooLong: Reply{Status: 400, Body: `{"object":"error","message":"The input (61709 tokens) is longer than the ` +
			`model's ` +
			`context length (40960 tokens).","type":"BadRequestError","param":null,"code":400}`},
		Full: Reply{Status: 503, Body: `{"object":"error","message":"The request queue is full.",` +
			`"type":"ServiceUnavailableError","param":null,"code":503}`},
	}
}

func llamaCPP() Vendor {
	return Vendor{
		Name: "llama.cpp", Base: "/v1", Models: list("llamacpp"),
		Health: Reply{Status: 200, Body: `{"status":"ok"}`}, Open: true,
		Loading: Reply{Status: 503, Body: `{"error":{"message":"Loading model","type":"unavailable_error","code":503}}`},
		NoRoute: Reply{Status: 404, Body: `{"error":{"message":"File Not Found","type":"not_found_error","code":404}}`},
		Denied:  Reply{Status: 401, Body: `{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"code":400,"message":"the request exceeds the available context ` +
			`size. ` +
			`try increasing the context size or enable context shift","type":"exceed_context_size_error",` +
			`"n_prompt_tokens":300,"n_ctx":256}}`},
	}
}

func ollama() Vendor {
	return Vendor{
		Name: "Ollama", Base: "/v1", Models: list("library"), Open: true,
		NoRoute: Reply{Status: 404, Body: "404 page not found"},
		Denied:  Reply{Status: 401, Body: `{"error":"unauthorized"}`}, // of a proxy: Ollama itself takes any key
		Missing: Reply{Status: 404, Body: `{"error":{"message":"model \"missing\" not found, try pulling it first",` +
			`"type":"api_error","param":null,"code":null}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"server busy, please try again.  maximum pending requests ` +
			`exceeded","type":"api_error","param":null,"code":null}}`},
	}
}

func liteLLM() Vendor {
	return Vendor{
		Name: "LiteLLM", Base: "/v1", Models: list("openai"),
		Health:  Reply{Status: 200, Body: `{"healthy_endpoints":[],"unhealthy_endpoints":[],"healthy_count":0}`},
		NoRoute: Reply{Status: 404, Body: `{"detail":"Not Found"}`},
		Denied: Reply{Status: 401, Body: `{"error":{"message":"Authentication Error, Invalid proxy server token passed.",` +
			`"type":"auth_error","param":"None","code":"401"}}`},
		Missing: Reply{Status: 400, Body: `{"error":{"message":{"error":"/chat/completions: Invalid model name passed in ` +
			"model=missing. Call `/v1/models` to view available models for your key.\"}," +
			`"type":"None","param":"None","code":"400"}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"litellm.ContextWindowExceededError: ` +
			`litellm.BadRequestError: ` +
			`OpenAIException - This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 ` +
			`tokens.","type":"invalid_request_error","param":null,"code":"400"}}`},
		Limited: Reply{Status: 429, RetryAfter: "60", Body: `{"error":{"message":"litellm.RateLimitError: Max ` +
			`parallel request ` +
			`limit reached","type":"None","param":"None","code":"429"}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"litellm.ServiceUnavailableError: the provider is ` +
			`overloaded",` +
			`"type":null,"param":null,"code":"503"}}`},
		Filtered: Reply{Status: 400, Body: `{"error":{"message":"litellm.ContentPolicyViolationError: the prompt was ` +
			`filtered",` +
			`"type":"invalid_request_error","param":null,"code":"content_policy_violation"}}`},
	}
}

func tgi() Vendor {
	return Vendor{
		Name: "TGI", Base: "/v1", Models: list(Model), Health: Reply{Status: 200}, Open: true,
		Loading: Reply{Status: 503, Body: `{"error":"unhealthy","error_type":"healthcheck"}`},
		NoRoute: Reply{Status: 404},
		Denied:  Reply{Status: 401, Body: `{"error":"unauthorized","error_type":"authorization"}`}, // of a proxy
		TooLong: Reply{Status: 422, Body: "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` " +
			"must be <= " +
			"2048. Given: 3000 `inputs` tokens and 100 `max_new_tokens`\",\"error_type\":\"validation\"}"},
		Limited: Reply{Status: 429, Body: `{"error":"Model is overloaded","error_type":"overloaded"}`},
	}
}
