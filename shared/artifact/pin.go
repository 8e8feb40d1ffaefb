package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Bounds of an artifact.
const (
	MaxBytes = 256 << 20 // of all files
	MaxFiles = 10_000
	maxName  = 512
	maxDepth = 32
)

// Pinned is a frozen artifact.
type Pinned struct {
	Content identity.ContentID // of the object at identity.ContentKey
	Bytes   int64              // of its files
	Files   int
}

// reserved are the folders of a bucket that are rollout's own, or have what agents must not see:
// prompts have the expected answers.
var reserved = []string{"prompts", "runs", "work", "cas", "pending", "files"}

// Pin freezes the artifact at the key, which ends in "/" for a folder. What cannot be an artifact
// is Invalid, and a key without an object NotFound. The optional hook keep is called before the
// object is made or found, and keeps it from being deleted.
func Pin(ctx context.Context, blobs blob.Store, key string,
	keep func(context.Context, identity.ContentID) error) (p Pinned, err error) {
	first, _, _ := strings.Cut(key, "/")
	for _, name := range reserved {
		if first == name {
			return p, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "no agent may have files of %s/", name),
				Remedy: "copy them to a folder of their own, such as agents/"}
		}
	}
	spool, err := os.CreateTemp("", "rollout-artifact-")
	if err != nil {
		return p, fault.WithKind(fault.Unavailable, err, "make a temporary file")
	}
	defer func() {
		spool.Close()
		os.Remove(spool.Name())
	}()
	hash := identity.NewHasher()
	out := &writer{tar: tar.NewWriter(io.MultiWriter(spool, hash)), names: map[string]bool{}}
	if strings.HasSuffix(key, "/") {
		err = out.folder(ctx, blobs, key)
	} else {
		err = out.archive(ctx, blobs, key)
	}
	if err == nil && out.pinned.Files == 0 {
		err = fault.New(fault.NotFound, "it has no files")
	}
	if err = errors.Join(err, out.tar.Close()); err != nil {
		return p, fault.Wrap(err, "read the artifact %s", key)
	}
	out.pinned.Content = hash.Sum()
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return p, fault.WithKind(fault.Unavailable, err, "read a temporary file")
	}
	if keep != nil {
		if err := keep(ctx, out.pinned.Content); err != nil {
			return p, err
		}
	}
	_, err = blobs.Put(ctx, identity.ContentKey(out.pinned.Content), spool, blob.PutOptions{CreateOnly: true})
	if err != nil && !fault.Is(err, fault.Conflict) { // the same content is there already
		return p, fault.Wrap(err, "keep the artifact %s", key)
	}
	return out.pinned, nil
}

// writer writes the object.
type writer struct {
	tar    *tar.Writer
	names  map[string]bool // in lower case: some machines tell no cases apart
	pinned Pinned
}

// folder adds the objects below the key.
func (w *writer) folder(ctx context.Context, blobs blob.Store, key string) error {
	for after := ""; ; {
		list, err := blobs.List(ctx, key, after, blob.MaxList)
		if err != nil {
			return err
		}
		for _, info := range list {
			after = info.Key
			if err := w.object(ctx, blobs, info, strings.TrimPrefix(info.Key, key)); err != nil {
				return err
			}
		}
		if len(list) < blob.MaxList {
			return nil
		}
	}
}

func (w *writer) object(ctx context.Context, blobs blob.Store, info blob.Info, name string) error {
	r, info, err := blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version})
	if err != nil {
		return err
	}
	defer r.Close()
	return w.file(name, info.Size, 0o755, r)
}

// archive adds the files of a .tar.
func (w *writer) archive(ctx context.Context, blobs blob.Store, key string) error {
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	for in := tar.NewReader(r); ; {
		h, err := next(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if err := w.file(strings.TrimPrefix(h.Name, "./"), h.Size, 0o644|h.FileInfo().Mode().Perm()&0o111, in); err != nil {
			return err
		}
	}
}

// next returns the next entry of a tar: a regular file or a folder. Anything else is Invalid.
func next(in *tar.Reader) (*tar.Header, error) {
	h, err := in.Next()
	if errors.Is(err, io.EOF) {
		return nil, io.EOF
	}
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "read the tar")
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
		return nil, fault.New(fault.Invalid, "%.200q is not a regular file (tar type %q): links and devices are not allowed",
			h.Name, h.Typeflag)
	}
	return h, nil
}

// file adds a file.
func (w *writer) file(name string, size int64, mode os.FileMode, r io.Reader) error {
	if err := checkName(name); err != nil {
		return err
	}
	w.pinned.Files++
	w.pinned.Bytes += size
	switch folded := strings.ToLower(name); {
	case w.names[folded]:
		return fault.New(fault.Invalid, "%.200q is there twice", name)
	case w.pinned.Files > MaxFiles:
		return fault.New(fault.Invalid, "it has more than %d files", MaxFiles)
	case size < 0 || w.pinned.Bytes > MaxBytes:
		return fault.New(fault.Invalid, "it has more than %d MiB", MaxBytes>>20)
	default:
		w.names[folded] = true
	}
	// Without times and owners, so that the same files have the same name.
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: int64(mode)})
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "keep %.200q", name)
	}
	n, err := io.Copy(w.tar, io.LimitReader(r, size))
	if err == nil && n < size {
		err = fmt.Errorf("it has %d bytes, not %d", n, size)
	}
	return fault.WithKind(kindOr(err, fault.Invalid), err, "read %.200q", name)
}

// kindOr returns the kind of an error that has one, else the other.
func kindOr(err error, other fault.Kind) fault.Kind {
	if k := fault.KindOf(err); k != fault.Internal {
		return k
	}
	return other
}

// checkName refuses names that lead out of a folder, or that some machine cannot have.
func checkName(name string) error {
	switch {
	case name == "" || path.IsAbs(name) || path.Clean(name) != name || name == "." || name == ".." ||
		strings.HasPrefix(name, "../") || strings.Contains(name, `\`):
		return fault.New(fault.Invalid, "%.200q is not a name of a file in a folder", name)
	case len(name) > maxName || strings.Count(name, "/") >= maxDepth:
		return fault.New(fault.Invalid, "%.200q has more than %d bytes or %d folders", name, maxName, maxDepth)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fault.New(fault.Invalid, "%.200q has control characters or is not UTF-8", name)
	case name == "task.json":
		return fault.New(fault.Invalid, "task.json is the name of the task's own file: rename it")
	}
	return nil
}
