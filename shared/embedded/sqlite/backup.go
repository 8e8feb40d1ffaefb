package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// completeCheck is the time limit of the check of a copy: long enough to check it
// to its end.
const completeCheck = 24 * time.Hour

// Backup writes a consistent snapshot of the state to a new file, while other
// processes read and write the state. If Backup returns nil, the file is complete,
// checked and durable; otherwise it does not exist. An existing file is Invalid, a
// damaged state Corrupt.
func (s *State) Backup(ctx context.Context, file string) (err error) {
	if err := s.damage.refusal(); err != nil {
		return err
	}
	if _, err := os.Lstat(file); err == nil { // fails early; CommitNew checks again without a race
		return fileExists(file)
	}
	f, err := createCopy(s.disk, file)
	if err != nil {
		return err
	}
	if err := s.copyTo(ctx, f.Name()); err != nil {
		return f.Discard(err)
	}
	if err := f.CommitNew(); errors.Is(err, fs.ErrExist) {
		return fileExists(file)
	} else if err != nil {
		return filesystem.Fault(err, "write the backup %s", file)
	}
	return nil
}

// copyTo writes the state to an empty file and checks it.
func (s *State) copyTo(ctx context.Context, file string) error {
	r, err := openSession(ctx, s.path, "ro", busyTimeout)
	if err != nil {
		return err
	}
	_, err = r.exec(ctx, `VACUUM INTO ?`, file)
	if err := errors.Join(s.damage.note(err), r.close()); err != nil {
		return err
	}
	return fault.Wrap(verify(ctx, file), "check the backup")
}

func fileExists(file string) error {
	return &fault.Error{Kind: fault.Invalid, Op: file + " exists already",
		Remedy: "name a new file: backups are never overwritten"}
}

// createCopy creates the file of a copy of a state.
func createCopy(d disk.Disk, path string) (*disk.File, error) {
	f, err := disk.Create(d, path, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name a file in a folder that exists"}
	}
	return f, filesystem.Fault(err, "create the file")
}

// verify checks a copy of a state file to its end.
func verify(ctx context.Context, path string) (err error) {
	s, err := openSession(ctx, path, immutable)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := checkSchema(ctx, s); err != nil {
		return err
	}
	if err := check(ctx, s, completeCheck); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "check %s", path)
	}
	return nil
}
