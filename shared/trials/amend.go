package trials

import (
	"context"
	"io"
	"iter"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/design"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Places yields the trials of a run with that many tasks in the order of their items: those of its
// schedule or, of a run that was amended, those of the schedules of its stages, each without the
// trials of the stages before it.
func Places(m record.Manifest, tasks int) iter.Seq[design.Place] {
	if len(m.Stages) == 0 {
		return DesignOf(m.Config, tasks).Schedule()
	}
	return func(yield func(design.Place) bool) {
		for n := range m.Stages {
			for p := range added(m.Config, m.Stages[:n+1]) {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// added yields the trials of the last stage that the stage before it has not, in the order of its
// schedule.
func added(c config.Run, stages []record.TrialStage) iter.Seq[design.Place] {
	var old record.TrialStage
	if len(stages) > 1 {
		old = stages[len(stages)-2]
	}
	d := stageOf(c, stages[len(stages)-1])
	return func(yield func(design.Place) bool) {
		for p := range d.Schedule() {
			isOld := p.Task < old.Tasks && p.Variant < old.Variants && p.Replication < old.Replications
			if !isOld && !yield(p) {
				return
			}
		}
	}
}

func stageOf(c config.Run, s record.TrialStage) design.Design {
	d := DesignOf(c, s.Tasks)
	d.Variants, d.Replications = s.Variants, s.Replications
	return d
}

// Amended is a run that adds trials to those of its parent: see record.Amendment.
type Amended struct {
	Blobs    blob.Store
	Manifest record.Manifest // of the child; its last stage is the child's own
	Tasks    []record.Ranges // the run's input and Manifest.Tasks, in their order
	First    uint64          // schedule index of the first trial that is added
}

// Amend writes the lines of the trials that the child adds, in the order of its schedule. Each is
// the line that Append writes for the whole run, but for its schedule index. Tasks of a later file
// that the run has already are passed over; one with other content is Invalid.
func Amend(ctx context.Context, a Amended, w io.Writer) error {
	b, err := a.book(ctx)
	if err != nil {
		return err
	}
	stages := a.Manifest.Stages
	if want := stages[len(stages)-1].Tasks; len(b.places) != want {
		return fault.New(fault.Corrupt, "its files have %d tasks, and %d when it was submitted", len(b.places), want)
	}
	return b.write(ctx, DesignOf(a.Manifest.Config, len(b.places)), added(a.Manifest.Config, stages), int(a.First), w)
}

// CountTasks returns how many tasks the files have. Its errors are those of Amend.
func (a Amended) CountTasks(ctx context.Context) (int, error) {
	b, err := a.book(ctx)
	if err != nil {
		return 0, err
	}
	return len(b.places), nil
}

// book reads the files of tasks.
func (a Amended) book(ctx context.Context) (*book, error) {
	b := newBook(a.Blobs, a.Manifest.Config, a.Tasks...)
	for n := range a.Tasks {
		if err := b.read(ctx, n); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Added returns how many trials the last stage of a run adds to the one before it.
func Added(stages []record.TrialStage) int {
	if len(stages) < 2 {
		return 0
	}
	return stages[len(stages)-1].Trials() - stages[len(stages)-2].Trials()
}
