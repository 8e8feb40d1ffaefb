package finalize_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// BenchmarkSegment writes a segment of results of 300 KB from a bucket in memory,
// without delay and with a delay of 20 ms for each read. Bytes are those of the
// rows.
func BenchmarkSegment(b *testing.B) {
	for name, delay := range map[string]time.Duration{"near": 0, "20ms away": 20 * time.Millisecond} {
		b.Run(name, func(b *testing.B) {
			const shards = 256
			a := newDedupeRun(b, 1, make([]int, 1))
			rows := strings.Repeat(fmt.Sprintf("%01199d\n", 7), 256)
			ref := shard.Ref{Length: int64(len(rows)), Digest: identity.Content([]byte(rows)).String()}
			for n := range shards {
				ref.Key = record.ShardObjectKey(id, n, 1, "object")
				hosttest.Put(b, a.Ports, ref.Key, rows)
				r := ref
				hosttest.Save(b, a.Ports, identity.ShardKey(id, n), shard.Doc{Schema: 1, Run: id, Shard: n,
					State: shard.Done, Items: 256, OutputLen: ref.Length, Result: &r})
			}
			m := inputtest.Manifest(1)
			hosttest.Save(b, a.Ports, record.ManifestKey(id), m)
			s := run.New(id)
			s.Phase, s.Shards, s.FrozenFrontier = run.Finalizing, 2*shards, 2*shards
			hosttest.Save(b, a.Ports, record.CoordinatorKey(id), s)
			a.Blobs = slowBlobs{a.Blobs, delay}
			f := inSegments(a.Ports, finalize.SegmentOptions{})
			b.SetBytes(shards * ref.Length)
			for b.Loop() {
				if err := f.WriteSegment(b.Context(), events.FinalizeSegment{Run: string(id), To: shards}); err != nil {
					b.Fatal(err)
				}
				if err := a.Blobs.Delete(b.Context(), record.OutputSegmentKey(id, 0), ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
