package servers_test

import (
	"slices"
	"strings"
	"testing"

	"rollout/shared/core/servers"
)

func server(t *testing.T, name string) servers.Server {
	t.Helper()
	s, ok := servers.Of(name)
	if !ok {
		t.Fatalf("there is no server %q", name)
	}
	return s
}

func TestArgumentsAreThoseOfEachServer(t *testing.T) {
	t.Parallel()
	whole := servers.Start{Model: "org/model", Name: "org/model", Revision: "main", Tokenizer: "org/tokens", Parallel: 4,
		Halves: true, Host: "0.0.0.0", Port: 8000, More: []string{"--x", "$(id)"}}
	for name, c := range map[string]struct {
		server string
		start  servers.Start
		want   string
	}{
		"vLLM": {servers.VLLM, whole, "--model|org/model|--served-model-name|org/model|--host|0.0.0.0|--port|8000|" +
			"--revision|main|--tokenizer|org/tokens|--tensor-parallel-size|4|--dtype|half|--x|$(id)"},
		"vLLM is the default": {"", servers.Start{Model: "m", Name: "m", Host: "h", Port: 1},
			"--model|m|--served-model-name|m|--host|h|--port|1"},
		"SGLang": {servers.SGLang, whole, "python3|-m|sglang.launch_server|--model-path|org/model|--served-model-name|" +
			"org/model|--host|0.0.0.0|--port|8000|--revision|main|--tokenizer-path|org/tokens|--tp-size|4|--dtype|half|" +
			"--enable-metrics|--x|$(id)"},
		"llama.cpp splits by itself, and takes no revision": {servers.LlamaCpp, whole,
			"--hf-repo|org/model|--alias|org/model|--host|0.0.0.0|--port|8000|--n-gpu-layers|999|--metrics|--jinja|--x|$(id)"},
		"llama.cpp with a file": {servers.LlamaCpp,
			servers.Start{Model: "/model/a.gguf", Name: "a", Host: "h", Port: 1, Parallel: 1},
			"--model|/model/a.gguf|--alias|a|--host|h|--port|1|--n-gpu-layers|999|--metrics|--jinja"},
		"llama.cpp with a file that a variable names": {servers.LlamaCpp,
			servers.Start{Name: "a", Host: "h", Port: 1, Parallel: 1},
			"--alias|a|--host|h|--port|1|--n-gpu-layers|999|--metrics|--jinja"},
	} {
		if got := strings.Join(server(t, c.server).Arguments(c.start), "|"); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, c.want)
		}
	}
	if _, ok := servers.Of("tgi"); ok {
		t.Error("there is a server tgi")
	}
	if got := servers.Names(); !slices.Equal(got, []string{"vllm", "sglang", "llama.cpp"}) {
		t.Errorf("the servers are %q", got)
	}
}

func TestFlagsOfRolloutAreRecognized(t *testing.T) {
	t.Parallel()
	for argument, want := range map[string]bool{
		"--port": true, "--port=1": true, "--model": true, "--tensor_parallel_size": true, "-tp": true, "--api-key": true,
		"--max-model-len": false, "32768": false, "": false, "--kv-cache-dtype=fp8": false,
	} {
		if got := server(t, servers.VLLM).Own(argument); got != want {
			t.Errorf("vLLM: %q is one of rollout's own: %v, want %v", argument, got, want)
		}
	}
	if !server(t, servers.LlamaCpp).Own("-m") || server(t, servers.LlamaCpp).Own("") {
		t.Error("llama.cpp: -m is not one of rollout's own, or no flag is")
	}
}

func TestContextIsReadFromArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server string
		args   []string
		want   int
		known  bool
	}{
		"none":                {"vllm", []string{"--enforce-eager"}, 0, true},
		"two words":           {"vllm", []string{"--max-model-len", "8192"}, 8192, true},
		"one word":            {"vllm", []string{"--max-model-len=8192"}, 8192, true},
		"the last one counts": {"vllm", []string{"--max-model-len=1", "--max-model-len=2"}, 2, true},
		"thousands":           {"vllm", []string{"--max-model-len", "32k"}, 32000, true},
		"binary thousands":    {"vllm", []string{"--max-model-len", "32K"}, 32768, true},
		"its value missing":   {"vllm", []string{"--max-model-len"}, 0, false},
		"automatic":           {"vllm", []string{"--max-model-len", "auto"}, 0, false},
		"SGLang":              {"sglang", []string{"--context-length", "4096"}, 4096, true},
		"llama.cpp":           {"llama.cpp", []string{"-c", "4096"}, 4096, true},
	} {
		got, known := server(t, c.server).ContextOf(c.args)
		if got != c.want || known != c.known {
			t.Errorf("%s: %d, %v, want %d, %v", name, got, known, c.want, c.known)
		}
	}
}

func TestContextIsReadFromTheServersOwnDocument(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server, document string
		want             int
	}{
		"vLLM":         {"vllm", `{"object":"list","data":[{"id":"m","max_model_len":32768}]}`, 32768},
		"SGLang":       {"sglang", `{"data":[{"id":"m","root":"m","max_model_len":131072}]}`, 131072},
		"llama.cpp":    {"llama.cpp", `{"default_generation_settings":{"n_ctx":4096},"total_slots":4}`, 4096},
		"no models":    {"vllm", `{"data":[]}`, 0},
		"another type": {"vllm", `{"data":[{"max_model_len":"many"}]}`, 0},
		"no list":      {"vllm", `{"data":7}`, 0},
		"not JSON":     {"vllm", `<html>`, 0},
	} {
		if got := server(t, c.server).ReadContext([]byte(c.document)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestCauseIsTheLineThatSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const core = "(EngineCore_0 pid=272) ERROR 11-30 07:01:02 [core.py:708] "
	const tooLong = "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV " +
		"cache is needed, which is larger than the available KV cache memory (4.88 GiB)."
	for name, c := range map[string]struct{ log, want string }{
		"vLLM without memory for its cache": {core + "Traceback (most recent call last):\n" +
			core + `  File "/usr/lib/vllm/v1/core/kv_cache_utils.py", line 716, in check_enough_kv_cache_memory` + "\n" +
			core + tooLong + "\n(APIServer pid=1) Traceback (most recent call last):\n(APIServer pid=1) RuntimeError: " +
			"Engine core initialization failed. See root cause above. Failed core proc(s): {}\n", tooLong},
		"an unknown argument": {"usage: api_server.py [-h]\n" +
			"api_server.py: error: unrecognized arguments: --max-modell-len 1\n",
			"api_server.py: error: unrecognized arguments: --max-modell-len 1"},
		"a gated model": {"INFO loading\nOSError: You are trying to access a gated repo.\n" +
			"Make sure to have access to it at " +
			"https://huggingface.co/org/m\n", "OSError: You are trying to access a gated repo."},
		"an image that is not there": {"Unable to find image 'org/x:1' locally\ndocker: Error response from daemon: pull " +
			"access denied for org/x, repository does not exist\nrollout-engine-0.service: Main process exited, " +
			"code=exited, status=125/n/a\nrollout-engine-0.service: Failed with result 'exit-code'.\n",
			"docker: Error response from daemon: pull access denied for org/x, repository does not exist"},
		"no error at all":            {"loading\n\x1b[32mdone\x1b[0m\n\n", "done"},
		"nothing":                    {"", ""},
		"control characters are cut": {"RuntimeError: a\x00b\x07c\n", "RuntimeError: abc"},
		"a long line is cut": {"ValueError: " + strings.Repeat("ä", 400), "ValueError: " +
			strings.Repeat("ä", 194)},
	} {
		if got := servers.Cause(c.log); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
