package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/servers"
	"rollout/shared/fault"
)

const head = "schema_version = 1\n[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\ns3.bucket = 'acme'\n" +
	"[[pool]]\nname = 'small'\n"

// written writes the units of the pool for the GPUs, and returns the machine's root.
func written(t *testing.T, pool, gpus string) string {
	t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte(head+pool))
	if err != nil {
		t.Fatal(err)
	}
	list, err := parseGPUs(gpus)
	if err != nil {
		t.Fatal(err)
	}
	p := d.Pool("small")
	u := Units{Pool: p, Machines: d.MachinesOf(p), Root: t.TempDir()}
	if err := u.Write(list); err != nil {
		t.Fatal(err)
	}
	return u.Root
}

func read(t *testing.T, root, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// command returns the command of a unit.
func command(t *testing.T, root, unit string) string {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, root, "etc/systemd/system/rollout-engine-"+unit+".service"), "\nExecStart=")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

const docker = `/usr/bin/docker "run" "--rm" "--name" "rollout-engine-`

func TestEachGPUHasAServer(t *testing.T) {
	t.Parallel()
	root := written(t, "model = 'org/model'\nrevision = 'main'\n", "0, 8.9\n1, 7.5\n")
	want := docker + `0" "--gpus" "device=0" "--shm-size" "2g" "--cap-drop" "ALL" "--security-opt" "no-new-privileges" ` +
		`"--env-file" "/etc/rollout/engine.env" "--env-file" "/etc/rollout/pool.env" ` +
		`"--volume" "/var/lib/rollout/models:/root/.cache/huggingface" "--publish" "127.0.0.1:8000:8000" ` +
		`"vllm/vllm-openai:v0.21.0-cu129" "--model" "org/model" "--served-model-name" "org/model" "--host" "0.0.0.0" ` +
		`"--port" "8000" "--revision" "main"`
	if got := command(t, root, "0"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := command(t, root, "1"); !strings.Contains(got, `"device=1"`) ||
		!strings.Contains(got, `"127.0.0.1:8001:8000"`) || !strings.HasSuffix(got, `"--dtype" "half"`) {
		t.Errorf("a GPU without bfloat16: %s", got)
	}
	const list = "0 8000 /health /v1/models 0\n1 8001 /health /v1/models 1\n"
	if got := read(t, root, serversFile); got != list {
		t.Errorf("the servers are %q, want %q", got, list)
	}
	if got := read(t, root, imageFile); got != "vllm/vllm-openai:v0.21.0-cu129\n" {
		t.Errorf("the image is %q", got)
	}
	if _, err := os.Stat(filepath.Join(root, modelFile)); !os.IsNotExist(err) {
		t.Errorf("a model of the hub is to be fetched from a bucket: %v", err)
	}
}

func TestOneServerUsesSeveralGPUs(t *testing.T) {
	t.Parallel()
	root := written(t, "model = 'org/model'\ntensor_parallel = 2\n", "3, 9.0\n2, 9.0\n1, 9.0\n0, 9.0\n4, 9.0\n")
	if got := read(t, root, serversFile); got != "0 8000 /health /v1/models 0,1\n2 8002 /health /v1/models 2,3\n" {
		t.Errorf("the servers are %q", got)
	}
	got := command(t, root, "2")
	for _, want := range []string{`"--gpus" "\"device=2,3\""`, `"--shm-size" "16g"`, `"--tensor-parallel-size" "2"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the command has no %s: %s", want, got)
		}
	}
	d, err := config.ParseDeployment("rollout.toml", []byte(head+"model = 'org/model'\ntensor_parallel = 4\n"))
	if err != nil {
		t.Fatal(err)
	}
	err = Units{Pool: d.Pools[0], Machines: d.MachinesOf(d.Pools[0]), Root: t.TempDir()}.Write([]gpu{{0, 90}, {1, 90}})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "2 GPUs, and tensor_parallel of the pool is 4") {
		t.Errorf("too few GPUs: %v", err)
	}
}

func TestModelComesFromWhereThePoolSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ pool, want, fetched string }{
		"a bucket": {"model = 's3://acme/llama/'", `"--volume" "/var/lib/rollout/model:/model:ro" "--publish" ` +
			`"127.0.0.1:8000:8000" "vllm/vllm-openai:v0.21.0-cu129" "--model" "/model" "--served-model-name" ` +
			`"s3://acme/llama/"`, "s3://acme/llama/\n"},
		"a folder of the image": {"model = '/models/llama'\nami = 'ami-0123456789abcdef0'",
			`"--volume" "/models/llama:/model:ro"`, ""},
		"a file for llama.cpp": {"model = 's3://acme/llama/q4.gguf'\nserver = 'llama.cpp'",
			`"ghcr.io/ggml-org/llama.cpp:server-cuda" "--model" "/model/q4.gguf" "--alias" "s3://acme/llama/q4.gguf"`,
			"s3://acme/llama/q4.gguf\n"},
		"a file of the image for llama.cpp": {
			"model = '/models/q4.gguf'\nami = 'ami-0123456789abcdef0'\nserver = 'llama.cpp'",
			`"--volume" "/models:/model:ro"`, ""},
		"the bucket alone, for llama.cpp": { // a variable names the file
			"model = 's3://acme/models/own/m/1.json'\nserver = 'llama.cpp'",
			`"/var/lib/rollout/model:/model:ro" "--publish" "127.0.0.1:8000:8000" ` +
				`"ghcr.io/ggml-org/llama.cpp:server-cuda" "--alias" "s3://acme/models/own/m/1.json"`,
			"s3://acme/models/own/m/1.json\n"},
		"the hub, for llama.cpp": {"model = 'org/m:Q4_K_M'\nserver = 'llama.cpp'",
			`"--volume" "/var/lib/rollout/models:/root/.cache/huggingface" "--publish" "127.0.0.1:8000:8000" ` +
				`"ghcr.io/ggml-org/llama.cpp:server-cuda" "--hf-repo" "org/m:Q4_K_M"`, ""},
		"the hub, for SGLang": {"model = 'org/m'\nserver = 'sglang'",
			`"lmsysorg/sglang:v0.5.11-cu129" "python3" "-m" "sglang.launch_server" "--model-path" "org/m"`, ""},
	} {
		root := written(t, c.pool+"\n", "0, 8.9\n")
		if got := command(t, root, "0"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		fetched, _ := os.ReadFile(filepath.Join(root, modelFile)) // absent for most
		if string(fetched) != c.fetched {
			t.Errorf("%s: %q is fetched, want %q", name, fetched, c.fetched)
		}
	}
}

// The server keeps its models where the machine's program looks for them, and is told the
// files of a model that the bucket alone has.
func TestVariablesTellLlamaCppItsFiles(t *testing.T) {
	t.Parallel()
	root := written(t, "model = 's3://acme/models/own/m/1.json'\nserver = 'llama.cpp'\nengine_env = { A = 'x' }\n",
		"0, 8.9\n")
	if err := AddModelFiles(root, servers.GGUF{Model: []string{"q/a-00001-of-00002.gguf", "q/a-00002-of-00002.gguf"},
		Projector: "mmproj.gguf"}); err != nil {
		t.Fatal(err)
	}
	const want = "LLAMA_CACHE=/root/.cache/huggingface/hub\nA=x\nLLAMA_ARG_MODEL=/model/q/a-00001-of-00002.gguf\n" +
		"LLAMA_ARG_MMPROJ=/model/mmproj.gguf\n"
	if got := read(t, root, poolVars); got != want {
		t.Errorf("the variables are %q", got)
	}
}

// What a config says reaches the server as one word each: unit files have their own
// special characters, and no shell reads them.
func TestHostileValuesStayWords(t *testing.T) {
	t.Parallel()
	root := written(t, `model = 'a"b\c%h$HOME'
engine_args = ['--x', '"; touch /tmp/y; "', '$(id)', '`+"`id`"+`', "it's", '%n', ';', '\', '{"a": 1}']
engine_env = { A = "$(id) 'x' \"y\"", B = "#no comment" }
`, "0, 8.9\n")
	want := `"--x" "\"; touch /tmp/y; \"" "$$(id)" "` + "`id`" + `" "it's" "%%n" ";" "\\" "{\"a\": 1}"`
	if got := command(t, root, "0"); !strings.HasSuffix(got, want) ||
		!strings.Contains(got, `"--model" "a\"b\\c%%h$$HOME"`) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := read(t, root, poolVars); got != "A=$(id) 'x' \"y\"\nB=#no comment\n" {
		t.Errorf("the variables are %q", got)
	}
	info, err := os.Stat(filepath.Join(root, poolVars))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read the variables: %v, %v", info, err)
	}
	if got := quoteWords([]string{"/bin/x", "a\nExecStartPre=/bin/sh\r"}); got != `/bin/x "a\nExecStartPre=/bin/sh\r"` {
		t.Errorf("a line feed ends the line of a unit: %s", got)
	}
}

func TestListOfGPUsIsRead(t *testing.T) {
	t.Parallel()
	for listed, want := range map[string]int{
		"0, 8.9\n1, 9.0\n": 2, "0\n": 1, "": 0, "0, [N/A]\n": 1, "No devices were found\n": -1, "-1, 8.9": -1,
	} {
		got, err := parseGPUs(listed)
		if n := len(got); err == nil && n != want || (err != nil) != (want < 0) {
			t.Errorf("%q has %d GPUs, %v, want %d", listed, n, err, want)
		}
	}
}
