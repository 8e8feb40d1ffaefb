package kind

import (
	"cmp"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// ResolveRoles returns the manifest's roles of a run of the config: each with the
// pool that serves its model. A model that no pool serves is Invalid, with a list
// of the models that can be named instead.
func (k Kind) ResolveRoles(cfg config.Run, d config.Deployment) ([]record.Role, error) {
	if k.Roles == nil {
		return nil, nil
	}
	roles := k.Roles(cfg)
	if len(roles) >= record.MaxRoles {
		return nil, fault.New(fault.Invalid, "a run has at most %d roles, the answer included, not %d",
			record.MaxRoles, 1+len(roles))
	}
	var out []record.Role
	for _, r := range roles {
		pool, revision, err := serving(d, r.Model, cmp.Or(r.Key, modelKey))
		if err != nil {
			return nil, fault.Wrap(err, "role %s", r.Name)
		}
		out = append(out, record.Role{Name: r.Name, Pool: pool.Name, ModelURI: pool.Model,
			ModelID: identity.Model(pool.Model, revision).String(), Sampling: r.Sampling, Request: r.Request,
			Graded: r.Graded})
	}
	return out, nil
}
