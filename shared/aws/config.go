package aws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	smithy "github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

const (
	// idleConnections is the number of idle connections kept open to each host: a
	// worker fetches and stores many shards at once.
	idleConnections = 64
	// responseTimeout is how long a service may take to begin its response. A long
	// poll takes 20 s, copying a part of 5 GiB about a minute.
	responseTimeout = 3 * time.Minute
)

// LoadConfig returns the SDK's default configuration, from the environment, the
// shared files and the instance's role, in this order. The options are the SDK's
// own.
//
// The SDK's log messages go to log at the debug level; whatever matters in them
// is also in the errors.
//
// LoadConfig fails with Invalid if no region is configured. Credentials are
// looked up when a request first needs them; missing credentials are Denied.
func LoadConfig(
	ctx context.Context, log *slog.Logger, options ...func(*config.LoadOptions) error,
) (awssdk.Config, error) {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = idleConnections
		t.ResponseHeaderTimeout = responseTimeout
	})
	logger := logging.LoggerFunc(func(_ logging.Classification, format string, args ...any) {
		log.DebugContext(ctx, "aws sdk", observe.KeyReason, fmt.Sprintf(format, args...))
	})
	base := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithLogger(logger),
		config.WithEC2IMDSRegion(),
		config.WithAPIOptions([]func(*middleware.Stack) error{addChain}),
	}
	cfg, err := config.LoadDefaultConfig(ctx, append(base, options...)...)
	switch {
	case err != nil && ctx.Err() != nil:
		return awssdk.Config{}, fault.WithKind(fault.Canceled, err, "load the AWS configuration")
	case err != nil:
		return awssdk.Config{}, &fault.Error{Kind: fault.Invalid, Op: "load the AWS configuration", Err: err,
			Remedy: "check AWS_PROFILE, AWS_CONFIG_FILE and the other AWS_… variables"}
	case cfg.Region == "":
		return awssdk.Config{}, &fault.Error{Kind: fault.Invalid, Op: "load the AWS configuration",
			Err: errors.New("no region is configured"), Remedy: "set AWS_REGION, for example to us-east-1"}
	}
	if cfg.Credentials != nil {
		cfg.Credentials = awssdk.NewCredentialsCache(&credentials{CredentialsProvider: cfg.Credentials})
	}
	return cfg, nil
}

// credentials is a provider of credentials whose errors have a kind and a remedy.
type credentials struct {
	awssdk.CredentialsProvider
	succeeded atomic.Bool // an earlier Retrieve returned credentials
}

// metadataService is the SDK's name of the instance metadata service.
const metadataService = "ec2imds"

// Retrieve returns credentials. Missing credentials are Denied. If the service
// that issues them cannot be reached, the error is Unavailable or Throttled. The
// SDK asks the instance metadata last, even on a machine outside EC2, so a silent
// metadata service counts as unreachable only if credentials came before.
func (c *credentials) Retrieve(ctx context.Context) (awssdk.Credentials, error) {
	found, err := c.CredentialsProvider.Retrieve(ctx)
	const op = "get AWS credentials"
	if err == nil {
		c.succeeded.Store(true)
		return found, nil
	}
	if ctx.Err() != nil {
		return found, fault.WithKind(fault.Canceled, err, op)
	}
	var operation *smithy.OperationError
	serviceExists := !errors.As(err, &operation) || operation.ServiceID != metadataService || c.succeeded.Load()
	if kind := kindOf(err); serviceExists && (kind == fault.Unavailable || kind == fault.Throttled) {
		return found, fault.WithKind(kind, err, op)
	}
	return found, &fault.Error{Kind: fault.Denied, Op: op, Err: err,
		Remedy: "sign in (aws sso login, or AWS_PROFILE), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
}
