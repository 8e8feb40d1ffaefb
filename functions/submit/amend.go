package submit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// settableInAmendment is the only table whose keys an amendment may set: trials that are asked in
// other ways than those that there are would be no replications.
var settableInAmendment = []string{"limits"}

// AmendRun returns the manifest of a child with that id, which adds what a says to the trials of
// an ended run. blobs has the tasks of the child, if it adds any. Conflict is about the run,
// Invalid about what is added, and NotFound about files of the run that are gone. The manifest
// says also then what was asked for.
func AmendRun(ctx context.Context, p host.Ports, kinds kind.Table, parent record.Manifest, child identity.RunID,
	a events.Amend, set []string) (m record.Manifest, err error) {
	m = parent
	m.Run = child
	m.Parent = &record.Parent{Run: parent.Run, Set: set, Amend: &record.Amendment{Replications: a.Replications,
		Tasks: a.Tasks}}
	k, err := amendable(ctx, p, kinds, parent)
	if err != nil {
		return m, err
	}
	var variants []config.Variant
	if a.Variants != "" {
		if err := json.Unmarshal([]byte(a.Variants), &variants); err != nil {
			return m, fault.WithKind(fault.Invalid, err, "read the variants")
		}
	}
	if a.Replications == 0 && len(variants) == 0 && a.Tasks == "" {
		return m, &fault.Error{Kind: fault.Invalid, Err: errors.New("the amendment adds nothing"),
			Remedy: "name more replications, further variants or a file of further tasks"}
	}
	for _, v := range variants {
		m.Parent.Amend.Variants = append(m.Parent.Amend.Variants, v.Name)
	}
	if m.Config, err = k.AmendConfig(parent.Config, a.Replications, variants); err != nil {
		return m, err
	}
	with := parent
	with.Config = m.Config
	if m.Config, _, err = withSettings(with, set, settableInAmendment, "an amendment"); err != nil {
		return m, err
	}
	return m, addStage(ctx, p, parent, &m)
}

// amendable returns the kind of a run, or why it can't be amended.
func amendable(ctx context.Context, p host.Ports, kinds kind.Table, parent record.Manifest) (k kind.Kind, err error) {
	if parent.Refused != "" {
		return k, refusedBefore(parent)
	}
	if k, err = kinds.Of(parent.Kind); err != nil {
		return k, err
	}
	if k.Amend == nil || hasUnseenRoles(parent) {
		return k, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s can't be amended: it is a %s", parent.Run,
			parent.Kind), Remedy: "amend a run of trials without judges, or submit what is missing as a run of its own"}
	}
	if len(parent.Stages) > record.MaxAmendments {
		return k, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("run %s was amended %d times, one after the other",
			parent.Run, record.MaxAmendments), Remedy: "submit all trials as a run of their own"}
	}
	if _, err := endedState(ctx, p, parent.Run); err != nil {
		return k, err
	}
	return k, checkFiles(ctx, p, parent.Run)
}

// addStage adds the files of tasks and the stage of an amended run to its manifest.
func addStage(ctx context.Context, p host.Ports, parent record.Manifest, m *record.Manifest) error {
	var plan record.Plan
	if _, _, err := host.Load(ctx, p.Docs, record.PlanKey(parent.Run), &plan); err != nil {
		return err
	}
	last := record.TrialStage{Variants: len(parent.Config.Variants), Replications: parent.Config.DesignOf().Replications}
	m.Stages = slices.Clone(parent.Stages)
	if n := len(m.Stages); n > 0 {
		last = m.Stages[n-1]
	} else {
		last.Tasks = int(plan.Items) / (last.Variants * last.Replications)
		m.Stages = []record.TrialStage{last}
	}
	if uint64(last.Trials()) != plan.Items {
		return fault.New(fault.Corrupt, "the plan of run %s has %d trials, and its design %d", parent.Run, plan.Items,
			last.Trials())
	}
	next := record.TrialStage{Tasks: last.Tasks, Variants: len(m.Config.Variants),
		Replications: m.Config.DesignOf().Replications}
	var err error
	if name := m.Parent.Amend.Tasks; name != "" {
		if next.Tasks, err = addTasks(ctx, p, parent, plan, m, name); err != nil {
			return err
		}
		if next.Tasks == last.Tasks {
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the run has all tasks of %s already", name),
				Remedy: "name a file with further tasks"}
		}
	}
	if n := next.Trials(); n > config.MaxTrials {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the amended run would have %d trials, at most %d are "+
			"allowed", n, config.MaxTrials), Remedy: "add fewer replications, variants or tasks"}
	}
	m.Stages = append(m.Stages, next)
	return nil
}

// addTasks adds the child's file of tasks, and returns how many tasks there are then.
func addTasks(ctx context.Context, p host.Ports, parent record.Manifest, plan record.Plan, m *record.Manifest,
	name string) (int, error) {
	key := record.MoreTasksKey(m.Run)
	info, err := p.Blobs.Stat(ctx, key, "")
	if err != nil {
		return 0, err
	}
	more := record.Input{Key: key, Version: info.Version, Size: info.Size, Name: name}
	m.Tasks = append(slices.Clone(parent.Tasks), more)
	with := parent
	with.Tasks = m.Tasks
	files, err := input.NewInputs(p.Blobs).Tasks(ctx, with, plan)
	if err != nil {
		return 0, err
	}
	n, err := trials.Amended{Blobs: p.Blobs, Manifest: *m, Tasks: files}.CountTasks(ctx)
	return n, fault.Wrap(err, "read the tasks of %s", name)
}

// refusedBefore is the error of a child of a run that was refused.
func refusedBefore(parent record.Manifest) error {
	return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s was refused: %s", parent.Run, parent.Refused),
		Remedy: "submit its input again"}
}

// endedState returns the state of a run, or Conflict if it has not ended.
func endedState(ctx context.Context, p host.Ports, id identity.RunID) (run.State, error) {
	s := run.New(id)
	_, _, err := host.Load(ctx, p.Docs, record.CoordinatorKey(id), &s)
	if err == nil && !s.Phase.Ended() {
		err = &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("run %s has not ended", id), Remedy: notEnded(s.Phase)}
	}
	return s, err
}
