package plan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// BenchmarkUnpack unpacks prompts of 1.2 KB, which are about five times smaller
// packed. Bytes are those of the unpacked file.
func BenchmarkUnpack(b *testing.B) {
	var file bytes.Buffer
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range 50_000 {
		fmt.Fprintf(&file, "{\"id\":\"request-%d\",\"prompt\":\"", i)
		for range 200 {
			fmt.Fprintf(&file, "word%d ", dice.IntN(300))
		}
		file.WriteString("\"}\n")
	}
	for packed, pack := range map[string]func(io.Writer) (io.WriteCloser, error){
		input.Gzip: func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil },
		input.Zstd: func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) },
	} {
		b.Run(packed, func(b *testing.B) {
			var archive bytes.Buffer
			w, err := pack(&archive)
			if err == nil {
				_, err = w.Write(file.Bytes())
			}
			if err = errors.Join(err, w.Close()); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(file.Len()))
			b.ReportMetric(float64(file.Len())/float64(archive.Len()), "times-smaller")
			for b.Loop() {
				r, err := input.Unpack(bytes.NewReader(archive.Bytes()), packed)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r); err != nil || n != int64(file.Len()) {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// BenchmarkRange plans one range of lines of 1.2 KB. An op is a line.
func BenchmarkRange(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and on ", 22)
	for _, c := range []struct {
		name, format string
		dedupe       bool
	}{
		{"bare", "{\"prompt\":\"%d %s\"}\n", false},
		{"ids", "{\"id\":\"request-%d\",\"prompt\":\"%[1]d %s\"}\n", false},
		{"dedupe", "{\"prompt\":\"%d %s\"}\n", true},
	} {
		b.Run(c.name, func(b *testing.B) {
			const lines = 50_000
			var file strings.Builder
			for i := range lines {
				fmt.Fprintf(&file, c.format, i, text)
			}
			m := inputtest.Manifest(256)
			m.Config.Dedupe = config.Dedupe{Enabled: c.dedupe, Sampled: c.dedupe}
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				p := hosttest.New()
				m.Inputs = []record.Input{{Key: "prompts/0.jsonl", Size: int64(file.Len()),
					Version: hosttest.Put(b, p, "prompts/0.jsonl", file.String())}}
				hosttest.Save(b, p, record.ManifestKey(id), m)
				pl := plan.New(p, plan.Options{})
				b.StartTimer()
				if err := pl.Submitted(b.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
					b.Fatal(err)
				}
				if err := pl.CutRange(b.Context(), events.PlanRange{Run: string(id)}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lines), "ns/line")
		})
	}
}

// BenchmarkMerge merges ranges of 2,000 ids: all at once, when the first one is
// cut last; as two concurrent planners cut them, as on one machine; or one by one.
// The cost of an item must not grow with the number of ranges, except one by one.
func BenchmarkMerge(b *testing.B) {
	const items = 2000
	for _, way := range []string{"waiting", "two planners", "one by one"} {
		for _, ranges := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/ranges=%d", way, ranges), func(b *testing.B) {
				var read int64
				for b.Loop() {
					b.StopTimer()
					p := hosttest.New()
					lists := &listsRead{Store: p.Blobs}
					p.Blobs = lists
					m := inputtest.Manifest(256)
					for k := range ranges {
						key, file := fmt.Sprintf("prompts/%d.jsonl", k), ""
						for i := range items {
							file += fmt.Sprintf("{\"id\":\"request-%d\"}\n", k*items+i)
						}
						m.Inputs = append(m.Inputs, record.Input{Key: key, Version: hosttest.Put(b, p, key, file),
							Size: int64(len(file))})
					}
					hosttest.Save(b, p, record.ManifestKey(id), m)
					pl := plan.New(p, plan.Options{})
					if err := pl.Submitted(b.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
						b.Fatal(err)
					}
					planned := func(k int) {
						if err := pl.CutRange(b.Context(), events.PlanRange{Run: string(id), Range: k}); err != nil {
							b.Error(err)
						}
					}
					switch way {
					case "waiting":
						for k := range ranges - 1 {
							planned(k + 1)
						}
						b.StartTimer()
						planned(0)
					case "two planners":
						b.StartTimer()
						var next atomic.Int64
						var all sync.WaitGroup
						for range 2 {
							all.Go(func() {
								for k := next.Add(1) - 1; k < int64(ranges); k = next.Add(1) - 1 {
									planned(int(k))
								}
							})
						}
						all.Wait()
					default:
						b.StartTimer()
						for k := range ranges {
							planned(k)
						}
					}
					b.StopTimer()
					if doc := hosttest.Load[record.Plan](b, p, record.PlanKey(id)); !doc.Complete() {
						b.Fatalf("%d ranges of %d are merged", doc.Merged, ranges)
					}
					read += lists.bytes.Load()
					b.StartTimer()
				}
				n := float64(b.N * ranges * items)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/item")
				b.ReportMetric(float64(read)/n, "list-bytes/item")
			})
		}
	}
}

// listsRead counts the bytes read of lists of hashes.
type listsRead struct {
	blob.Store
	bytes atomic.Int64
}

func (l *listsRead) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := l.Store.Get(ctx, key, o)
	if err == nil && strings.HasSuffix(key, ".ids") {
		r = &countedRead{r, &l.bytes}
	}
	return r, info, err
}

type countedRead struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *countedRead) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}
