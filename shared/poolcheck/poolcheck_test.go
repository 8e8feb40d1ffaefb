package poolcheck_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

const (
	awsHead = "schema_version = 1\n[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\ns3.bucket = 'acme'\n"
	gcpHead = "schema_version = 1\n[cloud]\nprovider = 'gcp'\nproject = 'acme-ml'\nregion = 'us-central1'\n" +
		"gcs.bucket = 'acme-rollout'\n"
	// llama8 is the config of a model of 8 billion parameters with 131,072 tokens.
	llama8 = `{"hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":131072,"num_attention_heads":32,
		"num_hidden_layers":32,"num_key_value_heads":8,"vocab_size":128256,"torch_dtype":"bfloat16"}`
	// ggufs is the hub's list of files for llama.cpp.
	ggufs = `{"sha":"89abcdef0123456789abcdef0123456789abcdef","siblings":[
		{"rfilename":"m-Q4_K_M.gguf","size":5000000000,"blobId":"0123456789abcdef0123456789abcdef01234567"},
		{"rfilename":"mmproj-F16.gguf","size":1000000000,"blobId":"0123456789abcdef0123456789abcdef01234567"},
		{"rfilename":"m-F32.gguf","size":32000000000,"blobId":"0123456789abcdef0123456789abcdef01234567"}]}`
)

// hub is a hub that has one model, and one that is gated.
func hub(t *testing.T) poolcheck.Models {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/org/8b/resolve/main/config.json", r.URL.Path == "/org/large/resolve/main/config.json":
			_, _ = w.Write([]byte(llama8)) // the client reports a broken connection
		case r.URL.Path == "/org/large/resolve/main/model.safetensors.index.json":
			_, _ = w.Write([]byte(`{"metadata":{"total_size":400000000000}}`))
		case r.URL.Path == "/org/slim/resolve/main/config.json":
			_, _ = w.Write([]byte(llama8))
		case r.URL.Path == "/org/slim/resolve/main/model.safetensors.index.json":
			_, _ = w.Write([]byte(`{"metadata":{"total_size":87000000000}}`))
		case r.URL.Path == "/api/models/org/8b/revision/main":
			_, _ = w.Write([]byte(ggufs))
		case strings.HasPrefix(r.URL.Path, "/org/gated/") && r.Header.Get("Authorization") != "Bearer t":
			http.Error(w, "gated", http.StatusUnauthorized)
		case r.URL.Path == "/org/gated/resolve/v1/config.json":
			_, _ = w.Write([]byte(llama8))
		case r.URL.Path == "/org/gated/resolve/v1/model.safetensors.index.json":
			_, _ = w.Write([]byte(`{"metadata":{"total_size":1073741824}}`))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return poolcheck.Models{Hub: s.URL, Client: s.Client()}
}

// check returns the report of the only pool of a config.
func check(t *testing.T, m poolcheck.Models, src string) poolcheck.Report {
	t.Helper()
	d, err := config.ParseDeployment("rollout.toml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	reports := m.CheckAll(t.Context(), d)
	if len(reports) != 1 {
		t.Fatalf("%d reports", len(reports))
	}
	return reports[0]
}

func pool(model, more string) string {
	return "[[pool]]\nname = 'small'\nmodel = '" + model + "'\n" + more + "\n"
}

func TestPoolsThatWillNotStartAreTold(t *testing.T) {
	t.Parallel()
	m := hub(t)
	for name, c := range map[string]struct{ src, want string }{
		"a context too long for the card": {awsHead + pool("org/8b", "instance_types = ['g6.xlarge', 'g6.2xlarge']"),
			"small: org/8b with a context of 131,072 tokens needs 16.0 GiB of KV cache, and on one L4 (g6.xlarge, g6.2xlarge) " +
				`4.8 GiB are left beside 15.0 GiB of weights: set engine_args = ["--max-model-len", "38912"]`},
		"the flag is the server's": {awsHead + pool("org/8b", "instance_types = ['g6.xlarge']\nserver = 'sglang'"),
			`set engine_args = ["--context-length", "38912"]`},
		"weights too large": {gcpHead + pool("org/8b",
			"instance_types = ['g2-standard-8']\nengine_args = ['--gpu-memory-utilization=0.5']"),
			"org/8b does not fit on one L4 (g2-standard-8): its weights alone take 15.0 GiB: choose types with more memory"},
		"too few GPUs": {awsHead + pool("org/8b", "instance_types = ['g6.xlarge', 'g6.12xlarge']\ntensor_parallel = 4"),
			"small: a server needs 4 GPUs, and g6.xlarge have 1: set tensor_parallel, or remove these types"},
		"an old GPU": {awsHead + pool("org/8b", "instance_types = ['g4dn.xlarge']"),
			"current images of vllm do not work on a T4 (g4dn.xlarge)"},
		"a small disk": {gcpHead + pool("org/8b",
			"disk_gb = 100\ninstance_types = ['g2-standard-8']\nengine_args = ['--max-model-len=8192']"),
			"small: org/8b takes 16.1 GB, the server's image 30 and the machine's 60, and the disk has 100 GB: set " +
				"disk_gb = 150"},
		"small disks of its own": {awsHead + pool("org/large", "instance_types = ['g6.xlarge']"),
			"small: org/large takes 400.0 GB and the server's image 30, and the own disks of g6.xlarge have room for 250 GB"},
		"no room for a context": {awsHead + pool("org/8b", "instance_types = ['g6.xlarge']\n"+
			"engine_args = ['--gpu-memory-utilization=0.692']"),
			"its weights take 15.0 GiB, and the 0.1 GiB that are left hold the KV cache of fewer than 1,024 tokens"},
		"files of llama.cpp": {awsHead + pool("org/8b:F32", "instance_types = ['g6.xlarge']\nserver = 'llama.cpp'"),
			"org/8b:F32 does not fit on one L4 (g6.xlarge): its weights alone take 30.7 GiB: choose types"},
		"files that fill a task's memory": {gcpHead + pool("org/slim",
			"machines = 'cloud-run'\nengine_args = ['--max-model-len', '8192']"),
			"the files of org/slim take 81.0 GiB, and a task keeps them in its memory of 80 GiB: use machines, or put"},
		"a task of any GPU": {gcpHead + pool("org/large", "machines = 'cloud-run'"),
			"org/large does not fit on one RTX PRO 6000 (a task): its weights alone take"},
	} {
		if got := strings.Join(check(t, m, c.src).Problems, "\n"); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// The config does not say which GPU the tasks of Cloud Run have.
func TestTaskThatNeedsTheLargerGPUIsTold(t *testing.T) {
	t.Parallel()
	r := check(t, hub(t), gcpHead+pool("org/8b", "machines = 'cloud-run'"))
	got := strings.Join(r.Notes, "\n")
	const want = "small: fits only with cloud_run_gpu=nvidia-rtx-pro-6000\nsmall: org/8b with a context of 131,072 " +
		"tokens fits on one RTX PRO 6000 (a task)"
	if !strings.HasPrefix(got, want) || len(r.Problems) > 0 {
		t.Errorf("notes %q, problems %q, want %q", got, r.Problems, want)
	}
	r = check(t, hub(t), gcpHead+pool("org/8b", "machines = 'cloud-run'\nengine_args = ['--max-model-len', '8192']"))
	if got := strings.Join(r.Notes, "\n"); !strings.Contains(got, "fits on one L4 (a task)") ||
		strings.Contains(got, "cloud_run_gpu") {
		t.Errorf("the default GPU suffices: %q", got)
	}
}

func TestPoolsThatStartHaveNoProblems(t *testing.T) {
	t.Parallel()
	m := hub(t)
	for name, src := range map[string]string{
		"a context that fits": awsHead + pool("org/8b",
			"instance_types = ['g6.xlarge']\nengine_args = ['--max-model-len', '32768']"),
		"a cache of one byte": awsHead + pool("org/8b",
			"instance_types = ['g6.xlarge']\nengine_args = ['--max-model-len=65536', '--kv-cache-dtype=fp8']"),
		"several GPUs": awsHead + pool("org/8b", "instance_types = ['g6.12xlarge']\ntensor_parallel = 4"),
		"a larger GPU": awsHead + pool("org/8b", "instance_types = ['g6e.xlarge']"),
	} {
		r := check(t, m, src)
		if len(r.Problems) > 0 || !strings.Contains(strings.Join(r.Notes, "\n"), "fits on") {
			t.Errorf("%s: problems %q, notes %q", name, r.Problems, r.Notes)
		}
	}
}

func TestWhatCannotBeKnownIsSaid(t *testing.T) {
	t.Parallel()
	m := hub(t)
	withToken := m
	withToken.Token = "t"
	unreachable := poolcheck.Models{Hub: "http://127.0.0.1:1"}
	for name, c := range map[string]struct {
		models    poolcheck.Models
		src, want string
	}{
		"no hub":               {unreachable, awsHead + pool("org/8b", ""), "the hub can't be reached from here"},
		"no such model":        {m, awsHead + pool("org/none", ""), "the hub has no config.json of it"},
		"a gated model":        {m, awsHead + pool("org/gated", ""), "without a token that may: set HF_TOKEN here"},
		"a gated one, allowed": {withToken, awsHead + pool("org/gated", "revision = 'v1'"), "1.0 GiB of weights"},
		"a bucket":             {m, awsHead + pool("s3://acme/8b", ""), "it lies in a bucket, which is not read from here"},
		"a folder of the image": {m, awsHead + pool("/models/8b", "ami = 'ami-0123456789abcdef0'"),
			"its folder is in the machines' image"},
		"files of llama.cpp": {m, awsHead + pool("org/8b:q4_k_m", "server = 'llama.cpp'\ninstance_types = ['g6.xlarge']"),
			"the weights of org/8b:q4_k_m take 5.6 GiB on one L4 (g6.xlarge), and leave 16.4 GiB for its context"},
		"a file of llama.cpp": {m, awsHead + pool("org/8b", "server = 'llama.cpp'\nengine_args = ['-hff', 'x.gguf']"),
			"engine_args or engine_env name its file"},
		"a file of llama.cpp in a bucket": {m, awsHead + pool("s3://acme/m.gguf", "server = 'llama.cpp'"),
			"how large it is stands in its .gguf file alone"},
		"a tag that no file has": {m, awsHead + pool("org/8b:Q2_K", "server = 'llama.cpp'"),
			"the hub has no .gguf file of it that llama.cpp takes for this tag"},
		"no such model for llama.cpp": {m, awsHead + pool("org/none", "server = 'llama.cpp'"),
			"the hub has no such model, revision or file"},
		"no name of the hub": {m, awsHead + pool("mock", ""), "it is not a name of the hub"},
		"an unknown type": {m, awsHead + pool("org/8b", "instance_types = ['g9.xlarge']"),
			"what g9.xlarge have is not known here"},
		"a context that the server finds": {m, awsHead + pool("org/8b", "engine_args = ['--max-model-len', 'auto']"),
			"the server chooses a context that fits"},
	} {
		r := check(t, c.models, c.src)
		if got := strings.Join(r.Notes, "\n"); !strings.Contains(got, c.want) || len(r.Problems) > 0 {
			t.Errorf("%s: notes %q, problems %q, want %q", name, got, r.Problems, c.want)
		}
	}
	if r := check(t, m, awsHead+pool("rollout/tiny", "")); len(r.Notes)+len(r.Problems) > 0 {
		t.Errorf("the built-in model: %+v", r)
	}
}

func TestConfigsOfModelsAreReadFromFoldersAndBuckets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(llama8), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := ""
	m := poolcheck.Models{Object: func(_ context.Context, bucket, key string) ([]byte, error) {
		asked += bucket + ":" + key + " "
		if strings.HasSuffix(key, "/config.json") {
			return []byte(llama8), nil
		}
		return nil, fault.New(fault.NotFound, "no %s", key)
	}}
	for _, src := range []string{
		awsHead + pool(dir, "ami = 'ami-0123456789abcdef0'\ninstance_types = ['g6.xlarge']"),
		awsHead + pool("s3://models/8b/", "instance_types = ['g6.xlarge']"),
	} {
		if r := check(t, m, src); len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "16.0 GiB of KV cache") {
			t.Errorf("%+v", r)
		}
	}
	if asked != "models:8b/config.json models:8b/model.safetensors.index.json " {
		t.Errorf("asked for %s", asked)
	}
}
