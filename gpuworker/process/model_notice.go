package process

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"rollout/gpuworker/engine"
	"rollout/shared/config"
)

// modelNotice says that an engine does not list the model that a pool asks it for. It is
// a hint: servers answer to names that they do not list. The first answer withdraws it.
// It is safe for concurrent use.
type modelNotice struct {
	pool  string
	model string // by the server's name; "" is not looked for
	lists func() []string
	log   *slog.Logger
	text  atomic.Pointer[string]
}

// maxListed is how many names of models a notice shows.
const maxListed = 10

// newModelNotice returns the notice of a pool's workers.
func newModelNotice(e engine.Engine, d config.Deployment, pool string, log *slog.Logger) *modelNotice {
	model := d.Pool(pool).Model
	if name := d.Engine.BodyModel[model]; name != "" {
		model = name
	}
	n := &modelNotice{pool: pool, model: model, lists: func() []string { return nil }, log: log}
	if lister, ok := e.(interface{ Models() []string }); ok {
		n.lists = lister.Models
	}
	return n
}

// becameReady looks at the list of an engine that has become ready.
func (n *modelNotice) becameReady(ctx context.Context) {
	names := n.lists()
	if len(names) == 0 || n.model == "" || slices.Contains(names, n.model) {
		return
	}
	text := fmt.Sprintf("the server lists no model %q; it lists %s", n.model, listed(names))
	n.text.Store(&text)
	n.log.WarnContext(ctx, text+" (correct the model of the pool or the run, or map it with body_model of the engine)",
		"pool", n.pool)
}

// answered withdraws the notice: the server has the model.
func (n *modelNotice) answered() {
	if n.text.Load() != nil {
		n.text.Store(nil)
	}
}

// String returns the notice, or "".
func (n *modelNotice) String() string {
	if text := n.text.Load(); text != nil {
		return *text
	}
	return ""
}

// listed names the first models of a list.
func listed(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
