package openai_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/openai"
)

func TestMetricsOfServersAreRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, metrics string
		want          engine.ServerMetrics
	}{
		{"vLLM, two engines", `# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 3.0
vllm:num_requests_running{engine="1",model_name="a } b"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:num_preemptions_total{engine="0"} 2.0
vllm:generation_tokens_total{engine="0",model_name="m"} 20.0
vllm:generation_tokens_total{engine="1",model_name="m"} 22.0
process_start_time_seconds 1.7e+09
`, engine.ServerMetrics{Start: "1.7e+09", Running: 7, Waiting: 1, KVCacheUsage: 0.75, Preempted: 2, Tokens: 42,
			Steps: -1}},
		{"older vLLM, with times and CRLF",
			"vllm:num_requests_running 5 1395066363000\r\nvllm:gpu_cache_usage_perc 0.5 1395066363000\r\n",
			engine.ServerMetrics{Running: 5, Waiting: -1, KVCacheUsage: 0.5, Preempted: -1, Tokens: -1, Steps: -1}},
		{"SGLang", "sglang:num_running_reqs{a=\"b\"} 2\nsglang:num_queue_reqs{a=\"b\"} 9\nsglang:token_usage{a=\"b\"} 0.1\n" +
			"sglang:generation_tokens_total 9\nsglang:gen_throughput 12.5\n",
			engine.ServerMetrics{Running: 2, Waiting: 9, KVCacheUsage: 0.1, Preempted: -1, Tokens: 9, Steps: 1}},
		{"llama.cpp", "llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n" +
			"llamacpp:tokens_predicted_total 7\nllamacpp:n_decode_total 30\n",
			engine.ServerMetrics{Running: 1, Waiting: 4, KVCacheUsage: -1, Preempted: -1, Tokens: 7, Steps: 30}},
		{"TGI", "tgi_batch_current_size 2\ntgi_queue_size 1\ntgi_request_generated_tokens_sum 70\n" +
			"tgi_batch_inference_count{method=\"prefill\"} 3\ntgi_batch_inference_count{method=\"decode\"} 40\n",
			engine.ServerMetrics{Running: 2, Waiting: 1, KVCacheUsage: -1, Preempted: -1, Tokens: 70, Steps: 43}},
		{"invalid values",
			"vllm:num_requests_running{ NaN\nvllm:num_requests_waiting -4\n\n{}\nvllm:kv_cache_usage_perc +Inf\n" +
				"vllm:generation_tokens_total NaN\nsglang:gen_throughput NaN\n",
			engine.UnknownMetrics()},
		{"another server's", "up 1\n", engine.UnknownMetrics()},
	} {
		got, err := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				sends(200, "text/plain", c.metrics)(w, r)
			}
		}).Metrics(t.Context())
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: the metrics differ (- is wanted):\n%s", c.name, diff)
		}
	}
}

// SGLang counts an answer's tokens when it ends; its gauges change while it works.
func TestChangesOfSGLangsGaugesAreSteps(t *testing.T) {
	t.Parallel()
	pages := []string{"sglang:num_used_tokens 5\n", "sglang:num_used_tokens 5\n", "sglang:num_used_tokens 9\n",
		"sglang:num_used_tokens 0\n", "sglang:num_used_tokens 0\n"}
	at := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) { sends(200, "text/plain", pages[at])(w, r) })
	var got []float64
	for at = range pages {
		v, err := c.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v.Steps)
	}
	if diff := cmp.Diff([]float64{1, 1, 2, 3, 3}, got); diff != "" {
		t.Error(diff)
	}
}

// llama.cpp without --metrics lists its slots.
func TestSlotsOfLlamaCppAreCounted(t *testing.T) {
	t.Parallel()
	lists := []struct {
		slots           string
		running, tokens float64
	}{
		{`[{"id":0,"id_task":1,"is_processing":true,"prompt":"x","next_token":{"n_decoded":10}},
			{"id":1,"id_task":-1,"is_processing":false,"next_token":[{"n_decoded":99}]}]`, 1, 0},
		{`[{"id":0,"id_task":1,"is_processing":true,"next_token":[{"n_remain":5,"n_decoded":14}]},
			{"id":1,"id_task":2,"is_processing":true,"next_token":[{"n_decoded":3}]}]`, 2, 7},
		{`[{"id":0,"id_task":3,"is_processing":true,"next_token":[{"n_decoded":1}]},
			{"id":1,"id_task":2,"is_processing":true,"n_decoded":4}]`, 2, 9},
		{`[{"id":0,"id_task":3,"is_processing":true,"next_token":[{"n_decoded":1}]}, 7, {"id":"x"},
			{"id":1,"id_task":2,"is_processing":true,"next_token":[null]}]`, 2, 9},
		{`{"error":{"code":501}}`, -1, -1},
		{`[`, -1, -1},
		{`[]`, -1, -1},
	}
	at := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slots" {
			sends(200, "application/json", lists[at].slots)(w, r)
			return
		}
		sends(501, "application/json", `{"error":{"message":"This server does not support metrics endpoint."}}`)(w, r)
	})
	for i, l := range lists {
		at = i
		v, err := c.Metrics(t.Context())
		if err != nil || v.Running != l.running || v.Tokens != l.tokens {
			t.Errorf("list %d: %+v, %v; want %v requests, %v tokens", i, v, err, l.running, l.tokens)
		}
	}
}

func TestServerWithoutMetricsReportsNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403, 404, 500, 503} {
		var asked []string
		got, err := serve(t, func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			w.WriteHeader(status)
		}).Metrics(t.Context())
		if got != engine.UnknownMetrics() || err != nil || len(asked) != 1 {
			t.Errorf("%d: %+v, %v after %v", status, got, err, asked)
		}
	}
}

// A request that reached the server may be the reason for its crash.
func TestServerErrorSaysWhetherServerReceivedRequest(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	dropped := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		client      *openai.Client
		serverError bool
		received    bool
	}{
		"connection refused": {newClient(t, closed.URL, ""), true, false},
		"connection broken":  {serve(t, dropped), true, true},
		"a 500":              {serve(t, sends(500, "text/plain", "boom")), true, true},
		"a 502 of a proxy":   {serve(t, sends(502, "text/html", "<html>")), true, true},
		"an error in a 200":  {serve(t, streams(events(`{"error":{"message":"EngineDeadError","code":500}}`))), true, true},
		"a 400":              {serve(t, sends(400, "text/plain", "no")), false, false},
		"a 429":              {serve(t, sends(429, "text/plain", "no")), false, false},
		"a 200 without text": {serve(t, whole(`{}`)), false, false},
	} {
		_, err := ask(t, c.client, hello)
		var serverErr *engine.ServerError
		if found := errors.As(err, &serverErr); found != c.serverError || found && serverErr.Received != c.received {
			t.Errorf("%s: %v, ServerError %+v", name, err, serverErr)
		}
	}
	_, err := newClient(t, closed.URL, "").Metrics(t.Context())
	var serverErr *engine.ServerError
	if !errors.As(err, &serverErr) || serverErr.Received {
		t.Errorf("metrics of a closed server: %v", err)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{a=\"}\"} 3.0 12\nprocess_start_time_seconds 1\n"))
	f.Add([]byte("vllm:num_requests_waiting NaN\n# x\n\n{"))
	f.Fuzz(func(t *testing.T, text []byte) {
		transport := canned{200, "text/plain", text}
		c, err := openai.New(openai.Config{BaseURL: "http://h", HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Metrics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []float64{v.Running, v.Waiting, v.KVCacheUsage, v.Preempted, v.Tokens, v.Steps} {
			if n != n || n < 0 && n != -1 || len(v.Start) > 64 {
				t.Errorf("%+v", v)
			}
		}
	})
}
