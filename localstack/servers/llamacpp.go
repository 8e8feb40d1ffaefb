package servers

import (
	"os/exec"
	"runtime"
	"strconv"
)

// LlamaCPP is llama.cpp's server, one process. It answers all example prompts as the
// built-in model does, but for at most one where the two likeliest tokens are so close
// that the order of sums decides.
func LlamaCPP() Server {
	return Server{
		Name:    "llamacpp",
		Install: "make llamacpp-server",
		Format:  "gguf",
		program: "out/llamacpp-server/llama-server",
		lacks:   func() string { return "" },
		command: func(program string, o Options) *exec.Cmd {
			slots := max(1, o.Slots)
			args := []string{"--model", o.Model, "--alias", ModelName, "--host", "127.0.0.1",
				"--port", strconv.Itoa(o.Port), "--parallel", strconv.Itoa(slots), "--ctx-size", strconv.Itoa(slots * Context),
				// Without it a slot has no more tokens than the model says that it was made for.
				"--override-kv", "llama.context_length=int:" + strconv.Itoa(Context),
				"--threads", strconv.Itoa(runtime.NumCPU()), "--jinja", "--metrics", "--no-webui",
				// As exact as it computes: by default it rounds keys and values.
				"--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"}
			if o.Embeddings {
				// A mean would leave out the tokens of a prompt that it remembers.
				args = append(args, "--embeddings", "--pooling", "last")
			}
			return exec.Command(program, args...)
		},
	}
}
