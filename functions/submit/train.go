package submit

import (
	"context"

	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// completeTraining is complete for a training. Its model is the base model, its
// pool the one that trains, and its input one dataset.
func (s *Submitter) completeTraining(ctx context.Context, m *record.Manifest) error {
	if s.at.ManagedFleet { // no machine starts for a training pool, and the pool has no queue
		return &fault.Error{Kind: fault.Invalid, Remedy: "train on a machine of yours: rollout train, or rollout up",
			Err: fault.New(fault.Invalid, "a training can't run in a cloud in this version")}
	}
	if m.Config.Algorithm == nil {
		return fault.New(fault.Invalid, "a training has no algorithm")
	}
	if len(m.Inputs) != 1 {
		return fault.New(fault.Invalid, "a training has one dataset, not %d", len(m.Inputs))
	}
	pool, _ := s.deployment.TrainPool()
	base := m.Config.Algorithm.Common().BaseModel.URI
	m.Pool, m.ModelURI, m.ModelID, m.Dialect = pool.Name, base, identity.Model(base, "").String(), string(dialect.Plain)
	head, err := s.head(ctx, m.Inputs[0])
	if err != nil {
		return err
	}
	if len(head) == 0 {
		return &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%s has no rows", m.Inputs[0].Label()),
			Remedy: "put rows into the .jsonl beside its config: a training of kind " + m.Config.Algorithm.Kind +
				" learns from them"}
	}
	return fault.Wrap(jsonl.Sniff(head), "%s", m.Inputs[0].Label())
}
