package identity_test

import (
	"bytes"
	"fmt"
	"testing"

	"rollout/shared/core/identity"
)

// BenchmarkItem measures the ids of one item: its own id, its seed and the content
// id of an answer as long as its request.
func BenchmarkItem(b *testing.B) {
	for _, size := range []int{256, 1180} {
		request := bytes.Repeat([]byte("x"), size)
		params := []byte(`{"temperature":0.7,"top_p":0.9,"max_tokens":256}`)
		var item identity.ContentID
		b.Run(fmt.Sprintf("id/bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				item = identity.Item(item, request, params, 7)
			}
		})
		b.Run(fmt.Sprintf("content/bytes=%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				item = identity.Content(request)
			}
		})
	}
	b.Run("shard/bytes=80000", func(b *testing.B) {
		shard := bytes.Repeat([]byte("x"), 80_000)
		b.SetBytes(int64(len(shard)))
		b.ReportAllocs()
		for b.Loop() {
			identity.Content(shard)
		}
	})
	b.Run("seed", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			identity.Seed(identity.ContentID{1}, 0)
		}
	})
}
