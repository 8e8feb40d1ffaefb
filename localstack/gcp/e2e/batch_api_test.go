package e2e

import (
	"testing"
	"time"

	"rollout/localstack/fakellm"
	"rollout/localstack/gcp/fakepubsub"
	"rollout/localstack/scenarios"
	"rollout/shared/host"
)

// OpenAI's clients run batches over the service of Cloud Run, which streams files from the bucket.
// Their key is the identity token of a caller.
func TestOpenAIsClientsRunBatchesOverCloudRun(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{Model: "fake", Faults: fakellm.Faults{Hang: "hang on this one"}})
	in := open(t, scenarios.Settings{Server: s.URL, Machines: 1})
	address := in.addresses[host.APIFunction]
	api := scenarios.BatchAPI{URL: address + "/v1", Key: fakepubsub.Token("me@acme.com", address, time.Now()),
		Docs: in.Ports.Docs}
	api.RunClients(t, source)
	api.WantLists(t)
}
