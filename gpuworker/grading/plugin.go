package grading

import (
	"context"
	"errors"

	"rollout/gpuworker/plugin/wire"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// Plugins are the plugins of a worker.
type Plugins interface {
	// Call has a plugin answer a request, within a time of its own. An error that is Unavailable
	// may pass.
	Call(ctx context.Context, plugin, method string, payload []byte) ([]byte, error)
	// Check returns Denied if the plugin is missing, or is not the one that a run is pinned to.
	Check(pin record.PluginPin) error
}

// methodGrade is the request for scores. Its payload and its reply are those of scoring services.
const methodGrade = "grade"

// newPlugin returns a service that a plugin is.
func newPlugin(name string, cfg config.Plugin, o Options) *service {
	s := &service{name: name, log: o.Log, cfg: config.GraderService{Batch: cfg.Batch, Concurrency: cfg.Concurrency,
		Timeout: cfg.Timeout, Retries: cfg.Retries, MaxWait: cfg.MaxWait}}
	s.ask = func(ctx context.Context, cases []grade.Case) ([]grade.Score, *failure) {
		body, err := encode(cases)
		if err != nil {
			return nil, &failure{cause: grade.Refused, perhapsOne: true,
				err: fault.WithKind(fault.Invalid, err, "encode the answers")}
		}
		reply, err := o.Plugins.Call(ctx, name, methodGrade, body)
		if err != nil {
			return nil, pluginFailure(err)
		}
		return decode(reply, len(cases))
	}
	return s
}

// pluginFailure is the failure of a call. Any of the answers may have made the plugin crash, hang
// or refuse: if others pass alone, it was that one.
func pluginFailure(err error) *failure {
	f := &failure{cause: grade.Unavailable, err: err, perhapsOne: true}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		f.cause = grade.TimedOut
	case errors.Is(err, wire.ErrMalformed):
		f.cause = grade.Malformed
	case errors.As(err, new(*wire.RefusedError)), !fault.Retriable(err):
		f.cause = grade.Refused
	}
	return f
}

// CheckPins returns Denied if a plugin that a run is pinned to is missing here, or is another one.
func (s *Services) CheckPins(pins []record.PluginPin) error {
	for _, pin := range pins {
		if s == nil || s.plugins == nil {
			return &fault.Error{Kind: fault.Denied, Err: fault.New(fault.Denied, "this worker has no plugin %s", pin.Name),
				Remedy: "start it with --plugin and the plugin's folder"}
		}
		if err := s.plugins.Check(pin); err != nil {
			return err
		}
	}
	return nil
}
