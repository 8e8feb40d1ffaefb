package sqlite

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkReplace measures durable compare-and-swaps of 300 B documents. Each caller
// uses its own document.
func BenchmarkReplace(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openState(b, b.TempDir(), Options{})
			benchmarkReplace(b, s, callers)
			b.ReportMetric(float64(b.N)/float64(s.writer.commits.Load()), "writes/commit")
		})
	}
}

func benchmarkReplace(b *testing.B, s *State, callers int) {
	value := []byte(strings.Repeat("v", 300))
	var left atomic.Int64
	left.Store(int64(b.N))
	var done sync.WaitGroup
	b.ResetTimer()
	for i := range callers {
		done.Go(func() {
			docs := s.Documents()
			key := fmt.Sprintf("shard/%x-bench", i*7919)
			rev, err := docs.Create(b.Context(), key, value)
			for err == nil && left.Add(-1) >= 0 {
				rev, err = docs.Replace(b.Context(), key, value, rev)
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	done.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "swaps/s")
}

// BenchmarkQueue measures the round trip of a message (send, receive, ack: three
// durable commits) through a queue of the given depth, by one caller and by 64.
func BenchmarkQueue(b *testing.B) {
	for _, depth := range []int{1, 100_000} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("depth=%d/callers=%d", depth, callers), func(b *testing.B) {
				s := openState(b, b.TempDir(), Options{})
				body := [][]byte{[]byte(strings.Repeat("b", 200))}
				fill := make([][]byte, depth)
				for i := range fill {
					fill[i] = body[0]
				}
				if err := s.Queues().Send(b.Context(), "work", fill, 0); err != nil {
					b.Fatal(err)
				}
				benchmarkQueue(b, s, callers, body)
			})
		}
	}
}

func benchmarkQueue(b *testing.B, s *State, callers int, body [][]byte) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var done sync.WaitGroup
	b.ResetTimer()
	for range callers {
		done.Go(func() {
			for left.Add(-1) >= 0 {
				if err := roundTrip(b, s, body); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func roundTrip(b *testing.B, s *State, body [][]byte) error {
	q := s.Queues()
	if err := q.Send(b.Context(), "work", body, 0); err != nil {
		return err
	}
	msgs, err := q.Receive(b.Context(), "work", 1, time.Minute, time.Second)
	if err != nil || len(msgs) == 0 {
		return err
	}
	return q.Ack(b.Context(), "work", []string{msgs[0].Receipt})
}

// BenchmarkGet measures reads without concurrent writes.
func BenchmarkGet(b *testing.B) {
	s := openState(b, b.TempDir(), Options{})
	if _, err := s.Documents().Create(b.Context(), "doc", []byte(strings.Repeat("v", 300))); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Documents().Get(b.Context(), "doc"); err != nil {
			b.Fatal(err)
		}
	}
}
