package gcp

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
	"unicode/utf8"

	secretmanager "cloud.google.com/go/secretmanager/apiv1"
	"cloud.google.com/go/secretmanager/apiv1/secretmanagerpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// SecretOptions configure Secrets.
type SecretOptions struct {
	// Prefix is prepended to every name in Secret Manager, such as "rollout-". It has no
	// slash: Secret Manager has no folders.
	Prefix string
	// SDK are further options of the client, for tests.
	SDK []option.ClientOption
}

// Secrets is Secret Manager as a secret.Store. It caches nothing, so a rotated secret
// takes effect at once.
type Secrets struct {
	client *secretmanager.Client
	parent string // of the secrets' names
	prefix string
	allow  []string
}

var _ secret.Store = (*Secrets)(nil)

// secretTimeout is the time limit of one read with all its tries.
const secretTimeout = 20 * time.Second

// secretTries decides about the tries of one read. The SDK would try for a minute, and
// then tell nothing of why.
func secretTries() gax.Retryer {
	return &limitedTries{left: maxTries, Retryer: gax.OnCodes(
		[]codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unknown},
		gax.Backoff{Initial: 200 * time.Millisecond, Max: 3 * time.Second, Multiplier: 2})}
}

// limitedTries is a retryer that gives up after some tries of one request.
type limitedTries struct {
	gax.Retryer
	left int // tries
}

// Retry returns whether to send the request again after err, and when.
func (t *limitedTries) Retry(err error) (time.Duration, bool) {
	if t.left--; t.left <= 0 {
		return 0, false
	}
	return t.Retryer.Retry(err)
}

// NewSecrets returns a store that reads only the names in allow; it sends no request.
// The client needs no closing.
func NewSecrets(ctx context.Context, cfg Config, allow []string, o SecretOptions) (*Secrets, error) {
	client, err := secretmanager.NewClient(ctx, cfg.clientOptions("", o.SDK...)...)
	if err != nil {
		return nil, translate(ctx, err, "open the secrets of the project %s", cfg.Project)
	}
	client.CallOptions.AccessSecretVersion = []gax.CallOption{gax.WithTimeout(secretTimeout), gax.WithRetry(secretTries)}
	return &Secrets{
		client: client,
		parent: "projects/" + cfg.Project + "/secrets/",
		prefix: o.Prefix,
		allow:  slices.Clone(allow),
	}, nil
}

// Get reads the latest version of a secret; see secret.Store.
func (s *Secrets) Get(ctx context.Context, name string) (secret.Value, error) {
	if err := secret.CheckName(name); err != nil {
		return secret.Value{}, err
	}
	if !slices.Contains(s.allow, name) {
		return secret.Value{}, &fault.Error{Kind: fault.Denied, Err: fmt.Errorf("secret %q is not on the allowlist", name),
			Remedy: "add it to the config's list of secrets if this run may read it"}
	}
	full := s.prefix + name
	op := fmt.Sprintf("get secret %q", name)
	answer, err := s.client.AccessSecretVersion(ctx,
		&secretmanagerpb.AccessSecretVersionRequest{Name: s.parent + full + "/versions/latest"})
	switch {
	case ctx.Err() == nil && codeOf(err) == codes.NotFound:
		return secret.Value{}, &fault.Error{Kind: fault.NotFound, Op: op, Err: err,
			Remedy: "run gcloud secrets create " + full + " --data-file=-"}
	case ctx.Err() == nil && codeOf(err) == codes.FailedPrecondition: // its latest version is disabled or destroyed
		return secret.Value{}, &fault.Error{Kind: fault.NotFound, Op: op, Err: err,
			Remedy: "run gcloud secrets versions add " + full + " --data-file=-"}
	case err != nil:
		return secret.Value{}, translate(ctx, err, "%s", op)
	}
	content := answer.GetPayload().GetData()
	sum := answer.GetPayload().DataCrc32C
	switch {
	case sum != nil && *sum != int64(crc32.Checksum(content, castagnoli)):
		return secret.Value{}, fault.New(fault.Unavailable, "%s: it was damaged on its way", op)
	case !utf8.Valid(content):
		return secret.Value{}, fault.New(fault.Corrupt, "secret %q is not UTF-8 text", name)
	}
	return secret.NewValue(string(content)), nil
}
