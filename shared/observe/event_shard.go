package observe

import (
	"log/slog"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// Claim identifies one claim of a shard.
type Claim struct {
	Run     identity.RunID
	Shard   int
	Attempt uint64
	Worker  string
}

// ShardClaimed reports that a worker claimed a shard.
type ShardClaimed struct{ Claim }

// ShardCheckpoint reports that a checkpoint with finished rows of a shard was written.
type ShardCheckpoint struct {
	Claim
	Rows, Bytes int
}

// ShardDone reports that a shard was committed or sealed.
type ShardDone struct {
	Claim
	Counts shard.Counts
	Bytes  int64       // of the result; 0 for a sealed shard
	Sealed fault.Class // why the shard was sealed; "" for a committed one
}

// ShardLost reports that a shard lost its message or its worker and is dispatched again.
type ShardLost struct {
	Run        identity.RunID
	Shard      int
	Generation int // the lost one
	Reason     string
}

// ShardReleased reports that a worker gave a shard back.
type ShardReleased struct{ Claim }

// ItemDone reports that an item has its row. The row may still be lost with its worker.
type ItemDone struct {
	Run   identity.RunID
	Shard int
	Item  uint64
	ID    string      // the item's own id
	Class fault.Class // "" for an answered item
}

// EventName returns "shard_claimed".
func (ShardClaimed) EventName() string { return events.ObserveShardClaimed }

// EventName returns "shard_checkpoint".
func (ShardCheckpoint) EventName() string { return events.ObserveShardCheckpoint }

// EventName returns "shard_done".
func (ShardDone) EventName() string { return events.ObserveShardDone }

// EventName returns "shard_lost".
func (ShardLost) EventName() string { return events.ObserveShardLost }

// EventName returns "shard_released".
func (ShardReleased) EventName() string { return events.ObserveShardReleased }

// EventName returns "sample_completed", "sample_failed" or "sample_poisoned".
func (e ItemDone) EventName() string {
	switch e.Class {
	case "":
		return events.ObserveSampleCompleted
	case fault.Poison:
		return events.ObserveSamplePoisoned
	}
	return events.ObserveSampleFailed
}

// Level is debug.
func (ShardClaimed) Level() slog.Level { return slog.LevelDebug }

// Level is debug.
func (ShardCheckpoint) Level() slog.Level { return slog.LevelDebug }

// Level is debug.
func (ShardDone) Level() slog.Level { return slog.LevelDebug }

// Level is warn.
func (ShardLost) Level() slog.Level { return slog.LevelWarn }

// Level is info.
func (ShardReleased) Level() slog.Level { return slog.LevelInfo }

// Level is below debug, because these events are too frequent.
func (ItemDone) Level() slog.Level { return unlogged }

func (c Claim) attrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{runAttr(c.Run), slog.Int(KeyShard, c.Shard), slog.Uint64(KeyAttempt, c.Attempt),
		slog.String(KeyWorker, c.Worker)}, more...)
}

// Attrs are run, shard, attempt, worker.
func (e ShardClaimed) Attrs() []slog.Attr { return e.attrs() }

// Attrs are run, shard, attempt, worker, rows, bytes.
func (e ShardCheckpoint) Attrs() []slog.Attr {
	return e.attrs(slog.Int("rows", e.Rows), slog.Int("bytes", e.Bytes))
}

// Attrs are run, shard, attempt, worker, completed, failed, prompt_tokens,
// completion_tokens, wasted_tokens, bytes, and, for a sealed shard, sealed.
func (e ShardDone) Attrs() []slog.Attr {
	c := e.Counts
	as := e.attrs(slog.Int("completed", c.OK), slog.Int("failed", c.Failed),
		slog.Int64("prompt_tokens", c.PromptTokens), slog.Int64("completion_tokens", c.CompletionTokens),
		slog.Int64("wasted_tokens", c.WastedTokens), slog.Int64("bytes", e.Bytes))
	if e.Sealed != "" {
		as = append(as, slog.String("sealed", string(e.Sealed)))
	}
	return as
}

// Attrs are run, shard, generation, reason.
func (e ShardLost) Attrs() []slog.Attr {
	return []slog.Attr{runAttr(e.Run), slog.Int(KeyShard, e.Shard), slog.Int("generation", e.Generation),
		slog.String(KeyReason, e.Reason)}
}

// Attrs are run, shard, attempt, worker.
func (e ShardReleased) Attrs() []slog.Attr { return e.attrs() }

// Attrs are run, shard, item, id, and, for a failed item, class.
func (e ItemDone) Attrs() []slog.Attr {
	as := []slog.Attr{runAttr(e.Run), slog.Int(KeyShard, e.Shard), slog.Uint64(KeyItem, e.Item),
		slog.String("id", e.ID)}
	if e.Class != "" {
		as = append(as, slog.String("class", string(e.Class)))
	}
	return as
}
