package kind

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
	"rollout/shared/record"
)

// batch answers the prompts of its inputs, one item a line. Judges then read the
// answers.
func batch() Kind {
	return Kind{Name: config.KindBatch, Executor: config.ExecutorInfer, Complete: CompletePrompts, Retries: true,
		Roles: judgeRoles, Appends: judgeCount, RoleOf: judgeRoleOf, Grow: askJudge}
}

// CompletePrompts is Kind.Complete for inputs of prompts: the pool is the one that
// serves the config's model, and the dialect that of the first input with a line.
func CompletePrompts(ctx context.Context, m *record.Manifest, at Site) error {
	pool, revision, err := Serving(at.Deployment, m.Config.Model)
	if err != nil {
		return err
	}
	m.Pool, m.ModelURI = pool.Name, pool.Model
	m.ModelID = identity.Model(pool.Model, revision).String()
	m.Dialect = m.Config.Input.Dialect
	for _, in := range m.Inputs {
		head, err := at.Head(ctx, in)
		if err != nil {
			return err
		}
		if err := recognize(in, head); err != nil {
			return fault.Wrap(err, "%s", in.Label())
		}
		if m.Dialect == "" && len(head) > 0 {
			m.Dialect = string(dialect.Detect(head))
		}
	}
	if m.Dialect == "" {
		m.Dialect = string(dialect.Plain)
	}
	return nil
}

// recognize refuses an input of another format than JSON lines, by its beginning.
func recognize(in record.Input, head []byte) error {
	if len(head) > jsonl.RecognizeLen {
		return jsonl.Recognize(in.Label(), head[:jsonl.RecognizeLen], false)
	}
	return jsonl.Recognize(in.Label(), head, in.Packed == "" && int64(len(head)) == in.Size)
}

// modelKey is the key of a run's config that names its model.
const modelKey = "model.uri"

// Serving returns the pool that takes a run of the model, and the revision that the run has.
// A config without a model gets the only pool, or the one that is named default. A model
// that no pool serves, and a revision that its pool does not serve, are Invalid.
func Serving(d config.Deployment, m config.Model) (config.Pool, string, error) {
	return serving(d, m, modelKey)
}

// serving is Serving of a model that the config names by the key.
func serving(d config.Deployment, m config.Model, key string) (pool config.Pool, revision string, err error) {
	if pool, err = poolOf(d, m, key); err == nil {
		revision, err = revisionOf(pool, m)
	}
	return pool, revision, err
}

// poolOf returns the pool that serves the model, which the config names by the key. A
// config without a model gets the only pool, or the one that is named default.
func poolOf(d config.Deployment, m config.Model, key string) (config.Pool, error) {
	ps := d.InferPools()
	if len(ps) == 0 && d.Cloud.Configured() { // its only pool trains
		return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "the installation has no pool that answers prompts",
			Remedy: "add a [[pool]] with the name of a model to rollout.toml, and deploy it"}
	}
	if m.URI == "" && len(ps) == 1 {
		return ps[0], nil
	}
	var have []string
	for _, p := range ps {
		if p.Model == m.URI || m.URI == "" && p.Name == config.DefaultPool {
			return p, nil
		}
		have = append(have, p.Model)
	}
	if m.URI == "" {
		return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "the config names no model and there are several pools",
			Remedy: "set " + key + " to one of: " + strings.Join(have, ", ")}
	}
	return config.Pool{}, &fault.Error{Kind: fault.Invalid, Op: "no pool serves the model " + m.URI,
		Remedy: "set " + key + " to one of: " + strings.Join(have, ", ") + "; or start rollout with --model " + m.URI}
}

// revisionOf returns the model's revision: that of the pool if it is known,
// otherwise that of the run's config. Two different ones are Invalid.
func revisionOf(p config.Pool, m config.Model) (string, error) {
	if p.Revision != "" && m.Revision != "" && m.Revision != p.Revision {
		return "", &fault.Error{Kind: fault.Invalid, Remedy: "leave model.revision out, or set it to the one that is served",
			Err: fmt.Errorf("the pool %s serves the revision %s of %s, not %s", p.Name, p.Revision, p.Model, m.Revision)}
	}
	return cmp.Or(p.Revision, m.Revision), nil
}

// PoolOf returns the pool that serves the model of a run, for a child of it. A
// deployment that no longer serves that model, or serves another revision of it, is
// Invalid: items of the child would have other ids and answers.
func PoolOf(d config.Deployment, m record.Manifest) (string, error) {
	pool, revision, err := Serving(d, config.Model{URI: m.ModelURI, Revision: m.Config.Model.Revision})
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
