package models

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"rollout/shared/fault"
)

// Folder is a folder of this machine as the source of a model. It must not change
// meanwhile.
type Folder struct {
	root *os.Root
	at   string // the folder below root
}

// OpenFolder opens the folder at a path. A revision in a cache of Hugging Face's programs
// (models--ORG--NAME/snapshots/COMMIT) has links to other folders of the model, which are
// followed; other links must stay within the folder. The caller closes it.
func OpenFolder(at string) (*Folder, error) {
	absolute, err := filepath.Abs(at)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "open the folder")
	}
	top, below := absolute, "."
	if parent := filepath.Dir(absolute); filepath.Base(parent) == snapshots &&
		strings.HasPrefix(filepath.Base(filepath.Dir(parent)), "models--") {
		top, below = filepath.Dir(parent), path.Join(snapshots, filepath.Base(absolute))
	}
	root, err := os.OpenRoot(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fault.Error{Kind: fault.NotFound, Err: fault.New(fault.NotFound, "there is no folder %s", at),
			Remedy: "name a folder with the files of a model"}
	}
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "open the folder")
	}
	return &Folder{root, below}, nil
}

// FolderIn is the folder at a path below root, out of which no link is followed. The caller
// closes root, and not the folder.
func FolderIn(root *os.Root, at string) *Folder { return &Folder{root, at} }

// snapshots is the folder of revisions in a cache of Hugging Face's programs.
const snapshots = "snapshots"

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// List returns the regular files, at any depth, without hidden ones. A link that leads out
// of the folder is Invalid.
func (f *Folder) List() (files []Listed, err error) {
	err = f.list(f.at, &files)
	return files, err
}

func (f *Folder) list(folder string, files *[]Listed) error {
	entries, err := fs.ReadDir(f.root.FS(), folder)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "list the folder")
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		at := path.Join(folder, e.Name())
		info, err := f.root.Stat(at)
		if err != nil {
			return &fault.Error{Kind: fault.Invalid, Err: err,
				Remedy: "put the file itself there: links must stay within the folder"}
		}
		switch {
		case info.IsDir() && e.Type() == fs.ModeSymlink:
			return fault.New(fault.Invalid, "%s is a link to a folder: put the folder itself there", at)
		case info.IsDir():
			if err := f.list(at, files); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			below := strings.TrimPrefix(strings.TrimPrefix(at, f.at), "/")
			*files = append(*files, Listed{Path: below, Size: info.Size()})
		}
		if len(*files) > maxFiles {
			return fault.New(fault.Invalid, "the folder has more than %d files", maxFiles)
		}
	}
	return nil
}

// Open opens a file; see Source.
func (f *Folder) Open(_ context.Context, file Listed) (io.ReadCloser, error) {
	r, err := f.root.Open(path.Join(f.at, file.Path))
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "open a file of the model")
	}
	return r, nil
}
