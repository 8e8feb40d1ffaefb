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

	"rollout/shared/fault"
	"rollout/shared/observe"
)

const (
	// connections are kept open to each service: a worker fetches and stores
	// many shards at once.
	connections = 64
	// silence is how long a service may take to begin its answer. A long poll
	// takes 20 s, copying a part of 5 GiB about a minute.
	silence = 3 * time.Minute
)

// LoadConfig returns the SDK's default configuration: environment, shared files,
// then the instance's role. Options are the SDK's own, for tests.
//
// What the SDK has to say goes to the log as details: what matters of it is in
// the errors.
//
// An AWS region that is named nowhere is Invalid. Credentials are looked for
// when they are first needed; then their absence is Denied.
func LoadConfig(ctx context.Context, log *slog.Logger, options ...func(*config.LoadOptions) error) (awssdk.Config, error) {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = connections
		t.ResponseHeaderTimeout = silence
	})
	logger := logging.LoggerFunc(func(_ logging.Classification, format string, args ...any) {
		log.DebugContext(ctx, "aws sdk", observe.KeyReason, fmt.Sprintf(format, args...))
	})
	base := []func(*config.LoadOptions) error{config.WithHTTPClient(client), config.WithLogger(logger), config.WithEC2IMDSRegion()}
	cfg, err := config.LoadDefaultConfig(ctx, append(base, options...)...)
	switch {
	case err != nil && ctx.Err() != nil:
		return awssdk.Config{}, fault.WithKind(fault.Canceled, err, "load the AWS configuration")
	case err != nil:
		return awssdk.Config{}, &fault.Error{Kind: fault.Invalid, Op: "load the AWS configuration", Err: err,
			Remedy: "look at AWS_PROFILE, AWS_CONFIG_FILE and the AWS_… variables"}
	case cfg.Region == "":
		return awssdk.Config{}, &fault.Error{Kind: fault.Invalid, Op: "load the AWS configuration", Err: errors.New("no region is named"),
			Remedy: "set AWS_REGION, such as us-east-1"}
	}
	if cfg.Credentials != nil {
		cfg.Credentials = awssdk.NewCredentialsCache(&credentials{CredentialsProvider: cfg.Credentials})
	}
	return cfg, nil
}

// credentials says what to do when there are none.
type credentials struct {
	awssdk.CredentialsProvider
	had atomic.Bool // there were some before
}

// metadataService is what the SDK calls an instance's metadata.
const metadataService = "ec2imds"

// Retrieve finds credentials. That there are none is Denied; that whoever gives
// them can't be asked now is a failure of the network or of that service. The
// instance's metadata are asked last, also where there is no instance: their
// silence means nothing unless they have answered before.
func (c *credentials) Retrieve(ctx context.Context) (awssdk.Credentials, error) {
	found, err := c.CredentialsProvider.Retrieve(ctx)
	const doing = "get AWS credentials"
	if err == nil {
		c.had.Store(true)
		return found, nil
	}
	if ctx.Err() != nil {
		return found, fault.WithKind(fault.Canceled, err, doing)
	}
	var asked *smithy.OperationError
	anyInstance := !errors.As(err, &asked) || asked.ServiceID != metadataService || c.had.Load()
	if kind := kindOf(err); anyInstance && (kind == fault.Unavailable || kind == fault.Throttled) {
		return found, fault.WithKind(kind, err, doing)
	}
	return found, &fault.Error{Kind: fault.Denied, Op: doing, Err: err,
		Remedy: "sign in (aws sso login, or AWS_PROFILE), or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"}
}
