package emulators

import (
	"testing"

	"rollout/localstack/emulators/standin"
)

// InProcess starts the emulator in this process, behind what S3 does and it
// does not. All that a process starts share their buckets, tables and queues.
func InProcess(t testing.TB) Endpoint {
	t.Helper()
	address, end, err := standin.Kumo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	name := fresh()
	return Endpoint{Name: "kumo", URL: address, Bucket: "bucket-" + name, Table: "table-" + name}
}
