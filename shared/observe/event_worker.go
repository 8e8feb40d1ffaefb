package observe

import (
	"log/slog"
	"time"

	"rollout/events"
)

// WorkerRegistered reports the first heartbeat of a worker.
type WorkerRegistered struct {
	Worker, Pool string
	MaxInFlight  int // the most concurrent requests
}

// WorkerHeartbeat reports each later heartbeat of a worker.
type WorkerHeartbeat struct {
	Worker, Pool, State string
	Shards              int           // held shards
	Busy, MaxInFlight   int           // current and most concurrent requests to the engine
	EngineAway          bool          // the engine does not answer
	Late                time.Duration // how late the heartbeat was written
}

// WorkerDraining reports that a worker begins to drain.
type WorkerDraining struct {
	Worker, Reason string
	Shards         int // held shards
}

// WorkerDeregistered reports the orderly end of a worker.
type WorkerDeregistered struct{ Worker string }

// WorkerFenced reports that a worker could not renew its heartbeat and stopped writing.
type WorkerFenced struct{ Worker, Reason string }

// WorkerFailed reports that another process found a worker dead.
type WorkerFailed struct {
	Worker  string
	DueAt   time.Time
	Overdue time.Duration
	Shards  int // shards that the worker held
}

// EngineStarted reports that an engine answers, for the first time or again.
type EngineStarted struct{ Server, Model string }

// EngineDied reports that a server crashed or restarted while it processed requests.
type EngineDied struct {
	Server string
	Start  string // identifies the start that ended; "" if unknown
}

// EventName returns "worker_registered".
func (WorkerRegistered) EventName() string { return events.ObserveWorkerRegistered }

// EventName returns "worker_heartbeat".
func (WorkerHeartbeat) EventName() string { return events.ObserveWorkerHeartbeat }

// EventName returns "worker_draining".
func (WorkerDraining) EventName() string { return events.ObserveWorkerDraining }

// EventName returns "worker_deregistered".
func (WorkerDeregistered) EventName() string { return events.ObserveWorkerDeregistered }

// EventName returns "worker_fenced".
func (WorkerFenced) EventName() string { return events.ObserveWorkerFenced }

// EventName returns "worker_failed".
func (WorkerFailed) EventName() string { return events.ObserveWorkerFailed }

// EventName returns "engine_started".
func (EngineStarted) EventName() string { return events.ObserveEngineStarted }

// EventName returns "engine_died".
func (EngineDied) EventName() string { return events.ObserveEngineDied }

// Level is info.
func (WorkerRegistered) Level() slog.Level { return slog.LevelInfo }

// Level is below debug, because these events are too frequent.
func (WorkerHeartbeat) Level() slog.Level { return unlogged }

// Level is info.
func (WorkerDraining) Level() slog.Level { return slog.LevelInfo }

// Level is info.
func (WorkerDeregistered) Level() slog.Level { return slog.LevelInfo }

// Level is error.
func (WorkerFenced) Level() slog.Level { return slog.LevelError }

// Level is warn.
func (WorkerFailed) Level() slog.Level { return slog.LevelWarn }

// Level is info.
func (EngineStarted) Level() slog.Level { return slog.LevelInfo }

// Level is warn.
func (EngineDied) Level() slog.Level { return slog.LevelWarn }

// Attrs are worker, pool, in_flight.
func (e WorkerRegistered) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyWorker, e.Worker), slog.String(KeyPool, e.Pool),
		slog.Int("in_flight", e.MaxInFlight)}
}

// Attrs are worker, pool, state, shards, busy, in_flight, engine_away,
// late_seconds.
func (e WorkerHeartbeat) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyWorker, e.Worker), slog.String(KeyPool, e.Pool), slog.String("state", e.State),
		slog.Int("shards", e.Shards), slog.Int("busy", e.Busy), slog.Int("in_flight", e.MaxInFlight),
		slog.Bool("engine_away", e.EngineAway), slog.Float64("late_seconds", e.Late.Seconds())}
}

// Attrs are worker, reason, shards.
func (e WorkerDraining) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyWorker, e.Worker), slog.String(KeyReason, e.Reason), slog.Int("shards", e.Shards)}
}

// Attrs are worker.
func (e WorkerDeregistered) Attrs() []slog.Attr { return []slog.Attr{slog.String(KeyWorker, e.Worker)} }

// Attrs are worker, reason.
func (e WorkerFenced) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyWorker, e.Worker), slog.String(KeyReason, e.Reason)}
}

// Attrs are worker, due_at, overdue_seconds, shards.
func (e WorkerFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyWorker, e.Worker), slog.Time("due_at", e.DueAt.UTC()),
		slog.Float64("overdue_seconds", e.Overdue.Seconds()), slog.Int("shards", e.Shards)}
}

// Attrs are server, model.
func (e EngineStarted) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyServer, e.Server), slog.String("model", e.Model)}
}

// Attrs are server, start.
func (e EngineDied) Attrs() []slog.Attr {
	return []slog.Attr{slog.String(KeyServer, e.Server), slog.String("start", e.Start)}
}
