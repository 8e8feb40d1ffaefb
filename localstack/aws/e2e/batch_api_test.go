package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
)

// OpenAI's clients run batches over the function URL, and read files at the addresses of the
// bucket to which it sends them, with the roles of the stack.
func TestOpenAIsClientsRunBatchesOverAFunction(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{Model: "fake", Faults: fakellm.Faults{Hang: "hang on this one"}})
	a := open(t, s, scenarios.Settings{Machines: 1}, nil)
	url := httptest.NewServer(a.FunctionURL("api"))
	t.Cleanup(url.Close)
	api := scenarios.BatchAPI{URL: url.URL + "/v1", Key: "unused", Docs: a.Stores().Ports.Docs}
	api.RunClients(t, source)
	api.WantLists(t)
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
