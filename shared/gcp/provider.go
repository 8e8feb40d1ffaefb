package gcp

import (
	"context"
	"errors"

	"rollout/shared/cloud"
	"rollout/shared/config"
)

// Provider is Google Cloud as a cloud.Provider.
type Provider struct{}

var _ cloud.Provider = Provider{}

// Name is "gcp"; see cloud.Provider.
func (Provider) Name() string { return config.ProviderGCP }

// Profile returns the capabilities and hints of a stack; see ProfileOf.
func (Provider) Profile(d config.Deployment) cloud.Profile { return ProfileOf(d) }

// Open opens a stack; see cloud.Provider.
func (Provider) Open(ctx context.Context, d config.Deployment, o cloud.Options) (cloud.Installation, error) {
	s, err := OpenStack(ctx, d, StackOptions{Options: o})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// IsServiceError reports whether err comes from a call of the SDK; see cloud.Provider.
func (Provider) IsServiceError(err error) bool {
	var fromService *serviceError
	return errors.As(err, &fromService)
}
