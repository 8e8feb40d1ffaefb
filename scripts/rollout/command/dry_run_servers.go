package command

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"rollout/gpuworker/process"
	"rollout/scripts/rollout/progress"
	"rollout/shared/config"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
	"rollout/shared/kind"
)

// serverCheck is what the servers that a run asks say of its models before the run.
type serverCheck struct {
	Servers []process.ServerModels `json:"servers"`
	// Note says why servers were not asked; "" if all were.
	Note string `json:"servers_note,omitempty"`
}

// askServers asks the servers of the engines that a run asks. Those of an installation in a cloud stand on machines of
// their own, where no command reaches them.
func (e *Env) askServers(ctx context.Context, in *installation.Installation, run config.Run) (serverCheck, error) {
	if in.Cloud != "" {
		return serverCheck{Note: "servers on machines in a cloud can't be seen from here: `rollout status` shows them"}, nil
	}
	log, err := e.logger(slog.LevelError)
	if err != nil {
		return serverCheck{}, err
	}
	return e.serversOf(ctx, in.Deployment, run, in.Deployment.Secrets, log)
}

// serversOf asks each server of the engines for the model that the run asks there. secrets are the names of those that
// it may need.
func (e *Env) serversOf(
	ctx context.Context, d config.Deployment, run config.Run, secrets []string, log *slog.Logger,
) (serverCheck, error) {
	all, err := askedBy(d, run)
	if err != nil {
		return serverCheck{}, err
	}
	store := machine.EnvSecrets(secrets, func(name string) (string, bool) {
		value := e.Getenv(name)
		return value, value != ""
	})
	var out serverCheck
	var notes []string
	for _, a := range all {
		note := ""
		switch {
		case a.engine.InProcess():
			note = "the engine " + a.engine.String() + " runs in the worker: no server is asked"
		case len(a.engine.Servers()) == 0:
			note = "the config names no server: those of --engine are asked when the run begins"
		default:
			out.Servers = append(out.Servers, process.ListModels(ctx, a.engine, a.model, store, log)...)
		}
		if note != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	out.Note = strings.Join(notes, "; ")
	return out, nil
}

// asked is a model that a run asks, and the engine of the pool that serves it.
type asked struct {
	engine config.Engine
	model  string
}

// askedBy returns what the roles of a run ask, the answer's first: each model once, because one pool serves it. Without
// pools in the config, `up` makes them of what its engine serves. The run's own model is that of its pool.
func askedBy(d config.Deployment, run config.Run) (out []asked, err error) {
	add := func(pool, model string) {
		if !slices.ContainsFunc(out, func(a asked) bool { return a.model == model }) {
			out = append(out, asked{d.ForPool(pool).Engine, model})
		}
	}
	k, err := kind.Table{}.Of(run.Kind)
	if err != nil {
		return nil, err
	}
	if len(d.InferPools()) == 0 {
		add("", run.Model.URI)
		if k.Roles != nil {
			for _, r := range k.Roles(run) {
				add("", cmp.Or(r.Model.URI, run.Model.URI))
			}
		}
		return out, nil
	}
	pool, _, err := kind.Serving(d, run.Model)
	if err != nil {
		return nil, err
	}
	add(pool.Name, pool.Model)
	roles, err := k.ResolveRoles(run, pool.Model, d)
	for _, r := range roles {
		add(r.Pool, r.ModelURI)
	}
	return out, err
}

// text formats what the servers said, for people.
func (s serverCheck) text() string {
	var b strings.Builder
	if s.Note != "" {
		fmt.Fprintf(&b, "%-12s%s\n", "servers", s.Note)
	}
	for _, server := range s.Servers {
		said := "answers, and lists no models"
		switch names := strings.Join(server.Models[:min(len(server.Models), maxModelNames)], ", "); {
		case server.Problem != "":
			said = "did not tell its models: " + server.Problem
		case server.Lacks:
			said = fmt.Sprintf("lacks the model %s: it lists %s", server.Asked, names)
		case server.Alike != "":
			said = fmt.Sprintf("lists %s, which may be another model than %s: name it in the config, or map it with "+
				"body_model of the engine", server.Alike, server.Asked)
		case names != "":
			said = "lists " + names
		}
		label := "server"
		if server.Alike != "" {
			label = "warning"
		}
		fmt.Fprintf(&b, "%-12s%s %s\n", label, progress.SanitizeLine(server.Server, 200), progress.SanitizeLine(said, 500))
	}
	return b.String()
}

// maxModelNames is how many names of a server's models are shown.
const maxModelNames = 10

// failure returns the error of servers that lack their model. One that does not answer is not an error: it may be
// started later.
func (s serverCheck) failure() error {
	lacking := 0
	var models []string
	for _, server := range s.Servers {
		if !server.Lacks {
			continue
		}
		lacking++
		if name := fmt.Sprintf("%q", server.Asked); !slices.Contains(models, name) {
			models = append(models, name)
		}
	}
	if lacking == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Conflict,
		Err: fmt.Errorf("%d of %s not list the model %s", lacking,
			figures.OfMany(len(s.Servers), "server does", "servers do"), strings.Join(models, ", ")),
		Remedy: "correct model.uri or the model of the [[pool]], or name the server's own name with body_model of the" +
			" engine"}
}
