package submit

import (
	"context"
	"slices"

	"rollout/shared/artifact"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/snapshot"
)

// CheckAgents refuses the variants of a run that are agents where the deployment does not permit
// them: whoever may submit a run would choose programs that workers execute. The manifest has its
// roles. remote says that the installation is in a cloud.
func CheckAgents(d config.Deployment, m record.Manifest, remote bool) error {
	for _, v := range m.Config.Variants {
		of := m
		role, err := m.RoleOfModel(v.Model)
		if err == nil {
			of, err = m.InRole(role)
		}
		if err != nil {
			return err
		}
		refuse := func(remedy, format string, args ...any) error {
			return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, format, args...), Remedy: remedy}
		}
		switch {
		case !v.IsAgent():
		case remote:
			return refuse("run it on a machine of your own, with rollout up",
				"the variant %s has a command, and workers in a cloud run no programs of runs", v.Name)
		case !d.Trials.Processes:
			return refuse("set processes = true in [trials] of rollout.toml if all who may submit runs may run programs here",
				"the variant %s has a command, and this installation does not permit programs of runs", v.Name)
		case v.LimitsOf().Dollars > 0 && !d.ForPool(of.Pool).Engine.HasPrices():
			return refuse("set prompt_price and completion_price of the engine, or limit tokens",
				"the variant %s limits dollars, and the engine's tokens have no price", v.Name)
		}
	}
	return nil
}

// freezeAgents checks the agents among the run's variants, and freezes their artifacts. What a
// child has of its parent stays as it was. The objects are kept until the run expires.
func (s *Submitter) freezeAgents(ctx context.Context, m *record.Manifest) error {
	if err := CheckAgents(s.opts.Deployment, *m, s.opts.At.RemoteBucket); err != nil {
		return err
	}
	m.Artifacts = slices.Clone(m.Artifacts)
	contents := snapshot.Store{Blobs: s.Blobs, Docs: s.Docs, Clock: s.Clock}
	keep := func(ctx context.Context, id identity.ContentID) error { return contents.KeepForRun(ctx, id, m.Run) }
	for _, a := range m.Artifacts {
		if id, ok := identity.ParseContentID(a.Content); ok {
			if err := keep(ctx, id); err != nil {
				return err
			}
			_, err := s.Blobs.Stat(ctx, identity.ContentKey(id), "")
			if fault.Is(err, fault.NotFound) {
				return &fault.Error{Kind: fault.Invalid, Remedy: "submit the tasks again for a run of its own",
					Err: fault.WithKind(fault.Invalid, err, "the artifact of the variant %s, as the run began with it", a.Variant)}
			}
			if err != nil {
				return err
			}
		}
	}
	for _, v := range m.Config.Variants {
		frozen := func(a record.Artifact) bool { return a.Variant == v.Name }
		if v.Artifact == "" || slices.ContainsFunc(m.Artifacts, frozen) {
			continue
		}
		p, err := artifact.Pin(ctx, s.Blobs, v.Artifact, keep)
		if fault.Is(err, fault.NotFound) { // which is not the input's
			err = fault.WithKind(fault.Invalid, err, "artifact of the variant %s", v.Name)
		}
		if err != nil {
			return err
		}
		m.Artifacts = append(m.Artifacts, record.Artifact{Variant: v.Name, Key: v.Artifact, Content: p.Content.String(),
			Bytes: p.Bytes, Files: p.Files})
	}
	return nil
}
