package vendors

// OpenAI's error guide and API reference (developers.openai.com/docs), and what users report of its replies:
// langchaingo#201 (a chat model asked for a completion), climb#1 (rate limit).
func openAI() Vendor {
	return Vendor{
		Name: "OpenAI", Base: "/v1", Models: list("system", Model, "other"),
		Answer: `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"served","choices":[{"index":0,` +
			`"message":{"role":"assistant","content":"ok","refusal":null,"annotations":[]},"logprobs":null,` +
			`"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,` +
			`"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":` +
			`{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}},` +
			`"service_tier":"default","system_fingerprint":"fp_1"}`,
		OnlyChats: Reply{Status: 404, Body: `{"error":{"message":"This is a chat model and not supported in the ` +
			`v1/completions endpoint. Did you mean to use v1/chat/completions?","type":"invalid_request_error",` +
			`"param":"model","code":null}}`},
		NoRoute: Reply{Status: 404, Body: `{"error":{"message":"Invalid URL (GET /health)","type":"invalid_request_error",` +
			`"param":null,"code":null}}`},
		Denied: Reply{Status: 401, Body: `{"error":{"message":"Incorrect API key provided: sk-wrong. You can find your ` +
			`API key at https://platform.openai.com/account/api-keys.","type":"invalid_request_error","param":null,` +
			`"code":"invalid_api_key"}}`},
		Missing: Reply{Status: 404, Body: "{\"error\":{\"message\":\"The model `missing` does not exist or you do not have " +
			`access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 8192 tokens. ` +
			`However, your messages resulted in 9001 tokens. Please reduce the length of the messages.",` +
			`"type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		Limited: Reply{Status: 429, RetryAfter: "1", Body: `{"error":{"message":"Rate limit reached for served on ` +
			`requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 1s.","type":"requests",` +
			`"param":null,"code":"rate_limit_exceeded"}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"The engine is currently overloaded, please try again later",` +
			`"type":"server_error","param":null,"code":null}}`},
		Filtered: Reply{Status: 400, Body: `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially ` +
			`violating our usage policy.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`},
	}
}

// Azure OpenAI's reference and its manual of content filtering (learn.microsoft.com), and what users report:
// langchainjs#2633 (a chat model asked for a completion), dbchatprov2#2 (rate limit).
func azure() Vendor {
	return Vendor{
		Name: "Azure", Base: "/openai/deployments/served", KeyHeader: "Api-Key",
		Query: map[string]string{"api-version": "2024-10-21"},
		Answer: `{"choices":[{"content_filter_results":{"hate":{"filtered":false,"severity":"safe"}},` +
			`"finish_reason":"stop","index":0,"logprobs":null,"message":{"content":"ok","refusal":null,` +
			`"role":"assistant"}}],"created":1,"id":"chatcmpl-1","model":"served","object":"chat.completion",` +
			`"prompt_filter_results":[{"prompt_index":0,"content_filter_results":{"hate":{"filtered":false,` +
			`"severity":"safe"}}}],"system_fingerprint":"fp_1","usage":{"completion_tokens":1,"prompt_tokens":3,` +
			`"total_tokens":4}}`,
		OnlyChats: Reply{Status: 400, Body: `{"error":{"code":"OperationNotSupported","message":"The completion operation ` +
			`does not work with the specified model, gpt-35-turbo. Please choose different model and try again. You can ` +
			`learn more about which models can be used with each operation here: ` +
			`https://go.microsoft.com/fwlink/?linkid=2197993."}}`},
		NoRoute: Reply{Status: 404, Body: `{"error":{"code":"404","message":"Resource not found"}}`},
		Denied: Reply{Status: 401, Body: `{"error":{"code":"401","message":"Access denied due to invalid subscription ` +
			`key or wrong API endpoint. Make sure to provide a valid key for an active subscription and use a correct ` +
			`regional API endpoint for your resource."}}`},
		Missing: Reply{Status: 404, Body: `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this ` +
			`resource does not exist. If you created the deployment within the last 5 minutes, please wait a moment and ` +
			`try again."}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"This model's maximum context length is 8192 tokens. ` +
			`However, your messages resulted in 9001 tokens. Please reduce the length of the messages.",` +
			`"type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`},
		Limited: Reply{Status: 429, RetryAfter: "7", Body: `{"error":{"code":"429","message":"Requests to the ` +
			`ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded token rate limit ` +
			`of your current OpenAI S0 pricing tier. Please retry after 7 seconds."}}`},
		Full: Reply{Status: 503, Body: `{"error":{"code":"InternalServerError","message":"The service is temporarily ` +
			`unable to process your request. Please try again later."}}`},
		Filtered: Reply{Status: 400, Body: `{"error":{"message":"The response was filtered due to the prompt triggering ` +
			`Azure OpenAI's content management policy. Please modify your prompt and retry.","type":null,` +
			`"param":"prompt","code":"content_filter","status":400,"innererror":{"code":"ResponsibleAIPolicyViolation",` +
			`"content_filter_result":{"violence":{"filtered":true,"severity":"medium"}}}}}`},
	}
}

// litellm/proxy (route_llm_request.py, auth, health_endpoints), litellm/exceptions.py, and litellm#8821 (unknown
// model), TinyLLM#17 (rate limit of a provider). Its /health asks every model, with the key.
func liteLLM() Vendor {
	return Vendor{
		Name: "LiteLLM", Base: "/v1", Models: list("openai", Model, "other"),
		Health: Reply{Status: 200, Body: `{"healthy_endpoints":[],"unhealthy_endpoints":[],"healthy_count":0,` +
			`"unhealthy_count":0}`},
		Answer: `{"id":"chatcmpl-1","created":1,"model":"served","object":"chat.completion","system_fingerprint":null,` +
			`"choices":[{"finish_reason":"stop","index":0,"message":{"content":"ok","role":"assistant",` +
			`"tool_calls":null,"function_call":null}}],"usage":{"completion_tokens":1,"prompt_tokens":3,` +
			`"total_tokens":4,"completion_tokens_details":null,"prompt_tokens_details":null},"service_tier":null}`,
		NoRoute: Reply{Status: 404, Body: `{"detail":"Not Found"}`},
		Denied: Reply{Status: 401, Body: `{"error":{"message":"Authentication Error, Invalid proxy server token passed. ` +
			`Received API Key = sk-...6789, Key Hash (Token) =61de. Unable to find token in cache or ` +
			"`LiteLLM_VerificationTokenTable`\",\"type\":\"token_not_found_in_db\",\"param\":\"key\",\"code\":\"401\"}}"},
		Missing: Reply{Status: 400, Body: `{"error":{"message":{"error":"/chat/completions: Invalid model name passed in ` +
			"model=missing. Call `/v1/models` to view available models for your key.\"}," +
			`"type":"None","param":"None","code":"400"}}`},
		TooLong: Reply{Status: 400, Body: `{"error":{"message":"litellm.ContextWindowExceededError: ` +
			`litellm.BadRequestError: ContextWindowExceededError: OpenAIException - This model's maximum context length ` +
			`is 8192 tokens. However, your messages resulted in 9001 tokens.","type":null,"param":null,"code":"400"}}`},
		Limited: Reply{Status: 429, RetryAfter: "60", Body: `{"error":{"message":"litellm.RateLimitError: Max parallel ` +
			`request limit reached","type":"throttling_error","param":null,"code":"429"}}`},
		Full: Reply{Status: 503, Body: `{"error":{"message":"litellm.ServiceUnavailableError: the provider is ` +
			`overloaded","type":null,"param":null,"code":"503"}}`},
		Filtered: Reply{Status: 400, Body: `{"error":{"message":"litellm.ContentPolicyViolationError: the prompt was ` +
			`filtered","type":"invalid_request_error","param":null,"code":"content_policy_violation"}}`},
	}
}
