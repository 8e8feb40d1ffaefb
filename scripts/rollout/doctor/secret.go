package doctor

import (
	"context"

	"rollout/shared/fault"
	"rollout/shared/secret"
)

// firstSecret reads the first allowed secret and drops its text.
func firstSecret(secrets secret.Store, allowed []string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if len(allowed) == 0 {
			return "", &fault.Error{
				Kind:   fault.Invalid,
				Err:    fault.New(fault.Invalid, "no secret may be read: the allowlist is empty"),
				Remedy: `name those that the installation needs, such as allowlist = ["api-token"] in [cloud.secrets]`,
			}
		}
		if _, err := secrets.Get(ctx, allowed[0]); err != nil {
			return "", fault.Wrap(err, "read")
		}
		return allowed[0], nil
	}
}
