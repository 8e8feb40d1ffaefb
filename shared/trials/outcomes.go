package trials

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// outcome is a trial with its final row: an output row, or an error row.
type outcome struct {
	trial Trial
	line  []byte
	class fault.Class // why it failed; "" if it is answered
	row   []byte
}

// outcomes yields the outcomes of all trials of a run whose output files are written, in their
// order. Items is how many trials have a row: a plan that was growing when its run ended may have
// more lines.
func outcomes(ctx context.Context, e Ended) iter.Seq2[outcome, error] {
	return func(yield func(outcome, error) bool) {
		f := files{run: e.Manifest.Run, config: e.Manifest.Config}
		defer f.close()
		if err := f.open(ctx, e); err != nil {
			yield(outcome{}, err)
			return
		}
		for n := range e.Items {
			o, err := f.next(n)
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// files are a run's trials and its two output files, read side by side.
type files struct {
	run                identity.RunID
	config             config.Run
	opened             []io.Closer
	trials, rows, errs *bufio.Reader
	failed             []byte // the next error row; nil at the end
	failure            dialect.Failure
}

const bufferSize = 64 << 10

func (f *files) open(ctx context.Context, e Ended) error {
	if e.Items == 0 { // the run may have ended before it had a plan
		return nil
	}
	var lines []io.Reader
	for _, key := range e.Trials {
		r, err := f.get(ctx, e.Blobs, key)
		if err != nil {
			return err
		}
		lines = append(lines, r)
	}
	f.trials = bufio.NewReaderSize(io.MultiReader(lines...), bufferSize)
	for name, to := range map[string]**bufio.Reader{record.CompletionsFile: &f.rows, record.ErrorsFile: &f.errs} {
		r, err := f.get(ctx, e.Blobs, record.OutputKey(f.run, name))
		if err != nil {
			return err
		}
		*to = bufio.NewReaderSize(r, bufferSize)
	}
	return f.nextFailure()
}

func (f *files) get(ctx context.Context, blobs blob.Store, key string) (io.Reader, error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	f.opened = append(f.opened, r)
	return r, nil
}

func (f *files) close() {
	for _, r := range f.opened {
		_ = r.Close() // it was only read
	}
}

// nextFailure reads the next error row.
func (f *files) nextFailure() (err error) {
	if f.failed, err = readLine(f.errs); errors.Is(err, io.EOF) {
		f.failed = nil
		return nil
	}
	if err != nil {
		return err
	}
	var ok bool
	if f.failure, ok = dialect.ReadFailure(dialect.Plain, f.failed); !ok {
		return fault.New(fault.Corrupt, "a row of %s of run %s is not an error row", record.ErrorsFile, f.run)
	}
	return nil
}

// next reads the trial with that schedule index.
func (f *files) next(index uint64) (o outcome, err error) {
	if o.line, err = readLine(f.trials); err == nil {
		o.trial, err = TrialOf(f.config, o.line)
	}
	if errors.Is(err, io.EOF) || err == nil && o.trial.Index != index {
		err = fault.New(fault.Corrupt, "the plan of run %s has no trial %d", f.run, index)
	}
	if err != nil {
		return o, err
	}
	if f.failed != nil && f.failure.Place.Item == index {
		o.class, o.row = f.failure.Class, f.failed
		return o, f.nextFailure()
	}
	if o.row, err = readLine(f.rows); errors.Is(err, io.EOF) {
		err = fault.New(fault.Corrupt, "trial %d of run %s has no row", index, f.run)
	}
	return o, err
}

// readLine returns the next line, without its line feed. io.EOF is the end.
func readLine(r *bufio.Reader) ([]byte, error) {
	b, err := r.ReadBytes('\n')
	if errors.Is(err, io.EOF) && len(b) > 0 {
		return nil, fault.New(fault.Corrupt, "a file ends in a line of %d bytes without a line feed", len(b))
	}
	if err != nil {
		return nil, err
	}
	return b[:len(b)-1], nil
}
