package emulators

import (
	"context"
	"log/slog"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go/middleware"

	"rollout/localstack/aws/fakeaws"
	"rollout/shared/aws"
)

// Endpoint is an emulator of AWS, or AWS itself.
type Endpoint struct {
	Name string
	// URL is the emulator's address; "" is AWS itself, with the credentials and
	// the region of the environment.
	URL string
	// Bucket and Table are used by the drivers. Tests create those of an emulator.
	Bucket, Table string
	// Faults are injected into requests; nil injects none.
	Faults *Faults
}

// Emulated reports whether the endpoint is an emulator.
func (e Endpoint) Emulated() bool { return e.URL != "" }

// retryQuickly retries without the waits that AWS needs.
func retryQuickly(o *retry.StandardOptions) {
	o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
	o.RateLimiter = ratelimit.None
}

// Config returns the SDK configuration for the endpoint. That of an emulator has
// credentials that are valid in no account, and nothing of the environment.
func (e Endpoint) Config(ctx context.Context, t testing.TB) awssdk.Config {
	t.Helper()
	cfg, err := e.load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// load is Config for processes that run no test.
func (e Endpoint) load(ctx context.Context) (awssdk.Config, error) {
	var options []func(*config.LoadOptions) error
	if e.Emulated() {
		options = append(options, config.WithRegion("us-east-1"), config.WithBaseEndpoint(e.URL),
			config.WithSharedConfigFiles(nil), config.WithSharedCredentialsFiles(nil),
			config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("000000000000", "none", "")),
			config.WithRetryer(func() awssdk.Retryer { return retry.NewStandard(retryQuickly) }))
	}
	if e.Faults != nil {
		options = append(options, config.WithAPIOptions([]func(*middleware.Stack) error{e.Faults.Middleware}))
	}
	return aws.LoadConfig(ctx, slog.New(slog.DiscardHandler), options...)
}

// StartKumo starts the emulator kumo in this process, behind corrections of its
// S3. All emulators of a process share their buckets, tables and queues.
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
