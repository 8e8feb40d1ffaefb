package observe

import (
	"log/slog"
	"time"

	"rollout/events"
	"rollout/shared/core/identity"
)

// RunSubmitted reports that the manifest of a run was written.
type RunSubmitted struct {
	Run                  identity.RunID
	Name, Model, Dialect string
	Endpoint             string // where its rows go, for people; "" for a run without rows
}

// RunRefused reports that an upload is not a valid run.
type RunRefused struct {
	Run          identity.RunID
	Name, Reason string
}

// RunPlanned reports that all shards of a run are known.
type RunPlanned struct {
	Run    identity.RunID
	Shards int
	Items  uint64
}

// RunPhase reports that the phase of a run changed.
type RunPhase struct {
	Run                             identity.RunID
	Phase, Previous, Reason, Detail string
}

// RunEnded reports that the summary.json of a run was written.
type RunEnded struct {
	Run                            identity.RunID
	Phase                          string
	Items, Completed, Failed       uint64
	PromptTokens, CompletionTokens int64
	WastedTokens                   int64
	Took                           time.Duration // since the first dispatched shard; 0 without one
}

// EventName returns "run_submitted".
func (RunSubmitted) EventName() string { return events.ObserveRunSubmitted }

// EventName returns "run_refused".
func (RunRefused) EventName() string { return events.ObserveRunRefused }

// EventName returns "run_planned".
func (RunPlanned) EventName() string { return events.ObserveRunPlanned }

// EventName returns "run_phase".
func (RunPhase) EventName() string { return events.ObserveRunPhase }

// EventName returns "run_ended".
func (RunEnded) EventName() string { return events.ObserveRunEnded }

// Level is info.
func (RunSubmitted) Level() slog.Level { return slog.LevelInfo }

// Level is warn.
func (RunRefused) Level() slog.Level { return slog.LevelWarn }

// Level is info.
func (RunPlanned) Level() slog.Level { return slog.LevelInfo }

// Level is info.
func (RunPhase) Level() slog.Level { return slog.LevelInfo }

// Level is info.
func (RunEnded) Level() slog.Level { return slog.LevelInfo }

// Attrs are run, name, model, dialect.
func (e RunSubmitted) Attrs() []slog.Attr {
	as := []slog.Attr{runAttr(e.Run), slog.String("name", e.Name), slog.String("model", e.Model),
		slog.String("dialect", e.Dialect)}
	if e.Endpoint != "" {
		as = append(as, slog.String("endpoint", e.Endpoint))
	}
	return as
}

// Attrs are run, name, reason.
func (e RunRefused) Attrs() []slog.Attr {
	return []slog.Attr{runAttr(e.Run), slog.String("name", e.Name), slog.String(KeyReason, e.Reason)}
}

// Attrs are run, shards, items.
func (e RunPlanned) Attrs() []slog.Attr {
	return []slog.Attr{runAttr(e.Run), slog.Int("shards", e.Shards), slog.Uint64("items", e.Items)}
}

// Attrs are run, phase, was, reason, detail.
func (e RunPhase) Attrs() []slog.Attr {
	return []slog.Attr{runAttr(e.Run), slog.String(KeyPhase, e.Phase), slog.String("was", e.Previous),
		slog.String(KeyReason, e.Reason), slog.String("detail", e.Detail)}
}

// Attrs are run, phase, items, completed, failed, prompt_tokens,
// completion_tokens, wasted_tokens, seconds.
func (e RunEnded) Attrs() []slog.Attr {
	return []slog.Attr{runAttr(e.Run), slog.String(KeyPhase, e.Phase), slog.Uint64("items", e.Items),
		slog.Uint64("completed", e.Completed), slog.Uint64("failed", e.Failed),
		slog.Int64("prompt_tokens", e.PromptTokens), slog.Int64("completion_tokens", e.CompletionTokens),
		slog.Int64("wasted_tokens", e.WastedTokens), slog.Float64("seconds", e.Took.Seconds())}
}

func runAttr(id identity.RunID) slog.Attr { return slog.String(KeyRun, string(id)) }
