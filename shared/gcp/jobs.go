package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"time"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"rollout/shared/capacity"
	"rollout/shared/clock"
	"rollout/shared/core/scaling"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/text"
)

// JobOptions configure Jobs.
type JobOptions struct {
	Docs  document.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Max is the most tasks of a pool.
	Max int
	// Name returns the name of a pool's job: projects/P/locations/R/jobs/J.
	Name func(pool string) string
}

// Jobs are the pools whose machines are tasks of Cloud Run jobs, as a capacity.Fleet. A
// task is a worker on a machine of its own with a GPU; it leaves the fleet by ending.
//
//	ScaleUp ─▶ jobs/<pool>: pause over? ─▶ executions: tasks that run or wait
//	                                        │ too few
//	        jobs/<pool> ◀─ intent, by CAS ──┘
//	                │ won
//	                ▼
//	             jobs.run ─┬─ accepted ─▶ jobs/<pool>: the execution's name
//	                       ├─ refused ──▶ jobs/<pool>: pause;  fleet/<pool>: why
//	                       └─ unknown ──▶ the intent counts until it is listed, or for 2 minutes
//
// The document jobs/<pool> is the lock: of two calls that read the same revision, one
// starts tasks, and a later call counts the tasks that the document says were started. So
// concurrent calls never start more tasks than the largest of them asks for.
type Jobs struct {
	client  *rest
	options JobOptions
}

var (
	_ capacity.Fleet      = (*Jobs)(nil)
	_ capacity.Withdrawer = (*Jobs)(nil)
)

// NewJobs returns the fleet; it sends no request. SDK are further options of the client, for
// tests.
func NewJobs(ctx context.Context, cfg Config, o JobOptions, sdk ...option.ClientOption) (*Jobs, error) {
	client, err := newREST(ctx, cfg, sdk...)
	if err != nil {
		return nil, err
	}
	return &Jobs{client, o}, nil
}

// jobs returns the fleet of the pools whose machines are tasks.
func (s *Stack) jobs() *Jobs {
	c := s.Deployment.Cloud
	return &Jobs{s.rest, JobOptions{Docs: s.Ports.Docs, Clock: s.Ports.Clock, Log: s.Ports.Log, Max: c.Fleet.MaxMachines,
		Name: func(pool string) string {
			return "projects/" + c.Project + "/locations/" + c.Region + "/jobs/" + c.FleetName(pool)
		}}}
}

const (
	// unlistedFor is how long tasks that were asked for count, if no list shows them.
	unlistedFor = 2 * time.Minute
	// startWithin is how long an execution may wait for its first task to start.
	startWithin = 15 * time.Minute
	// firstPause and maxPause bound the pause after a failure, which doubles each time.
	firstPause = time.Minute
	maxPause   = 15 * time.Minute
	// maxReason bounds a reason in fleet/<pool>.
	maxReason = 400
)

// jobState is the document jobs/<pool>. Only functions write it.
type jobState struct {
	Schema int `json:"schema"`
	// Started are the executions that were asked for and that no list has shown yet.
	Started []startedTasks `json:"started,omitempty"`
	// Failures counts the failures since a task last ran, and PausedUntil is the end of the
	// pause after the last one.
	Failures    int       `json:"failures,omitempty"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	// RaisedAt is when tasks were last asked for; zero if none is there any more.
	RaisedAt time.Time `json:"raised_at,omitzero"`
	// JudgedUntil is the end of the newest execution that was judged.
	JudgedUntil time.Time `json:"judged_until,omitzero"`
}

// startedTasks are tasks that were asked for. Execution is "" until the answer came.
type startedTasks struct {
	Tasks     int       `json:"tasks"`
	At        time.Time `json:"at"`
	Execution string    `json:"execution,omitempty"`
}

func jobKey(pool string) string { return "jobs/" + pool }

// ScaleUp runs the tasks that are missing; see capacity.Fleet. During the pause after a
// failure, and if another call starts tasks at the same moment, it starts none.
func (j *Jobs) ScaleUp(ctx context.Context, pool string, machines int) error {
	var state jobState
	rev, _, err := host.Load(ctx, j.options.Docs, jobKey(pool), &state)
	if err != nil {
		return err
	}
	now := j.options.Clock.Now().UTC()
	of := job{j.client, j.options.Name(pool)}
	listed, err := of.executions(ctx, now)
	if fault.Is(err, fault.NotFound) {
		return &fault.Error{Kind: fault.NotFound, Err: err,
			Remedy: "deploy the stack, or start workers of the pool " + pool + " yourself"}
	}
	if err != nil {
		return err
	}
	state.forget(listed, now)
	if now.Before(state.PausedUntil) {
		return j.tell(ctx, pool, state.present(listed), listed)
	}
	waiting, reason, err := cancelStuck(ctx, of, listed, now)
	if err != nil {
		return err
	}
	if reason == "" {
		reason = state.judge(listed, now)
	}
	there := state.present(waiting)
	if reason != "" {
		return errors.Join(j.pause(ctx, pool, state, rev, reason, now), j.tell(ctx, pool, there, waiting))
	}
	missing := min(machines, j.options.Max) - there
	if missing <= 0 {
		return j.tell(ctx, pool, there, waiting)
	}
	state.Schema, state.RaisedAt = record.Schema, now
	state.Started = append(state.Started, startedTasks{Tasks: missing, At: now})
	rev, err = host.Save(ctx, j.options.Docs, jobKey(pool), state, rev)
	if fault.Is(err, fault.Conflict) { // another call was first
		return nil
	}
	if err != nil {
		return err
	}
	name, err := of.run(ctx, missing)
	intent := &state.Started[len(state.Started)-1]
	switch {
	case err == nil:
		j.options.Log.InfoContext(ctx, "tasks of a job were started", observe.KeyPool, pool, "tasks", missing,
			"execution", path.Base(name))
		return errors.Join(j.named(ctx, pool, *intent, name), j.tell(ctx, pool, there+missing, waiting))
	case !refused(err):
		return err // the tasks may have started: they count until a list shows them
	}
	state.Started = state.Started[:len(state.Started)-1]
	return errors.Join(j.pause(ctx, pool, state, rev, refusal(err), now), j.tell(ctx, pool, there, waiting))
}

// named notes which execution became of tasks that were asked for. Until then they count,
// and the execution, too, once a list shows it. Another call may have saved meanwhile.
func (j *Jobs) named(ctx context.Context, pool string, intent startedTasks, execution string) error {
	_, err := host.Update(ctx, j.options.Docs, jobKey(pool), func(s jobState, _ bool) (jobState, bool, error) {
		at := slices.IndexFunc(s.Started, func(t startedTasks) bool {
			return t.Execution == "" && t.Tasks == intent.Tasks && t.At.Equal(intent.At)
		})
		if at < 0 {
			return s, false, nil
		}
		s.Started[at].Execution = execution
		return s, true, nil
	})
	return err
}

// tell notes, for people, how many tasks the pool shall have, and how many of them run.
func (j *Jobs) tell(ctx context.Context, pool string, tasks int, listed []execution) error {
	running := 0
	for _, e := range listed {
		if e.Completed.IsZero() {
			running += e.Running
		}
	}
	return noteSize(ctx, j.options.Docs, pool, j.options.Clock.Now(), tasks, running)
}

// Withdraw cancels the executions of the pool none of whose tasks has started; see
// capacity.Withdrawer. While a pool has no tasks it reads one document.
func (j *Jobs) Withdraw(ctx context.Context, pool string) error {
	var state jobState
	rev, _, err := host.Load(ctx, j.options.Docs, jobKey(pool), &state)
	if err != nil || state.RaisedAt.IsZero() {
		return err
	}
	now := j.options.Clock.Now().UTC()
	of := job{j.client, j.options.Name(pool)}
	listed, err := of.executions(ctx, now)
	if err != nil {
		return err
	}
	state.forget(listed, now)
	for i, e := range listed {
		if e.present() == 0 || e.started() {
			continue
		}
		if err := of.cancel(ctx, e.Name); err != nil && !refused(err) { // it has ended since
			return err
		}
		listed[i].Completed = now
	}
	there := state.present(listed)
	if err := j.tell(ctx, pool, there, listed); err != nil || there > 0 {
		return err
	}
	state.RaisedAt = time.Time{}
	_, err = host.Save(ctx, j.options.Docs, jobKey(pool), state, rev)
	return ignoreConflict(err)
}

// refused reports whether the service refused a request. Otherwise it may have performed
// it.
func refused(err error) bool {
	status := statusOf(err)
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout
}

// refusal returns the service's words for a refusal, with a remedy if there is one.
func refusal(err error) string {
	var answer *googleapi.Error
	if !errors.As(err, &answer) || answer.Message == "" {
		return err.Error()
	}
	if remedy := fault.RemedyOf(err); remedy != "" {
		return answer.Message + " (" + remedy + ")"
	}
	return answer.Message
}

// pause saves the state with a longer pause than the last one, tells people the reason,
// and returns it as an error.
func (j *Jobs) pause(ctx context.Context, pool string, s jobState, rev document.Revision, reason string,
	now time.Time) error {
	s.Schema = record.Schema
	s.Failures++
	s.PausedUntil = now.Add(min(firstPause<<min(s.Failures-1, 8), maxPause))
	if _, err := host.Save(ctx, j.options.Docs, jobKey(pool), s, rev); ignoreConflict(err) != nil {
		return err
	}
	reason = text.Truncate(reason, maxReason, "…")
	if err := noteAbsence(ctx, j.options.Docs, pool, now, scaling.Unknown, reason); err != nil {
		return err
	}
	return fault.New(fault.Unavailable, "no task of the pool %s can start, and the next try is in %s: %s", pool,
		s.PausedUntil.Sub(now), reason)
}

// ignoreConflict returns nil for a Conflict: another call has written the document since,
// from a newer state.
func ignoreConflict(err error) error {
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// cancelStuck cancels executions none of whose tasks started in time, so that they do not
// start, and are paid for, when nothing waits any more. It returns the other executions,
// and why the tasks did not start, or "" if there is no such execution.
func cancelStuck(ctx context.Context, of job, listed []execution, now time.Time) (
	others []execution, reason string, err error) {
	for _, e := range listed {
		if e.present() == 0 || e.started() || now.Sub(e.Created) <= startWithin {
			others = append(others, e)
			continue
		}
		err := of.cancel(ctx, e.Name)
		if err != nil && !refused(err) { // it has ended since
			return nil, "", err
		}
		reason = fmt.Sprintf("no task of the execution %s started within %d minutes: %s", path.Base(e.Name),
			int(startWithin.Minutes()), cmp.Or(e.message(), "Cloud Run does not say why"))
	}
	return others, reason, nil
}

// forget removes the started tasks that the list shows, or that no list will show.
func (s *jobState) forget(listed []execution, now time.Time) {
	s.Started = slices.DeleteFunc(s.Started, func(t startedTasks) bool {
		shown := t.Execution != "" && slices.ContainsFunc(listed, func(e execution) bool { return e.Name == t.Execution })
		return shown || now.Sub(t.At) > unlistedFor
	})
}

// present returns how many tasks run or wait.
func (s *jobState) present(listed []execution) (n int) {
	for _, e := range listed {
		n += e.present()
	}
	for _, t := range s.Started {
		n += t.Tasks
	}
	return n
}

// judge returns why no task of the newest execution worked, or "" if one did. It judges
// executions that have ended since the last judgement, and those that work, which end the
// row of failures. Executions that people cancelled do not count.
func (s *jobState) judge(listed []execution, now time.Time) (reason string) {
	judged := s.JudgedUntil
	if judged.IsZero() {
		judged = now.Add(-startWithin) // earlier failures are old news
	}
	var newest time.Time
	for _, e := range listed {
		ended, why := e.Completed, ""
		switch {
		case e.present() > 0 && e.Running > 0:
			ended = now
		case e.present() > 0, !ended.After(judged):
			continue
		case e.Failed > 0 && e.Succeeded == 0:
			why = fmt.Sprintf("the tasks of the execution %s failed: %s", path.Base(e.Name),
				cmp.Or(e.message(), "look at the log of the job"))
		case e.Succeeded == 0:
			continue
		}
		if ended.After(newest) {
			newest, reason = ended, why
		}
		if e.Completed.After(s.JudgedUntil) {
			s.JudgedUntil = e.Completed
		}
	}
	if !newest.IsZero() && reason == "" {
		s.Failures = 0
	}
	return reason
}
