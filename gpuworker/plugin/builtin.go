package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rollout/gpuworker/plugin/wire"
	"rollout/shared/fault"
)

// Builtin is a plugin that is Go code of the worker's program. It is trusted: it should return
// when ctx ends, and nothing makes it.
type Builtin interface {
	// Call answers a request with JSON text. An error with the kind Unavailable says that the same
	// request may succeed later; any other refuses it. It is called concurrently.
	Call(ctx context.Context, method string, payload []byte) ([]byte, error)
}

// Registry are the builtin plugins of a program, by the factory that manifests name. A main makes
// one; nil has none.
type Registry map[string]func() (Builtin, error)

// builtin is a Builtin as the host calls it.
type builtin struct{ Builtin }

func (r Registry) load(factory string) (builtin, error) {
	f := r[factory]
	if f == nil {
		err := fault.New(fault.Invalid, "this program has no builtin plugin %q", factory)
		if len(r) == 0 {
			return builtin{}, &fault.Error{Kind: fault.Invalid, Err: err,
				Remedy: "start a program that is built with it, or use another mode"}
		}
		return builtin{}, &fault.Error{Kind: fault.Invalid, Err: err,
			Remedy: "use one of " + strings.Join(slices.Sorted(maps.Keys(r)), ", ")}
	}
	b, err := f()
	return builtin{b}, fault.Wrap(err, "make the builtin plugin %s", factory)
}

// Call turns a panic of the plugin into the error of its call.
func (b builtin) Call(ctx context.Context, method string, payload []byte) (reply []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			reply, err = nil, fault.New(fault.Invalid, "the plugin panicked: %.200q", fmt.Sprint(p))
		}
	}()
	if len(payload) > wire.MaxBytes {
		return nil, fault.New(fault.Invalid, "the request has %d bytes, and at most %d are allowed", len(payload),
			wire.MaxBytes)
	}
	reply, err = b.Builtin.Call(ctx, method, payload)
	if err == nil && len(reply) > wire.MaxBytes {
		return nil, fault.New(fault.Invalid, "the reply has %d bytes, and at most %d are allowed", len(reply), wire.MaxBytes)
	}
	return reply, err
}

func (builtin) Close() error { return nil }
