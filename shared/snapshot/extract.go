package snapshot

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"rollout/shared/fault"
)

// extract writes the archive's files under root, which must be empty. It writes to
// canon the archive that Save writes for these files, and the caller compares it with
// the archive that it read. Entries other than plain files and folders, entries out of
// order, and entries beyond the limits are Corrupt, and are not written.
func extract(r io.Reader, root *os.Root, canon io.Writer, l Limits) error {
	in, out := tar.NewReader(r), tar.NewWriter(canon)
	folders := map[string]bool{".": true}
	last, total, buffer := "", int64(0), make([]byte, 256<<10)
	for n := 1; ; n++ {
		h, err := in.Next()
		if err == io.EOF && n == 1 {
			return fault.New(fault.Corrupt, "archive: it is empty")
		}
		if err == io.EOF {
			return out.Close()
		}
		if err != nil {
			return broken(err)
		}
		e, err := accept(h)
		if err != nil {
			return err
		}
		total += e.size
		if err := l.check(n, total); err != nil {
			return fault.WithKind(fault.Corrupt, err, "archive")
		}
		switch parent := path.Dir(path.Clean(e.name)); {
		case e.name <= last:
			return fault.New(fault.Corrupt, "archive: %.120q follows %.120q: names must be in order, each once",
				e.name, last)
		case !folders[parent]:
			return fault.New(fault.Corrupt, "archive: the folder of %.120q is not in it", e.name)
		}
		last = e.name
		if err := out.WriteHeader(e.header()); err != nil {
			return fault.WithKind(fault.Corrupt, err, "archive")
		}
		if e.folder() {
			folders[path.Clean(e.name)] = true
			if err := root.Mkdir(path.Clean(e.name), 0o755); err != nil {
				return unwritable(err)
			}
			continue
		}
		if err := writeFile(root, e, in, out, buffer); err != nil {
			return err
		}
	}
}

// accept returns the entry of a header. A header that Save cannot have written is
// Corrupt.
func accept(h *tar.Header) (entry, error) {
	e := entry{h.Name, h.Size}
	if why := badName(h.Name); why != "" {
		return e, fault.New(fault.Corrupt, "archive: the name %.120q %s", h.Name, why)
	}
	folder := h.Typeflag == tar.TypeDir
	switch {
	case !folder && h.Typeflag != tar.TypeReg:
		return e, fault.New(fault.Corrupt, "archive: %.120q is neither a file nor a folder (type %q)",
			h.Name, h.Typeflag)
	case folder != e.folder():
		return e, fault.New(fault.Corrupt, "archive: the name %.120q does not fit its type", h.Name)
	case h.Format != tar.FormatGNU || len(h.PAXRecords) > 0:
		return e, fault.New(fault.Corrupt, "archive: %.120q has a header of another format (%s)", h.Name, h.Format)
	case h.Size < 0 || folder && h.Size != 0:
		return e, fault.New(fault.Corrupt, "archive: %.120q has size %d", h.Name, h.Size)
	}
	return e, nil
}

// writeFile copies the content of e from in to a new file and to canon.
func writeFile(root *os.Root, e entry, in io.Reader, canon io.Writer, buffer []byte) (err error) {
	f, err := root.OpenFile(e.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return unwritable(err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = unwritable(closeErr)
		}
	}()
	for left := e.size; left > 0; {
		n, err := in.Read(buffer)
		left -= int64(n)
		if _, err := f.Write(buffer[:n]); err != nil {
			return unwritable(err)
		}
		if _, err := canon.Write(buffer[:n]); err != nil {
			return fault.WithKind(fault.Corrupt, err, "archive")
		}
		if err != nil && left > 0 {
			return broken(err)
		}
	}
	return unwritable(f.Sync())
}

// broken gives an error of reading an archive its kind. An error that has a kind comes
// from the store and keeps it; other errors come from the archive.
func broken(err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Corrupt, "archive: it is truncated")
	case errors.Is(err, tar.ErrHeader):
		return fault.WithKind(fault.Corrupt, err, "archive")
	}
	return err
}

// unwritable gives an error of writing to the local disk its kind.
func unwritable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fault.WithKind(fault.Denied, err, "write the restored files")
	}
	return fault.WithKind(fault.Unavailable, err, "write the restored files")
}
