package emulators

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"rollout/shared/aws"
	"rollout/shared/models"
)

// bytesOfModel is the variable that names the size of BenchmarkModelInABucket's model.
const bytesOfModel = "MODEL_MIB"

// BenchmarkModelInABucket stores a model in the emulator's bucket and fetches it, as the
// first machine of a pool and a later one do. Emulator and client share the processors:
// the figures are lower bounds. `make bench-models` runs it with 2 GB.
func BenchmarkModelInABucket(b *testing.B) {
	mib, err := strconv.Atoi(os.Getenv(bytesOfModel))
	if err != nil {
		mib = 64
	}
	const perFile = 512 // MiB, some 8 of them
	e := StartKumo(b)
	e.MakeBucket(b.Context(), b)
	cache := models.Cache{Blobs: aws.NewBucket(e.Config(b.Context(), b), e.Bucket, aws.BucketOptions{})}
	var files []models.Listed
	for left := mib; left > 0; left -= perFile {
		files = append(files, models.Listed{Path: strconv.Itoa(left) + ".safetensors", Size: int64(min(left, perFile)) << 20})
	}
	for b.Loop() {
		began := time.Now()
		m, stored, err := cache.Store(b.Context(), "bench", "", files, noise{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "store-s")
		b.ReportMetric(float64(stored.New), "stored-B")
		root, err := os.OpenRoot(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		got, err := cache.Fetch(b.Context(), m, root, ".")
		if err != nil || got.Read != m.Size() || root.Close() != nil {
			b.Fatalf("%+v, %v", got, err)
		}
		b.ReportMetric(time.Since(began).Seconds(), "fetch-s")
	}
}

// noise is a source of files whose bytes cannot be compressed, and differ from file to file.
type noise struct{}

func (noise) Open(_ context.Context, f models.Listed) (io.ReadCloser, error) {
	block := noiseBlock()
	return &noiseFile{block: block, seed: []byte(f.Path), left: f.Size}, nil
}

var noiseBlock = sync.OnceValue(func() []byte {
	b := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
	return b
})

// noiseFile repeats a block of noise, with a number and the file's name in each MiB.
type noiseFile struct {
	block []byte
	seed  []byte
	at    int64
	left  int64
}

func (n *noiseFile) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	in := n.at % int64(len(n.block))
	p = p[:min(int64(len(p)), n.left, int64(len(n.block))-in)]
	copy(p, n.block[in:])
	if in == 0 {
		copy(p, strconv.AppendInt(n.seed[:len(n.seed):len(n.seed)], n.at, 10))
	}
	n.at, n.left = n.at+int64(len(p)), n.left-int64(len(p))
	return len(p), nil
}

func (n *noiseFile) Close() error { return nil }
