package aws

import (
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// SecretOptions configure Secrets.
type SecretOptions struct {
	// Prefix is prepended to every name in Secrets Manager, such as "rollout/".
	Prefix string
	// SDK are further options of the client, for tests.
	SDK []func(*secretsmanager.Options)
}

// Secrets is Secrets Manager as a secret.Store. It caches nothing, so a rotated
// secret takes effect at once.
type Secrets struct {
	manager *secretsmanager.Client
	prefix  string
	allow   []string
}

var _ secret.Store = (*Secrets)(nil)

// NewSecrets returns a store that reads only the names in allow; it sends no
// request.
func NewSecrets(cfg awssdk.Config, allow []string, o SecretOptions) *Secrets {
	return &Secrets{
		manager: secretsmanager.NewFromConfig(cfg, o.SDK...),
		prefix:  o.Prefix,
		allow:   slices.Clone(allow),
	}
}

// Get reads the current version of a secret; see secret.Store.
func (s *Secrets) Get(ctx context.Context, name string) (secret.Value, error) {
	if err := secret.CheckName(name); err != nil {
		return secret.Value{}, err
	}
	if !slices.Contains(s.allow, name) {
		return secret.Value{}, &fault.Error{Kind: fault.Denied, Err: fmt.Errorf("secret %q is not on the allowlist", name),
			Remedy: "add it to the config's list of secrets if this run may read it"}
	}
	full := s.prefix + name
	out, err := s.manager.GetSecretValue(ctx, &secretsmanager.GetSecretValueInput{SecretId: &full})
	code := codeOf(err)
	switch {
	case code == "ResourceNotFoundException", code == "InvalidRequestException": // the latter: it is being deleted
		return secret.Value{}, &fault.Error{Kind: fault.NotFound, Op: fmt.Sprintf("get secret %q", name), Err: err,
			Remedy: "run aws secretsmanager create-secret --name " + full + " --secret-string …"}
	case err != nil:
		return secret.Value{}, translate(ctx, err, "get secret %q", name)
	case out.SecretString != nil:
		return secret.NewValue(*out.SecretString), nil
	case utf8.Valid(out.SecretBinary):
		return secret.NewValue(string(out.SecretBinary)), nil
	}
	return secret.Value{}, fault.New(fault.Corrupt, "secret %q is not UTF-8 text", name)
}
