package emulators

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"

	"rollout/localstack/gcp/fakegcs"
	"rollout/shared/gcp"
)

// fresh returns a name that no other test uses.
func fresh() string { return strings.ToLower(rand.Text()[:8]) }

// emulated is the configuration of clients of emulators: they have no credentials.
func emulated() gcp.Config { return gcp.Config{Project: "test-project"} }

// quickly are waits between tries, without those that Google Cloud needs.
var quickly = gax.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond, Multiplier: 2}

// Storage is an emulator of Cloud Storage with one bucket that keeps versions.
type Storage struct {
	*fakegcs.Server // nil if it runs in another process
	Address, Bucket string
}

// StartStorage starts an emulator in this process.
func StartStorage(t testing.TB, o fakegcs.Options) Storage {
	t.Helper()
	server, address, end, err := fakegcs.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	s := Storage{Server: server, Address: address, Bucket: "bucket-" + fresh()}
	server.MakeBucket(s.Bucket, true)
	return s
}

// Open returns the driver with these options.
func (s Storage) Open(t testing.TB, o gcp.BucketOptions) *gcp.Bucket {
	t.Helper()
	o.Backoff = quickly
	o.SDK = []option.ClientOption{option.WithEndpoint(s.Address + "/storage/v1/")}
	b, err := gcp.NewBucket(t.Context(), emulated(), s.Bucket, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Blobs returns an empty store for one test: a prefix of the bucket.
func (s Storage) Blobs(t testing.TB) *gcp.Bucket {
	t.Helper()
	return s.Open(t, gcp.BucketOptions{Prefix: "test-" + fresh() + "/"})
}
