package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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

// Options are a training as a command line names it.
type Options struct {
	File    string // the config's path
	Config  config.Train
	Resume  string // Latest, an id or the beginning of one; "" starts anew
	Threads int
}

// Latest is the Resume of whoever does not know an id: the newest snapshot of
// the output folder's run, or the beginning if there is none.
const Latest = "latest"

// The files of an output folder, and of the hidden folder in it.
const (
	runIDFile   = "run-id"
	curveFile   = "loss.svg"
	hidden      = ".rollout"
	scratchName = "scratch"
)

// CheckKind refuses a config of another kind than the command's.
func (o Options) CheckKind(kind string) error {
	if got := o.Config.Algorithm.Kind; got != kind {
		return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s: algorithm.kind is %q", o.File, got), Remedy: "start it with `rollout train " + got + "`"}
	}
	return nil
}

// DryRun checks all that a training would begin with: every row, and the
// settings against the base model if that comes with rollout. It returns a
// line that says so, and writes nothing.
func (o Options) DryRun(ctx context.Context) (line string, err error) {
	a := o.Config.Algorithm
	s := a.Common()
	rows, done, err := o.dataset(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	if s.BaseModel.URI == config.ModelTiny {
		if _, err := (snapshots.Manager{LoadTiny: weights.Shipped}).Begin(ctx, training.Options{Algorithm: a, Dataset: rows, Threads: 1}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("dry-run OK: algorithm=%s model=%s minibatch=%d dataset=%s", a.Kind, s.BaseModel.URI, s.Minibatch, s.Dataset.Path), nil
}

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

// Session is an open training: this process alone has its output folder.
type Session struct {
	Trainer *training.Trainer
	Output  string // folder
	Resumed string // id of the snapshot that it went on from; "" if it begins
	keeper  snapshots.Manager
	every   int
	close   []func() error
}

// Open opens the state and begins the training, or goes on with it. Close it.
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
	scratch := filepath.Join(own, scratchName) // a killed process may have left files there
	if err := os.RemoveAll(scratch); err != nil {
		return nil, fault.WithKind(fault.Denied, err, "clean up")
	}
	lo.Create, lo.Source = true, "train"
	state, closeState, err := installation.OpenLocal(ctx, o.Config.StateDir(o.File), lo)
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, closeState)
	s.keeper = snapshots.Manager{Store: snapshot.Store{Blobs: state.Ports.Blobs, Docs: state.Ports.Docs, Clock: state.Ports.Clock},
		KeepLast: o.Config.Snapshot.KeepLast, Scratch: scratch, LoadTiny: weights.Shipped}
	err = s.begin(ctx, o, training.Options{Algorithm: o.Config.Algorithm, Dataset: rows, Threads: o.Threads})
	return s, err
}

// begin makes the trainer.
func (s *Session) begin(ctx context.Context, o Options, to training.Options) (err error) {
	snap, found, err := s.resumed(ctx, o.Resume)
	if err != nil {
		return err
	}
	if !found {
		if s.Trainer, err = s.keeper.Begin(ctx, to); err != nil {
			return err
		}
		if o.Resume != Latest || s.keeper.Run == "" {
			s.keeper.Run = identity.RunID(ulid.Make().String())
		}
		return s.writeRunID()
	}
	s.Resumed, s.keeper.Run = snap.ID, snap.Run
	if s.Trainer, err = s.keeper.Resume(ctx, to, snap); err != nil {
		return err
	}
	return s.writeRunID()
}

// resumed returns the snapshot to go on from, if there is one. It sets the run
// of the output folder, if it is to be gone on with.
func (s *Session) resumed(ctx context.Context, resume string) (snap snapshot.Snapshot, found bool, err error) {
	switch resume {
	case "":
		return snap, false, nil
	case Latest:
		if s.keeper.Run, err = s.readRunID(); err != nil || s.keeper.Run == "" {
			return snap, false, err
		}
		return s.keeper.Latest(ctx)
	}
	snap, err = s.keeper.Store.Find(ctx, resume)
	if fault.Is(err, fault.NotFound) {
		err = &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "`rollout snapshot list` shows which there are; --resume latest takes the newest of this training"}
	}
	return snap, err == nil, err
}

// readRunID returns the run that the output folder is of; "" if it is new.
func (s *Session) readRunID() (identity.RunID, error) {
	path := filepath.Join(s.Output, runIDFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.WithKind(fault.Invalid, err, "read the run's id")
	}
	id := identity.RunID(strings.TrimSpace(string(b)))
	if !id.Valid() {
		return "", &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s holds no run id", path), Remedy: "remove it to start anew, or name a snapshot with --resume"}
	}
	return id, nil
}

func (s *Session) writeRunID() error {
	return write(filepath.Join(s.Output, runIDFile), []byte(string(s.keeper.Run)+"\n"))
}

// RunID is the run that the training's snapshots are of.
func (s *Session) RunID() identity.RunID { return s.keeper.Run }

// Result is how a training ended.
type Result struct {
	Run        identity.RunID       `json:"run"`
	Snapshot   string               `json:"snapshot"` // the id of the state that was kept last
	Done       bool                 `json:"done"`     // all steps are taken
	Step       int                  `json:"step"`
	Steps      int                  `json:"steps"`
	Evaluation *training.Evaluation `json:"evaluation,omitempty"` // if it is done
	Curve      string               `json:"curve"`                // a file
}

// Run trains to the end, or to the border of steps after stop is closed, and
// keeps the state.
func (s *Session) Run(ctx context.Context, stop <-chan struct{}, progress func(training.Report)) (r Result, err error) {
	r.Done, err = s.Trainer.Run(ctx, s.every, training.Hooks{Progress: progress, Stop: stop,
		Save: func(ctx context.Context, t *training.Trainer) error {
			snap, err := s.keeper.Save(ctx, t)
			r.Snapshot = snap.ID
			return err
		}})
	if err != nil {
		return r, err
	}
	r.Run, r.Curve = s.keeper.Run, filepath.Join(s.Output, curveFile)
	r.Step, r.Steps = s.Trainer.Steps()
	title := fmt.Sprintf("%s: %d of %d steps", s.Trainer.Algorithm(), r.Step, r.Steps)
	if err := write(r.Curve, s.Trainer.Curve().SVG(title)); err != nil {
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

// Close lets go of everything.
func (s *Session) Close() error {
	var errs []error
	for i := range s.close {
		errs = append(errs, s.close[len(s.close)-1-i]())
	}
	s.close = nil
	return errors.Join(errs...)
}

// write writes a file so that it is there whole or not at all.
func write(path string, b []byte) error {
	return outfile.Write(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
