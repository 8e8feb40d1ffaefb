package rollout

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Stages yields the stages of a run, in their order: those that asked something and, of a
// complete run, the one of Ending.
func Stages(ctx context.Context, blobs blob.Store, m record.Manifest) iter.Seq2[Stage, error] {
	return func(yield func(Stage, error) bool) {
		for number := len(m.Inputs); ; number++ {
			s, err := ReadStage(ctx, blobs, m.Run, number)
			if fault.Is(err, fault.NotFound) {
				return
			}
			if !yield(s, err) || err != nil {
				return
			}
		}
	}
}

// lastStage returns the number of the last stage that counts in the files of an ended run.
// A plan that was growing when its run ended may save a stage later: the first call
// decides, and writes the number down.
func lastStage(ctx context.Context, blobs blob.Store, m record.Manifest) (int, error) {
	at := key(m.Run, "end.json")
	var end struct {
		Schema int `json:"schema"`
		Last   int `json:"last"`
	}
	err := input.ReadJSON(ctx, blobs, at, &end)
	if !fault.Is(err, fault.NotFound) {
		return end.Last, err
	}
	end.Schema, end.Last = record.Schema, len(m.Inputs)-1
	for {
		_, err := blobs.Stat(ctx, stageKey(m.Run, end.Last+1), "")
		if fault.Is(err, fault.NotFound) {
			break
		}
		if err != nil {
			return 0, err
		}
		end.Last++
	}
	if err := create(ctx, blobs, at, encode(end)); err != nil {
		return 0, err
	}
	err = input.ReadJSON(ctx, blobs, at, &end) // of the first call
	return end.Last, err
}

// Outcomes yields the outcomes of all members of a run whose output files are written, in
// their order: the lines of its batches, each with its row in completions.jsonl or
// errors.jsonl. items is how many answers the run has. Those of a stage that was asked anew
// are Superseded, if the plan got as far as the stage that takes its place.
func Outcomes(ctx context.Context, blobs blob.Store, m record.Manifest, items uint64) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		f := outputs{run: m.Run, items: items}
		defer f.close()
		if err := f.open(ctx, blobs); err != nil {
			yield(Outcome{}, err)
			return
		}
		next, stop := iter.Pull2(Stages(ctx, blobs, m))
		defer stop()
		s, err, more := next()
		for more {
			behind, nextErr, another := next()
			more = f.answers < items
			switch {
			case err != nil || !more:
			case s.Kind == Answering:
				f.superseded = behind.Restarts > 0 && items > f.answers+uint64(s.Items)
				more, err = f.batch(ctx, blobs, record.AppendedKey(m.Run, s.Input), yield)
			default:
				f.item += uint64(s.Items)
			}
			if err != nil {
				yield(Outcome{}, err)
			}
			if err != nil || !more {
				return
			}
			s, err, more = behind, nextErr, another
		}
		if f.answers < items {
			yield(Outcome{}, fault.New(fault.Corrupt, "run %s has %d answers, and its stages ask for %d", m.Run, items,
				f.answers))
		}
	}
}

// outputs are the two output files of a run, read side by side.
type outputs struct {
	run     identity.RunID
	rows    *bufio.Reader
	errs    *bufio.Reader
	opened  []io.Closer
	items   uint64 // answers of the run
	answers uint64 // that were read
	item    uint64 // the next one, of all that the run asks
	failed  []byte // the next error row; nil at the end
	failure dialect.Failure
	// superseded says that the stage was asked anew.
	superseded bool
}

func (f *outputs) open(ctx context.Context, blobs blob.Store) error {
	for _, o := range []struct {
		file string
		to   **bufio.Reader
	}{{record.CompletionsFile, &f.rows}, {record.ErrorsFile, &f.errs}} {
		r, _, err := blobs.Get(ctx, record.OutputKey(f.run, o.file), blob.GetOptions{})
		if err != nil {
			return err
		}
		f.opened = append(f.opened, r)
		*o.to = bufio.NewReaderSize(r, bufferSize)
	}
	return f.nextFailure()
}

func (f *outputs) close() {
	for _, r := range f.opened {
		_ = r.Close() // it was only read
	}
}

// nextFailure reads the next error row.
func (f *outputs) nextFailure() (err error) {
	f.failed, err = readLine(f.errs)
	if errors.Is(err, io.EOF) {
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

// batch yields the outcomes of an appended object. more is false if the caller wants no
// further one.
func (f *outputs) batch(ctx context.Context, blobs blob.Store, key string,
	yield func(Outcome, error) bool) (more bool, err error) {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return true, fault.Wrap(err, "read the batch %s", key)
	}
	defer r.Close()
	lines := bufio.NewReaderSize(r, bufferSize)
	for f.answers < f.items {
		o := Outcome{Superseded: f.superseded}
		if o.Line, err = readLine(lines); errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		if f.failed != nil && f.failure.Place.Item == f.item {
			o.Class, o.Row = f.failure.Class, f.failed
			err = f.nextFailure()
		} else if o.Row, err = readLine(f.rows); errors.Is(err, io.EOF) {
			err = fault.New(fault.Corrupt, "item %d of run %s has no row", f.item, f.run)
		}
		if err != nil {
			return true, err
		}
		f.item++
		f.answers++
		if !yield(o, nil) {
			return false, nil
		}
	}
	return true, nil
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
