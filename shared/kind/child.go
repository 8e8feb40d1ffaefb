package kind

import (
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// PoolOf returns the pool that serves the model of a run, for a child of it. A
// deployment that no longer serves that model, or serves another revision of it, is
// Invalid: items of the child would have other ids and answers.
func PoolOf(d config.Deployment, m record.Manifest) (string, error) {
	pool, err := poolOf(d, config.Model{URI: m.ModelURI})
	if err != nil {
		return "", err
	}
	revision, err := revisionOf(pool, m.Config.Model)
	if err != nil {
		return "", err
	}
	if identity.Model(pool.Model, revision).String() != m.ModelID {
		return "", &fault.Error{Kind: fault.Invalid, Remedy: "submit the input again for a run of its own",
			Err: fault.New(fault.Invalid, "the pool %s serves another revision of %s than run %s was started with",
				pool.Name, m.ModelURI, m.Run)}
	}
	return pool.Name, nil
}
