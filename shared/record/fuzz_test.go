package record_test

import (
	"bytes"
	"testing"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// documents returns a new value of every document and small object.
var documents = []func() any{
	func() any { return new(record.Manifest) },
	func() any { return new(record.Control) },
	func() any { return new(record.Plan) },
	func() any { return new(record.IndexEntry) },
	func() any { return new(record.RangeResult) },
	func() any { return new(record.Summary) },
	func() any { return new(record.WorkerMark) },
	func() any { return new(health.Heartbeat) },
	func() any { return new(shard.Doc) },
	func() any { return new(run.State) },
	func() any { return new(record.OpenRun) },
}

// FuzzDecode reads hostile bytes as each document. They are a fault, or they are
// written and read back without a change.
func FuzzDecode(f *testing.F) {
	state := run.New("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, v := range []any{
		record.Manifest{Schema: 1, Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", CreatedAt: now,
			Inputs: []record.Input{{Key: "prompts/x.jsonl", Size: 3}}},
		record.Control{Schema: 1, Sequence: 2, Desired: record.DesiredPause, At: now},
		record.Plan{Schema: 1, Ranges: []record.Ranges{{Key: "k", Size: 9, Count: 1}}, Total: 1,
			IDs: []record.Hashes{{From: 0, To: 1, Count: 2}}},
		record.IndexEntry{Shards: 3, Duplicates: 1, Copies: 2},
		record.RangeResult{Shards: 1}, record.Summary{}, record.WorkerMark{}, health.Heartbeat{}, shard.Doc{}, state,
		record.OpenRun{Schema: 1, Run: "01JD2ZQ4T5W0M1X9YB7R3K8CVE", At: now},
	} {
		f.Add(byte(i), record.Encode(v))
	}
	f.Add(byte(0), []byte(`{"schema":2}`))
	f.Add(byte(9), []byte(`{"done":[1,2,9223372036854775807],"in_flight":[[1,2,3,4]],`+
		`"effects":[{"act":"send","ranges":[0,5]}]}`))
	f.Fuzz(func(t *testing.T, pick byte, b []byte) {
		fresh := documents[int(pick)%len(documents)]
		v := fresh()
		if err := record.Decode(b, v, "it"); err != nil {
			if k := fault.KindOf(err); k != fault.Corrupt && k != fault.Invalid {
				t.Fatalf("%v is %s", err, k)
			}
			return
		}
		once := record.Encode(v)
		again := fresh()
		if err := record.Decode(once, again, "it"); err != nil {
			t.Fatalf("%T %s is written as %s, which cannot be read: %v", v, b, once, err)
		}
		if twice := record.Encode(again); !bytes.Equal(once, twice) {
			t.Fatalf("%T %s is written as %s, then as %s", v, b, once, twice)
		}
	})
}
