package process

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/secret"
)

// ServerModels is what a server says of a model before a run.
type ServerModels struct {
	Server string   `json:"server"`
	Asked  string   `json:"asked"`  // the model that a run would ask for; "" for any
	Models []string `json:"models"` // that it lists; none if it lists none, or answers to any name
	// Lacks says that the server lists models, and not the one that is asked for.
	Lacks bool `json:"lacks"`
	// Alike is the listed model that may be the one that is asked for by another name, or may
	// be another: qwen2.5-72b for Qwen2.5. It is "" if the model itself is listed.
	Alike string `json:"alike,omitempty"`
	// Problem says why the server did not tell; "" if it did.
	Problem string `json:"problem,omitempty"`
}

// Bounds of ListModels: for each server, and for all of them together.
const (
	listTime    = 4 * time.Second
	listsAtOnce = 16
)

// ListModels asks each server of the engine for the names of its models, several at a
// time, and looks for the model. Servers that don't answer within 4 s have a Problem. An
// engine in the worker has no servers.
func ListModels(
	ctx context.Context, e config.Engine, model string, secrets secret.Store, log *slog.Logger,
) []ServerModels {
	if e.InProcess() {
		return nil
	}
	servers := e.Servers()
	out := make([]ServerModels, len(servers))
	var g errgroup.Group
	g.SetLimit(listsAtOnce)
	for i, server := range servers {
		g.Go(func() error {
			out[i] = listModels(ctx, e.WithURLs([]string{server}), model, secrets, log)
			out[i].Server, out[i].Asked = server, model
			return nil
		})
	}
	_ = g.Wait() // none of them fails
	return out
}

// listModels asks the only server of the engine.
func listModels(
	ctx context.Context, e config.Engine, model string, secrets secret.Store, log *slog.Logger,
) ServerModels {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	d := config.DefaultDeployment()
	d.Engine = e
	c, err := ConnectEngine(ctx, d, secrets, log)
	if err != nil {
		return ServerModels{Problem: err.Error()}
	}
	defer c.Close()
	_, err = c.Ready(ctx)
	if ctx.Err() != nil { // the client takes silence for a server without a list
		err = fault.New(fault.Unavailable, "it did not answer within %s", listTime)
	}
	if err != nil {
		return ServerModels{Problem: err.Error()}
	}
	var s ServerModels
	if lister, ok := c.(interface{ Models() []string }); ok {
		s.Models = lister.Models()
	}
	if name := e.BodyModel[model]; name != "" {
		model = name
	}
	if model == "" || len(s.Models) == 0 || slices.Contains(s.Models, model) {
		return s
	}
	if i := slices.IndexFunc(s.Models, func(name string) bool { return isSameModel(model, name) }); i >= 0 {
		s.Alike = s.Models[i]
	}
	s.Lacks = s.Alike == ""
	return s
}
