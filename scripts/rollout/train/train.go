package train

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training"
	"rollout/gpuworker/training/dataset"
	"rollout/gpuworker/training/snapshots"
	"rollout/scripts/rollout/outfile"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/snapshot"
)

// Options are the arguments of a training.
type Options struct {
	File    string // path of the config file
	Config  config.Train
	Resume  string // Latest, a snapshot id or a prefix of one; "" starts a new run
	Threads int
}

// Latest is the value of Options.Resume that resumes from the newest snapshot of the
// output folder's run. If the run has no snapshot, the training starts at step 0.
const Latest = "latest"

// The files of an output folder, and of the hidden folder in it.
const (
	curveFile   = "loss.svg"
	hidden      = ".rollout"
	scratchName = "scratch"
)

// CheckKind returns an Invalid fault if the config's kind is not kind, the command's.
func (o Options) CheckKind(kind string) error {
	if got := o.Config.Algorithm.Kind; got != kind {
		return &fault.Error{
			Kind: fault.Invalid, Err: fmt.Errorf("%s: algorithm.kind is %q", o.File, got),
			Remedy: "start it with `rollout train " + got + "`",
		}
	}
	return nil
}

// DryRun checks every row of the dataset. If the base model is the built-in one, it
// also checks the settings against the model. It returns a line that describes the
// training, and writes nothing.
func (o Options) DryRun(ctx context.Context) (line string, err error) {
	if _, err := o.Check(ctx); err != nil {
		return "", err
	}
	a := o.Config.Algorithm
	s := a.Common()
	return fmt.Sprintf("dry-run OK: algorithm=%s model=%s minibatch=%d dataset=%s",
		a.Kind, s.BaseModel.URI, s.Minibatch, s.Dataset.Path), nil
}

// Check is what DryRun checks. It returns the number of rows.
func (o Options) Check(ctx context.Context) (count uint64, err error) {
	a := o.Config.Algorithm
	rows, done, err := o.dataset(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if a.Common().BaseModel.URI == config.ModelTiny {
		m := snapshots.Manager{LoadTiny: weights.Shipped}
		if _, err := m.Begin(ctx, training.Options{Algorithm: a, Dataset: rows, Threads: 1}); err != nil {
			return 0, err
		}
	}
	return rows.Rows(), nil
}

// dataset opens the dataset and checks its rows. The caller calls the returned
// function to close it.
func (o Options) dataset(ctx context.Context) (*dataset.Index, func() error, error) {
	file, err := dataset.OpenFile(o.Config.Algorithm.Common().Dataset.Path)
	if err != nil {
		return nil, nil, err
	}
	rows, err := training.OpenDataset(ctx, o.Config.Algorithm.Kind, file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return rows, file.Close, nil
}

// Session is an open training. It holds a lock on its output folder, so that no other
// process uses the folder.
type Session struct {
	Trainer   *training.Trainer
	Output    string // output folder
	Resumed   string // id of the snapshot that the training resumed from; "" if it is new
	snapshots snapshots.Manager
	every     int // steps between two snapshots
	close     []func() error
}

// Open opens the local installation and starts or resumes the training. The caller
// closes the Session.
func Open(ctx context.Context, o Options, lo installation.LocalOptions) (_ *Session, err error) {
	s := &Session{Output: o.Config.OutputDir(o.File), every: o.Config.Snapshot.Every}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	rows, done, err := o.dataset(ctx)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, done)
	own := filepath.Join(s.Output, hidden)
	release, err := installation.AcquireLock(own)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, release)
	scratch := filepath.Join(own, scratchName) // may contain files of a killed process
	if err := os.RemoveAll(scratch); err != nil {
		return nil, fault.WithKind(fault.Denied, err, "remove old scratch files")
	}
	lo.Create, lo.Source = true, "train"
	state, closeState, err := installation.OpenLocal(ctx, o.Config.StateDir(o.File), lo)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, closeState)
	s.snapshots = snapshots.Manager{
		Store:    snapshot.Store{Blobs: state.Ports.Blobs, Docs: state.Ports.Docs, Clock: state.Ports.Clock},
		KeepLast: o.Config.Snapshot.KeepLast, Scratch: scratch, LoadTiny: weights.Shipped,
	}
	err = s.begin(ctx, o, training.Options{Algorithm: o.Config.Algorithm, Dataset: rows, Threads: o.Threads})
	return s, err
}

// begin creates the trainer, and writes the run's id to the output folder.
func (s *Session) begin(ctx context.Context, o Options, to training.Options) (err error) {
	snap, found, err := s.findSnapshot(ctx, o.Resume)
	if err != nil {
		return err
	}
	if !found {
		if s.Trainer, err = s.snapshots.Begin(ctx, to); err != nil {
			return err
		}
		if o.Resume != Latest || s.snapshots.Run == "" {
			s.snapshots.Run = identity.RunID(ulid.Make().String())
		}
		return outfile.WriteRunID(s.Output, s.snapshots.Run)
	}
	s.Resumed, s.snapshots.Run = snap.ID, snap.Run
	if s.Trainer, err = s.snapshots.Resume(ctx, to, snap); err != nil {
		return err
	}
	return outfile.WriteRunID(s.Output, s.snapshots.Run)
}

// findSnapshot returns the snapshot to resume from; found is false if the training
// starts at step 0. With Latest, it also sets the run to the output folder's.
func (s *Session) findSnapshot(ctx context.Context, resume string) (snap snapshot.Snapshot, found bool, err error) {
	switch resume {
	case "":
		return snap, false, nil
	case Latest:
		if s.snapshots.Run, err = outfile.ReadRunID(s.Output); err != nil || s.snapshots.Run == "" {
			return snap, false, err
		}
		return s.snapshots.Latest(ctx)
	}
	snap, err = s.snapshots.Store.Find(ctx, resume)
	if fault.Is(err, fault.NotFound) {
		err = &fault.Error{
			Kind: fault.Invalid, Err: err,
			Remedy: "choose one that `rollout snapshot list` shows, or use --resume latest for this training's newest",
		}
	}
	return snap, err == nil, err
}

// RunID returns the run of the training's snapshots.
func (s *Session) RunID() identity.RunID { return s.snapshots.Run }

// Result is the result of Run.
type Result struct {
	Run        identity.RunID       `json:"run"`
	Snapshot   string               `json:"snapshot"`             // id of the last snapshot
	Done       bool                 `json:"done"`                 // all steps have been taken
	Step       int                  `json:"step"`                 // steps taken
	Steps      int                  `json:"steps"`                // total number of steps
	Evaluation *training.Evaluation `json:"evaluation,omitempty"` // only if Done
	Curve      string               `json:"curve"`                // path of the loss curve's file
}

// Run trains until all steps are taken, or until the end of the current step after
// stop is closed. It saves snapshots and writes the loss curve. progress is called
// after each step.
func (s *Session) Run(ctx context.Context, stop <-chan struct{}, progress func(training.Report)) (r Result, err error) {
	save := func(ctx context.Context, t *training.Trainer) error {
		snap, err := s.snapshots.Save(ctx, t)
		r.Snapshot = snap.ID
		return err
	}
	r.Done, err = s.Trainer.Run(ctx, s.every, training.Hooks{Progress: progress, Stop: stop, Save: save})
	if err != nil {
		return r, err
	}
	r.Run, r.Curve = s.snapshots.Run, filepath.Join(s.Output, curveFile)
	r.Step, r.Steps = s.Trainer.Steps()
	title := fmt.Sprintf("%s: step %d of %d", s.Trainer.Algorithm(), r.Step, r.Steps)
	if err := outfile.WriteBytes(r.Curve, s.Trainer.Curve().SVG(title)); err != nil {
		return r, err
	}
	if r.Done {
		e, err := s.Trainer.Evaluate(ctx)
		if err != nil {
			return r, err
		}
		r.Evaluation = &e
	}
	return r, nil
}

// Close closes the dataset and the installation and releases the output folder.
func (s *Session) Close() error {
	var errs []error
	for i := range s.close {
		errs = append(errs, s.close[len(s.close)-1-i]())
	}
	s.close = nil
	return errors.Join(errs...)
}
