package kind

import (
	"cmp"
	"slices"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// ResolveRoles returns the manifest's roles of a run of the config: each with the
// pool that serves its model. A model that no pool serves is Invalid, with a list
// of the models that can be named instead. Answer is the model of the answers, which needs no further
// role although the config may leave it out.
func (k Kind) ResolveRoles(cfg config.Run, answer string, d config.Deployment) ([]record.Role, error) {
	if k.Roles == nil {
		return nil, nil
	}
	roles := slices.DeleteFunc(k.Roles(cfg), func(r Role) bool { return r.Output && r.Model.URI == answer })
	if len(roles) >= record.MaxRoles {
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "name fewer models and judges",
			Err: fault.New(fault.Invalid, "a run has at most %d roles, the answer included, not %d", record.MaxRoles,
				1+len(roles))}
	}
	var out []record.Role
	for _, r := range roles {
		pool, revision, err := serving(d, r.Model, cmp.Or(r.Key, modelKey))
		if err != nil {
			return nil, fault.Wrap(err, "role %s", r.Name)
		}
		out = append(out, record.Role{Name: r.Name, Pool: pool.Name, ModelURI: pool.Model,
			ModelID: identity.Model(pool.Model, revision).String(), Sampling: r.Sampling, Request: r.Request,
			Graded: r.Graded, Output: r.Output})
	}
	return out, nil
}

// RolesOfChild returns the manifest's roles of a child of a run, whose config is given. They begin
// with those of the parent, in the pools that serve them now. A model that is served in another
// revision is Invalid: items of the child would have other ids and answers.
func (k Kind) RolesOfChild(parent record.Manifest, cfg config.Run, d config.Deployment) ([]record.Role, error) {
	out, err := k.ResolveRoles(cfg, parent.ModelURI, d)
	if err != nil {
		return nil, err
	}
	for i, was := range parent.Roles {
		if i >= len(out) || out[i].Name != was.Name || out[i].ModelID != was.ModelID {
			return nil, &fault.Error{Kind: fault.Invalid, Remedy: "submit the input again for a run of its own",
				Err: fault.New(fault.Invalid, "the model %s of role %s is served in another revision than run %s was "+
					"started with", was.ModelURI, was.Name, parent.Run)}
		}
	}
	return out, nil
}
