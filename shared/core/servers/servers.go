// Package servers is the table of the inference servers that machines can start: the
// arguments of each, how it says that it is ready, and where it tells its limits. The
// start of machines, the checks of a deployment and the doctor read it. It starts
// nothing.
//
//	Of(name) ──▶ Server ──▶ Arguments(Start) ──▶ a container's arguments, one for each word
package servers

import (
	"slices"
	"strconv"
	"strings"
)

// Names of servers, as pool.server of a config has them.
const (
	VLLM     = "vllm"
	SGLang   = "sglang"
	LlamaCpp = "llama.cpp"
)

// Server is one row of the table.
type Server struct {
	Name string
	// Image is the default container image.
	Image string
	// Program is the server's program in its image, with the arguments that come first.
	Program []string
	// Entry says that a container of the image starts Program by itself.
	Entry bool
	// Ready is the path that answers 200 once requests are answered.
	Ready string
	// Limits is the path of a JSON document with the context length, at one of the
	// members in Context.
	Limits  string
	Context [][]string
	// Cache is the folder in the container where it keeps models of the hub.
	Cache string
	// CacheVariable is the variable that names the folder "hub" below Cache to a server that
	// else may keep models elsewhere, and "" for the others.
	CacheVariable string

	model, name, revision, tokenizer, parallel string // flags; "" if the server has none
	halves                                     []string
	always                                     []string
	contextFlags                               []string
	own                                        []string // further flags that rollout sets
}

// all is the table.
func all() []Server {
	return []Server{
		{
			Name: VLLM, Image: "vllm/vllm-openai:v0.21.0-cu129",
			Program: []string{"python3", "-m", "vllm.entrypoints.openai.api_server"}, Entry: true,
			Ready: "/health", Limits: "/v1/models", Context: [][]string{{"data", "0", "max_model_len"}},
			Cache: "/root/.cache/huggingface",
			model: "--model", name: "--served-model-name", revision: "--revision", tokenizer: "--tokenizer",
			parallel: "--tensor-parallel-size", halves: []string{"--dtype", "half"},
			contextFlags: []string{"--max-model-len", "--max_model_len"}, own: []string{"-tp"},
		},
		{
			Name: SGLang, Image: "lmsysorg/sglang:v0.5.11-cu129",
			Program: []string{"python3", "-m", "sglang.launch_server"},
			Ready:   "/health", Limits: "/v1/models",
			Context: [][]string{{"data", "0", "max_model_len"}},
			Cache:   "/root/.cache/huggingface",
			model:   "--model-path", name: "--served-model-name", revision: "--revision", tokenizer: "--tokenizer-path",
			parallel: "--tp-size", halves: []string{"--dtype", "half"},
			always: []string{"--enable-metrics"}, contextFlags: []string{"--context-length"},
			own: []string{"--model", "--tp", "--tensor-parallel-size"},
		},
		{
			Name: LlamaCpp, Image: "ghcr.io/ggml-org/llama.cpp:server-cuda",
			Program: []string{"/app/llama-server"}, Entry: true,
			Ready: "/health", Limits: "/props",
			Context: [][]string{{"default_generation_settings", "n_ctx"}},
			Cache:   "/root/.cache/huggingface", CacheVariable: "LLAMA_CACHE",
			model: "--hf-repo", name: "--alias",
			always:       []string{"--n-gpu-layers", "999", "--metrics", "--jinja"},
			contextFlags: []string{"--ctx-size", "-c"},
			own:          []string{"-hf", "-hfr", "-m", "--model", "-a"},
		},
	}
}

// Names returns the names of the servers, the default first.
func Names() (names []string) {
	for _, s := range all() {
		names = append(names, s.Name)
	}
	return names
}

// Of returns the server of that name; "" is VLLM.
func Of(name string) (Server, bool) {
	for _, s := range all() {
		if s.Name == name || name == "" {
			return s, true
		}
	}
	return Server{}, false
}

// Start says what a server shall serve, and how.
type Start struct {
	// Model is the name of a model of the hub, or the path of its folder in the
	// container, or of its file for llama.cpp; "" if a variable names the file.
	Model    string
	Name     string // under which clients ask for the model
	Revision string // of the hub; "" is the newest
	// Tokenizer is the name or path of another tokenizer than the model's; optional.
	Tokenizer string
	Parallel  int  // GPUs of the server
	Halves    bool // the GPU has no bfloat16
	Host      string
	Port      int
	More      []string // the user's arguments
}

// Arguments returns the arguments of a container of the server's image. Each is one word
// of an argument list, and none is for a shell.
func (s Server) Arguments(o Start) []string {
	if s.Entry {
		return s.flags(o)
	}
	return s.Command(o)
}

// Command returns the server as a command inside its image: Program and its arguments.
func (s Server) Command(o Start) []string { return slices.Concat(s.Program, s.flags(o)) }

func (s Server) flags(o Start) []string {
	model := s.model
	if s.Name == LlamaCpp && strings.HasPrefix(o.Model, "/") {
		model = "--model"
	}
	var out []string
	add := func(flag, value string) {
		if flag != "" && value != "" {
			out = append(out, flag, value)
		}
	}
	add(model, o.Model)
	out = append(out, s.name, o.Name, "--host", o.Host, "--port", strconv.Itoa(o.Port))
	add(s.revision, o.Revision)
	add(s.tokenizer, o.Tokenizer)
	if o.Parallel > 1 {
		add(s.parallel, strconv.Itoa(o.Parallel))
	}
	if o.Halves {
		out = append(out, s.halves...)
	}
	out = append(out, s.always...)
	return append(out, o.More...)
}

// HasTokenizer reports whether the server takes another tokenizer than the model's.
func (s Server) HasTokenizer() bool { return s.tokenizer != "" }

// HasRevision reports whether the server takes a revision of the hub.
func (s Server) HasRevision() bool { return s.revision != "" }

// Own reports whether rollout sets the flag of an argument itself, such as
// "--port=9000". Servers of Python also take a flag's beginning, if it is unambiguous;
// such a flag is not found.
func (s Server) Own(argument string) bool {
	flag, _, _ := strings.Cut(argument, "=")
	flag = strings.ReplaceAll(flag, "_", "-")
	own := []string{s.model, s.name, s.revision, s.tokenizer, s.parallel, "--host", "--port", "--api-key"}
	return flag != "" && slices.Contains(append(own, s.own...), flag)
}

// ContextOf returns the context length that the arguments set, or 0. ok is false where
// its value can't be read.
func (s Server) ContextOf(arguments []string) (tokens int, ok bool) {
	value, given := s.valueOf(arguments, s.contextFlags)
	if !given {
		return 0, true
	}
	return parseTokens(value)
}

// ContextFlag is the flag that limits the context.
func (s Server) ContextFlag() string { return s.contextFlags[0] }

// Value returns the value of a flag among the arguments: of the last one, as servers
// take it.
func (s Server) Value(arguments []string, flag string) (value string, given bool) {
	return s.valueOf(arguments, []string{flag})
}

func (s Server) valueOf(arguments, flags []string) (value string, given bool) {
	for i, a := range arguments {
		flag, v, joined := strings.Cut(a, "=")
		if !slices.Contains(flags, flag) {
			continue
		}
		if given = true; joined {
			value = v
		} else if value = ""; i+1 < len(arguments) {
			value = arguments[i+1]
		}
	}
	return value, given
}

// parseTokens reads a number of tokens: "32768", and "32k" (32,000) or "32K" (32,768) as
// vLLM writes them.
func parseTokens(s string) (int, bool) {
	factor := map[byte]int{'k': 1000, 'K': 1024, 'm': 1_000_000, 'M': 1 << 20}
	if n := len(s); n > 0 && factor[s[n-1]] > 0 {
		x, err := strconv.ParseFloat(s[:n-1], 64)
		return int(x * float64(factor[s[n-1]])), err == nil && x > 0
	}
	x, err := strconv.Atoi(s)
	return x, err == nil && x >= 0
}
