package command

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"rollout/gpuworker/process"
	"rollout/scripts/rollout/progress"
	"rollout/shared/config"
	"rollout/shared/embedded/machine"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/installation"
)

// serverCheck is what the servers of a run's engine say of its model before the run.
type serverCheck struct {
	Servers []process.ServerModels `json:"servers"`
	// Note says why no server was asked; "" if one was.
	Note string `json:"servers_note,omitempty"`
}

// askServers asks the servers of the engine that takes a run. Those of an installation in a cloud stand on machines of
// their own, where no command reaches them.
func (e *Env) askServers(
	ctx context.Context, in *installation.Installation, engine config.Engine, model string,
) (serverCheck, error) {
	if in.Cloud != "" {
		return serverCheck{Note: "servers on machines in a cloud can't be seen from here: `rollout status` shows them"}, nil
	}
	log, err := e.logger(slog.LevelError)
	if err != nil {
		return serverCheck{}, err
	}
	return e.serversOf(ctx, engine, model, in.Deployment.Secrets, log), nil
}

// serversOf asks each server of an engine for its models. secrets are the names of those that it may need.
func (e *Env) serversOf(
	ctx context.Context, engine config.Engine, model string, secrets []string, log *slog.Logger,
) serverCheck {
	switch {
	case engine.InProcess():
		return serverCheck{Note: "the engine " + engine.String() + " runs in the worker: there is no server to ask"}
	case len(engine.Servers()) == 0:
		return serverCheck{Note: "the config names no server: those of --engine are asked when the run begins"}
	}
	store := machine.EnvSecrets(secrets, func(name string) (string, bool) {
		value := e.Getenv(name)
		return value, value != ""
	})
	return serverCheck{Servers: process.ListModels(ctx, engine, model, store, log)}
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
			said = "lacks the model: it lists " + names
		case names != "":
			said = "lists " + names
		}
		fmt.Fprintf(&b, "%-12s%s %s\n", "server", progress.SanitizeLine(server.Server, 200), progress.SanitizeLine(said, 500))
	}
	return b.String()
}

// maxModelNames is how many names of a server's models are shown.
const maxModelNames = 10

// failure returns the error of servers that lack the model. One that does not answer is none: it may be started later.
func (s serverCheck) failure(model string) error {
	lacking := 0
	for _, server := range s.Servers {
		if server.Lacks {
			lacking++
		}
	}
	if lacking == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Conflict,
		Err: fmt.Errorf("%d of %s not list the model %q", lacking,
			figures.OfMany(len(s.Servers), "server does", "servers do"), model),
		Remedy: "correct model.uri or the model of the [[pool]], or name the server's own name with body_model of the engine"}
}
