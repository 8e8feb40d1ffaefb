package diagnosis

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/text"
	"rollout/shared/trials"
)

// TrialsInFlight is what a run of trials does now. It is a view: what decides are control/<run>,
// coordinator/<run>, the documents of shards and the heartbeats of workers.
type TrialsInFlight struct {
	Control  RunControl       `json:"run_control"`
	Progress ScheduleProgress `json:"schedule_progress"`
	// Next is the schedule index at which the trials after these begin; null at the end.
	Next *int `json:"next"`
}

// RunControl is what a run was told, and the trials that workers hold: run_control_v2.
type RunControl struct {
	Schema    string         `json:"schema"` // "run_control_v2"
	Run       identity.RunID `json:"run_id"`
	Status    run.Phase      `json:"status"`
	UpdatedAt *time.Time     `json:"updated_at"` // null before the first step of the run
	Pause     *PauseRequest  `json:"pause"`      // null unless the run pauses, or has paused
	// Active are the trials by their ids, those of a page.
	Active map[string]ActiveTrial `json:"active_trials"`
}

// PauseRequest says why a run was paused, and who has not stopped yet.
type PauseRequest struct {
	Reason   string    `json:"reason"`
	At       time.Time `json:"requested_at"`
	Sequence uint64    `json:"sequence"` // of the control document
	// GraceUntil is when the run is interrupted unless all workers have acknowledged the pause.
	GraceUntil time.Time `json:"grace_until"`
	// Pending are living workers that hold trials and have not acknowledged it.
	Pending []string `json:"pending_workers"`
}

// ActiveTrial is a trial that a living worker holds.
type ActiveTrial struct {
	ID        string       `json:"trial_id"`
	Worker    string       `json:"worker_id"`
	Index     uint64       `json:"schedule_idx"`
	Slot      uint64       `json:"slot"`
	Task      string       `json:"task"`
	Variant   string       `json:"variant"`
	Attempt   uint64       `json:"attempt"`    // of its shard: more than 1 if it changed hands
	StartedAt time.Time    `json:"started_at"` // when the worker claimed it
	Control   TrialControl `json:"control"`
}

// TrialControl is how far the holder of a trial has followed the run's control.
type TrialControl struct {
	Acknowledged uint64 `json:"acknowledged"` // the newest control sequence that it has applied
	Current      bool   `json:"current"`      // that is the run's newest one
}

// ScheduleProgress is how far a run of trials has come: schedule_progress_v2.
type ScheduleProgress struct {
	Schema     string         `json:"schema"` // "schedule_progress_v2"
	Run        identity.RunID `json:"run_id"`
	Trials     uint64         `json:"trials"`          // planned so far
	NextCommit int            `json:"next_commit_idx"` // all trials before it are committed
	Committed  int            `json:"committed"`
	Buffered   int            `json:"buffered"` // done, behind one that is not
	InFlight   int            `json:"in_flight"`
	// Held are trials that dispatch has passed, because a limit or a chain holds them back.
	Held          int `json:"held_back"`
	Pruned        int `json:"pruned"`
	FailedInARow  int `json:"consecutive_failures"` // trials without an answer that came last
	Kept          int `json:"kept"`                 // of the parent's, in a child
	MaxConcurrent int `json:"max_concurrency"`      // 0: no limit
}

// maxActive bounds the trials of a page, and the workers that are named, so that it stays below
// 64 KiB: each has a task's id of at most maxTaskID characters.
const maxActive = 40

// ActiveTrials returns the trials of a run that workers hold, from a schedule index on. A run of
// another kind is NotFound. A call reads the documents of the run, the heartbeats, and for each
// trial of the page its document and its line.
func (x *Explainer) ActiveTrials(ctx context.Context, id identity.RunID, from int) (out TrialsInFlight, err error) {
	workers, err := x.reader.Workers(ctx)
	if err != nil {
		return out, err
	}
	p, err := x.reader.Progress(ctx, id, workers)
	if err != nil {
		return out, err
	}
	if p.Manifest.Kind != config.KindTrials {
		return out, fault.New(fault.NotFound, "run %s is not a run of trials", id)
	}
	var ctl record.Control
	if _, _, err := host.Load(ctx, x.ports.Docs, record.ControlKey(id), &ctl); err != nil {
		return out, err
	}
	held := heldTrials(workers, id)
	out.Control, out.Progress = runControl(p, ctl, held), scheduleProgress(p)
	behind, _ := slices.BinarySearchFunc(held, from, func(h heldTrial, n int) int { return cmp.Compare(h.shard, n) })
	page := held[behind:]
	if len(page) > maxActive {
		out.Next = &page[maxActive].shard
		page = page[:maxActive]
	}
	var ranges []interval.Range
	for _, h := range page {
		ranges = append(ranges, interval.Range{Lo: h.shard, Hi: h.shard + 1})
	}
	docs, err := x.reader.Shards(ctx, id, ranges, len(ranges))
	if err != nil {
		return out, err
	}
	for n, h := range page {
		if d := docs[n]; d.State != shard.Running || d.Worker != h.worker || d.Attempt != h.attempt {
			continue // its heartbeat is older
		}
		role, err := x.index.RoleOf(ctx, p.Manifest, h.shard)
		if err != nil {
			return out, err
		}
		if !p.Manifest.HasOutput(role) {
			continue // it is what a judge reads
		}
		of, err := x.trialOf(ctx, p.Manifest, h.shard)
		if err != nil {
			return out, err
		}
		out.Control.Active[of.ID] = ActiveTrial{ID: of.ID, Worker: h.worker, Index: of.Index, Slot: of.Slot,
			Task:    text.Truncate(of.Task, maxTaskID, "…"),
			Variant: of.Variant, Attempt: h.attempt, StartedAt: docs[n].ClaimedAt.UTC(),
			Control: TrialControl{Acknowledged: h.control, Current: h.control >= ctl.Sequence}}
	}
	return out, nil
}

// heldTrial is a trial that a heartbeat lists.
type heldTrial struct {
	shard            int
	worker           string
	attempt, control uint64
}

// heldTrials returns the trials of a run that living workers hold, by their schedule index.
func heldTrials(workers []status.WorkerStatus, id identity.RunID) (held []heldTrial) {
	for _, w := range workers {
		for _, h := range w.Holds {
			if w.Alive && h.Run == id {
				held = append(held, heldTrial{h.Shard, w.Worker, h.Attempt, w.Control[id]})
			}
		}
	}
	slices.SortFunc(held, func(a, b heldTrial) int {
		return cmp.Or(cmp.Compare(a.shard, b.shard), cmp.Compare(b.attempt, a.attempt))
	})
	// A worker that lost a trial may still list it: the newest attempt holds it.
	return slices.CompactFunc(held, func(a, b heldTrial) bool { return a.shard == b.shard })
}

// trialOf returns the trial that a shard is.
func (x *Explainer) trialOf(ctx context.Context, m record.Manifest, n int) (trials.Trial, error) {
	e, row, err := x.index.FindShard(ctx, m.Run, n)
	if err != nil {
		return trials.Trial{}, err
	}
	sh, err := x.index.LoadShard(ctx, m, e.Range, row)
	if err != nil {
		return trials.Trial{}, err
	}
	if len(sh.Lines) != 1 {
		return trials.Trial{}, fault.New(fault.Corrupt, "shard %d of run %s is not one trial", n, m.Run)
	}
	return trials.TrialOf(m.Config, sh.Lines[0].Bytes)
}

// runControl returns the control of a run without its trials.
func runControl(p status.Progress, ctl record.Control, held []heldTrial) RunControl {
	s := p.State
	c := RunControl{Schema: "run_control_v2", Run: p.Manifest.Run, Status: s.Phase, Active: map[string]ActiveTrial{}}
	if !s.SavedAt.IsZero() {
		at := s.SavedAt.UTC()
		c.UpdatedAt = &at
	}
	if ctl.Desired != record.DesiredPause || s.Phase.Ended() {
		return c
	}
	c.Pause = &PauseRequest{Reason: ctl.Reason, At: ctl.At.UTC(), Sequence: ctl.Sequence, GraceUntil: s.GraceUntil.UTC(),
		Pending: []string{}}
	for _, h := range held {
		if h.control < ctl.Sequence && len(c.Pause.Pending) < maxActive &&
			!slices.Contains(c.Pause.Pending, h.worker) {
			c.Pause.Pending = append(c.Pause.Pending, h.worker)
		}
	}
	return c
}

// scheduleProgress returns how far a run has come.
func scheduleProgress(p status.Progress) ScheduleProgress {
	s := p.State
	done := s.Done
	all := s.Items
	if len(p.Plan.Roles) > 0 { // judges read more
		all = p.Manifest.OutputItems(p.Plan.Roles)
	}
	committed := min(done.Frontier(), int(all)) // each trial is a shard, and judges' shards come behind them
	return ScheduleProgress{Schema: "schedule_progress_v2", Run: p.Manifest.Run, Trials: all,
		NextCommit: committed, Committed: committed, Buffered: done.Buffered(), InFlight: s.InFlight.Len(),
		Held: s.Skipped.Len(), Pruned: s.Counts.ByClass[string(fault.Pruned)], FailedInARow: s.FailedStreak,
		Kept: s.KeptShards, MaxConcurrent: p.Manifest.Config.DesignOf().MaxConcurrency}
}
