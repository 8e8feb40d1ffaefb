package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
)

// clients returns the folder with OpenAI's clients, and that of the scripts that use them.
func clients(t *testing.T) (installed, scripts string) {
	t.Helper()
	installed, scripts = filepath.Join(source, "out", "openaiclient"), filepath.Join(source, "localstack", "interop",
		"openaiclient")
	for _, path := range []*string{&installed, &scripts} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			t.Fatal(err)
		}
		*path = abs
	}
	if _, err := os.Stat(filepath.Join(installed, "installed")); err != nil {
		const missing = "OpenAI's clients are not installed: run `make openai-client`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if _, err := os.ReadDir(scripts); err != nil { // a cached result is discarded if a script has changed
		t.Fatal(err)
	}
	return installed, scripts
}

// OpenAI's clients run batches over the function URL, and read files at the addresses of the
// bucket to which it sends them, with the roles of the stack.
func TestOpenAIsClientsRunBatchesOverAFunction(t *testing.T) {
	t.Parallel()
	installed, scripts := clients(t)
	s := scenarios.Serve(t, fakellm.Config{Model: "fake", Faults: fakellm.Faults{Hang: "hang on this one"}})
	a := open(t, s, scenarios.Settings{Machines: 1}, nil)
	url := httptest.NewServer(a.FunctionURL("api"))
	t.Cleanup(url.Close)
	for client, c := range map[string]struct {
		command []string
		checks  string
	}{
		"Python": {[]string{filepath.Join(installed, "python", "bin", "python"), "batches.py"},
			"whole_life all_bad strict cancelled lost_reply in_parts errors deleted models"},
		"Node": {[]string{filepath.Join(installed, "bin", "node"), "batches.mjs", installed},
			"wholeLife allBad strict cancelled lostReply errors deleted models"},
	} {
		args := append(append(c.command[1:], url.URL+"/v1"), strings.Fields(c.checks)...)
		cmd := exec.CommandContext(t.Context(), c.command[0], args...)
		cmd.Dir = scripts
		cmd.Env = append(os.Environ(), "RETRIES=5") // of what the API's throttle refuses
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v:\n%s", client, err, out)
		}
	}
	tooLarge := strings.NewReader(strings.Repeat("x", 5<<20))
	r, err := http.Post(url.URL+"/v1/files", "multipart/form-data; boundary=x", tooLarge)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("5 MiB in one request: %s", r.Status)
	}
}
