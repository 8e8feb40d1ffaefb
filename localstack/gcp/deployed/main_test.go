package deployed

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rollout/localstack/clerk"
	"rollout/localstack/fakellm"
	"rollout/localstack/gcp/planned"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
)

// patience is how long a test waits for what must happen.
const patience = 4 * time.Minute

// repository is the root of the repository.
const repository = "../../.."

// TestMain runs the tests, or a probe if the environment asks for one.
func TestMain(m *testing.M) {
	if what := os.Getenv(probeVariable); what != "" {
		if err := runProbe(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	subprocess.EndWithGoTest()
	flag.Parse()
	os.Exit(m.Run())
}

// programs builds the programs of the product, once for all tests, and returns their
// folder.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := filepath.Abs(filepath.Join(repository, "out", "emulated", "gcp"))
	if err != nil {
		return "", err
	}
	built := map[string]string{}
	for name, from := range map[string]string{"functions": "./functions/gcp", "gpuworker": "./gpuworker",
		"rollout": "./scripts/rollout"} {
		built[filepath.Join(folder, name)] = from
	}
	if err := scenarios.Build(context.Background(), repository, built); err != nil {
		return "", err
	}
	return folder, nil
})

// program returns the path of a program of the product.
func program(t *testing.T, name string) string {
	t.Helper()
	folder, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, name)
}

// plan plans the deployment of a config. OpenTofu is what make deploy-local installs.
func plan(t *testing.T, config string, options map[string]any) planned.Deployment {
	t.Helper()
	tools := os.Getenv("ROLLOUT_INFRA_GCP")
	if tools == "" {
		t.Fatal("ROLLOUT_INFRA_GCP is not set: run make deploy-local, which sets it")
	}
	options["image"] = "us-central1-docker.pkg.dev/acme-ml/rollout/functions@sha256:" +
		"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	options["worker"] = "gpuworker"
	start := time.Now()
	d, err := planned.Tools{Infra: filepath.Join(repository, "infra", "gcp"), Folder: tools}.Plan(t.Context(), t.TempDir(),
		config, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("planned %d resources in %v", len(d.Resources), time.Since(start).Round(100*time.Millisecond))
	return d
}

// inferenceServer starts an inference server with that latency, which answers the tickets
// of examples/refunds as a clerk, and returns its address.
func inferenceServer(t *testing.T, latency time.Duration) string {
	t.Helper()
	server, err := fakellm.New(fakellm.Config{Model: "fake", Latency: latency, Script: clerk.Answer})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}
