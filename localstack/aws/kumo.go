package aws

import (
	"testing"

	"rollout/localstack/aws/fakeaws"
)

// StartKumo starts the emulator in this process, behind what S3 does and it
// does not. All that a process starts share their buckets, tables and queues.
func StartKumo(t testing.TB) Endpoint {
	t.Helper()
	address, end, err := fakeaws.StartKumo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	name := fresh()
	return Endpoint{Name: "kumo", URL: address, Bucket: "bucket-" + name, Table: "table-" + name}
}
