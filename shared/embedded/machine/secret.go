package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// secretPrefix begins the environment variables that hold secrets.
const secretPrefix = "ROLLOUT_SECRET_"

// Secrets reads secrets from the environment.
type Secrets struct {
	allow  []string
	lookup func(variable string) (string, bool)
}

var _ secret.Store = (*Secrets)(nil)

// EnvSecrets returns a store that reads only the names in allow. The secret "hf-token"
// is the variable ROLLOUT_SECRET_HF_TOKEN. lookup is os.LookupEnv, except in tests.
func EnvSecrets(allow []string, lookup func(variable string) (string, bool)) *Secrets {
	return &Secrets{allow: slices.Clone(allow), lookup: lookup}
}

// Get reads a secret; see secret.Store. A variable that is set but empty
// counts as unset.
func (s *Secrets) Get(ctx context.Context, name string) (secret.Value, error) {
	if err := secret.CheckName(name); err != nil {
		return secret.Value{}, err
	}
	if err := ctx.Err(); err != nil {
		return secret.Value{}, fault.Wrap(err, "get secret %s", name)
	}
	if !slices.Contains(s.allow, name) {
		return secret.Value{}, &fault.Error{
			Kind:   fault.Denied,
			Err:    fmt.Errorf("secret %q is not on the allowlist", name),
			Remedy: "add it to the config's list of secrets if this run may read it",
		}
	}
	variable := secretPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	text, ok := s.lookup(variable)
	if !ok || text == "" {
		return secret.Value{}, &fault.Error{
			Kind:   fault.NotFound,
			Err:    fmt.Errorf("secret %q is not set", name),
			Remedy: "set the environment variable " + variable,
		}
	}
	return secret.NewValue(text), nil
}
