package process

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"rollout/gpuworker/engine"
	"rollout/shared/config"
)

// modelNotice says that an engine does not list the model that a pool asks it for, or that
// a server answers as another model than it was asked for. The first is a hint: servers
// answer to names that they do not list. The first answer withdraws it. The second is
// logged once for each server and model, and withdrawn by an answer as the right one. It
// is safe for concurrent use.
type modelNotice struct {
	pool  string
	model string // by the server's name; "" is not looked for
	lists func() []string
	alias func(server, a, b string) bool
	log   *slog.Logger
	text  atomic.Pointer[string]

	others atomic.Int32 // the length of other
	mu     sync.Mutex
	other  map[string]string   // what to say of servers that answer as another model
	logged map[answeredAs]bool // at most maxLogged
}

// answeredAs is a server that answered as a model.
type answeredAs struct{ server, model string }

// maxLogged bounds how many models of servers are logged.
const maxLogged = 256

// maxListed is how many names of models a notice shows.
const maxListed = 10

// newModelNotice returns the notice of a pool's workers.
func newModelNotice(e engine.Engine, d config.Deployment, pool string, log *slog.Logger) *modelNotice {
	model := d.Pool(pool).Model
	if name := d.Engine.BodyModel[model]; name != "" {
		model = name
	}
	n := &modelNotice{pool: pool, model: model, log: log, lists: func() []string { return nil },
		alias: func(string, string, string) bool { return false },
		other: map[string]string{}, logged: map[answeredAs]bool{}}
	if lister, ok := e.(interface{ Models() []string }); ok {
		n.lists = lister.Models
	}
	if knows, ok := e.(interface {
		IsAlias(server, a, b string) bool
	}); ok {
		n.alias = knows.IsAlias
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

// answered withdraws the hint of the list: the server has the model. It looks which model
// answered, by the server's word.
func (n *modelNotice) answered(ctx context.Context, r engine.Request, a engine.Answer) {
	if n.text.Load() != nil {
		n.text.Store(nil)
	}
	if a.Model == "" || a.Server == "" {
		return
	}
	if beginsWithModel(r.Body, a.Model) {
		n.asAsked(a.Server)
		return
	}
	asked := modelIn(r.Body)
	if asked == "" || isSameModel(asked, a.Model) || n.alias(a.Server, asked, a.Model) {
		n.asAsked(a.Server)
		return
	}
	text := fmt.Sprintf("the server answers as model %q when it is asked for %q", a.Model, asked)
	n.mu.Lock()
	n.other[a.Server] = text
	n.others.Store(int32(len(n.other)))
	is := answeredAs{a.Server, a.Model}
	log := !n.logged[is] && len(n.logged) < maxLogged
	if log {
		n.logged[is] = true
	}
	n.mu.Unlock()
	if log {
		n.log.WarnContext(ctx, text+" (correct the model of the pool or the run, or map it with body_model of the engine)",
			"pool", n.pool, "server", a.Server)
	}
}

// asAsked records that a server answers as the model that it is asked for.
func (n *modelNotice) asAsked(server string) {
	if n.others.Load() == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.other, server)
	n.others.Store(int32(len(n.other)))
}

// of returns the notice about a server, or "".
func (n *modelNotice) of(server string) string {
	if text := n.text.Load(); text != nil {
		return *text
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.other[server]
}

// beginsWithModel reports whether the body begins with that model, as most do. It is
// quick.
func beginsWithModel(body []byte, model string) bool {
	const head = `{"model":"`
	end := len(head) + len(model)
	return len(body) > end && string(body[:len(head)]) == head && string(body[len(head):end]) == model && body[end] == '"'
}

// modelIn returns the model that a body names; "" if it names none.
func modelIn(body []byte) string {
	var named struct{ Model string }
	if json.Unmarshal(body, &named) != nil {
		return ""
	}
	return named.Model
}

// isSameModel reports whether a server that is asked for one name may call the model by
// the other: by a dated snapshot or a tag of it ("gpt-4o-2024-08-06", "llama3:latest"), or
// without the folder or the organization in which it lies.
func isSameModel(asked, answered string) bool {
	asked, answered = strings.ToLower(asked), strings.ToLower(answered)
	if rest, ok := strings.CutPrefix(answered, asked); ok {
		return rest == "" || rest[0] == '-' || rest[0] == ':' || rest[0] == '@'
	}
	return path.Base(asked) == path.Base(answered)
}

// listed names the first models of a list.
func listed(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
