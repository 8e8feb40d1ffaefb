package aws

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

	"rollout/shared/aws"
)

// Endpoint is a place that speaks the protocols of AWS.
type Endpoint struct {
	Name string
	// URL is an emulator's address; "" is AWS itself, with the credentials and
	// the region of the environment.
	URL string
	// Bucket and Table are what the drivers use; an emulator's are made.
	Bucket, Table string
	// Faults are added to every request; nil is none.
	Faults *Faults
}

// Emulated reports whether it is an emulator.
func (e Endpoint) Emulated() bool { return e.URL != "" }

// quickly repeats without the patience that a cloud deserves.
func quickly(o *retry.StandardOptions) {
	o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
	o.RateLimiter = ratelimit.None
}

// Config returns the configuration that reaches the endpoint. An emulator gets
// credentials that no account has, and nothing of the environment's.
func (e Endpoint) Config(ctx context.Context, t testing.TB) awssdk.Config {
	t.Helper()
	var options []func(*config.LoadOptions) error
	if e.Emulated() {
		options = append(options, config.WithRegion("us-east-1"), config.WithBaseEndpoint(e.URL),
			config.WithSharedConfigFiles(nil), config.WithSharedCredentialsFiles(nil),
			config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider("000000000000", "none", "")),
			config.WithRetryer(func() awssdk.Retryer { return retry.NewStandard(quickly) }))
	}
	if e.Faults != nil {
		options = append(options, config.WithAPIOptions([]func(*middleware.Stack) error{e.Faults.Middleware}))
	}
	cfg, err := aws.LoadConfig(ctx, slog.New(slog.DiscardHandler), options...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
