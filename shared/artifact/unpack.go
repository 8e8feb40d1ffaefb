package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Unpack makes the folder of the pinned artifact's files below dir, named by its content, and
// returns its path. If the folder is there already, it is returned as it is. An object with
// another content is Corrupt. Calls for the same dir must not overlap.
func Unpack(ctx context.Context, blobs blob.Store, content identity.ContentID, dir string) (folder string, err error) {
	folder = filepath.Join(dir, content.String())
	if _, err := os.Lstat(folder); err == nil {
		return folder, nil
	}
	r, _, err := blobs.Get(ctx, identity.ContentKey(content), blob.GetOptions{})
	if err != nil {
		return "", fault.Wrap(err, "read an agent's artifact")
	}
	defer r.Close()
	temp, err := os.MkdirTemp(dir, "unpacking-")
	if err != nil {
		return "", fault.WithKind(fault.Unavailable, err, "make a folder")
	}
	defer os.RemoveAll(temp) // fails when it has its name
	if err := unpack(r, content, temp); err != nil {
		return "", fault.Wrap(err, "unpack an agent's artifact")
	}
	return folder, fault.WithKind(fault.Unavailable, os.Rename(temp, folder), "name a folder")
}

// unpack writes the files of the object below dir.
func unpack(r io.Reader, content identity.ContentID, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "open a folder")
	}
	defer root.Close()
	hash := identity.NewHasher()
	all := io.TeeReader(r, hash)
	left, files := int64(MaxBytes), 0
	for in := tar.NewReader(all); ; {
		h, err := next(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := checkName(h.Name); err != nil {
			return err
		}
		files++
		if left -= h.Size; h.Typeflag == tar.TypeDir || h.Size < 0 || left < 0 || files > MaxFiles {
			return fault.New(fault.Corrupt, "it has folders, more than %d files or more than %d MiB", MaxFiles, MaxBytes>>20)
		}
		if err := writeFile(root, h, in); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, all); err != nil {
		return fault.Wrap(err, "read its end")
	}
	if got := hash.Sum(); got != content {
		return fault.New(fault.Corrupt, "its content is %s, not %s", got, content)
	}
	return nil
}

func writeFile(root *os.Root, h *tar.Header, in io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
		return fault.WithKind(fault.Unavailable, err, "make a folder")
	}
	file, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644|h.FileInfo().Mode().Perm()&0o111)
	if err != nil {
		return fault.WithKind(fault.Unavailable, err, "make a file")
	}
	_, err = io.Copy(file, io.LimitReader(in, h.Size))
	return fault.WithKind(kindOr(err, fault.Unavailable), errors.Join(err, file.Close()), "write %.200q", h.Name)
}
