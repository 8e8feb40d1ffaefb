package plugin

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Bounds of a plugin's folder.
const (
	maxFiles = 4096
	maxBytes = 64 << 20
)

// errChanges says that the files that were loaded may not be those of the content id.
var errChanges = fault.New(fault.Unavailable, "its files change while they are read")

// Source is a plugin as its folder has it.
type Source struct {
	Manifest config.PluginManifest
	Dir      string // absolute
	// ContentID is that of the folder's files: their names and their bytes.
	ContentID identity.ContentID
}

// Read reads the manifest and the files of a plugin; path is its folder or its manifest. Files and
// folders whose names begin with a dot, and those that Python makes, are not its own. A folder
// with links or without a manifest is Invalid, as is a manifest with problems.
func Read(path string) (Source, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return Source{}, fault.WithKind(fault.Invalid, err, "find the plugin %s", path)
	}
	if filepath.Base(dir) == config.PluginFile {
		dir = filepath.Dir(dir)
	}
	file := filepath.Join(dir, config.PluginFile)
	src, err := os.ReadFile(file)
	if err != nil {
		return Source{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("read the plugin's manifest: %w", err),
			Remedy: "name a folder with a " + config.PluginFile}
	}
	s := Source{Dir: dir}
	if s.Manifest, err = config.ParsePlugin(file, src); err != nil {
		return Source{}, err
	}
	s.ContentID, err = contentOf(dir)
	return s, fault.Wrap(err, "the plugin %s in %s", s.Manifest.Name, dir)
}

// contentOf returns the content id of a folder's files.
func contentOf(dir string) (identity.ContentID, error) {
	var list strings.Builder
	err := eachFile(dir, func(name string, text []byte, _ fs.FileMode) error {
		fmt.Fprintf(&list, "%q %s\n", name, identity.Content(text))
		return nil
	})
	return identity.TextContent(list.String()), err
}

// copyTo copies the plugin's files into a new folder, so that processes that start later start
// what was loaded. Files that have changed since the plugin was read are Unavailable.
func (s Source) copyTo(dir string) error {
	err := eachFile(s.Dir, func(name string, text []byte, mode fs.FileMode) error {
		path := filepath.Join(dir, filepath.FromSlash(name))
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644|mode&0o111))
	})
	if err != nil {
		return err
	}
	if id, err := contentOf(dir); err != nil || id != s.ContentID {
		return errors.Join(errChanges, err)
	}
	return nil
}

// eachFile calls do for each of the plugin's own files in a folder, in the order of their names.
func eachFile(dir string, do func(name string, text []byte, mode fs.FileMode) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "open its folder")
	}
	defer root.Close()
	files, bytes := 0, int64(0)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && !config.IsPluginFile(e.Name()):
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		case !e.Type().IsRegular():
			return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is neither a file nor a folder", name),
				Remedy: "put a copy in its place"}
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		tooMuch := fault.New(fault.Invalid, "it has more than %d files or %d MiB: give the plugin a folder of its own",
			maxFiles, maxBytes>>20)
		if files++; files > maxFiles || info.Size() > maxBytes-bytes {
			return tooMuch
		}
		text, err := readAtMost(root, name, maxBytes-bytes)
		if err != nil {
			return err
		}
		if bytes += int64(len(text)); bytes > maxBytes { // it has grown meanwhile
			return tooMuch
		}
		return do(name, text, info.Mode())
	})
	if err != nil && !errors.As(err, new(*fault.Error)) {
		err = fault.WithKind(fault.Invalid, err, "read its files")
	}
	return err
}

// readAtMost reads a file, and one byte more than most if it has them.
func readAtMost(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}
