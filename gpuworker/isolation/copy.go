package isolation

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"rollout/shared/fault"
)

const (
	// maxDepth bounds how deep folders are copied.
	maxDepth = 64
	// maxNamed bounds the paths that are named as left out.
	maxNamed = 32
	// maxListed bounds the entries that are looked at, copied or not.
	maxListed = 1 << 20
)

// copier copies a tree of files from one folder to another without following links, while
// nothing else changes either of them. It copies regular files and folders.
type copier struct {
	files int   // how many more files and folders may be copied
	bytes int64 // and how many bytes of them
	// links copies links as links. hardLinks copies files that have several names.
	links, hardLinks bool
	// strict ends at what cannot be copied, instead of leaving it out.
	strict bool
	// owner gets the copies; nil leaves them to this process.
	owner *int

	listed int
	done   Collected
}

// errEnough ends a copy that has looked at maxListed entries.
var errEnough = errors.New("more entries than are looked at")

// copy copies what is in src to dst.
func (c *copier) copy(dst, src *os.Root) (Collected, error) {
	err := c.folder(dst, src, "", 0)
	if errors.Is(err, errEnough) {
		return c.done, c.leaveOut(".", err.Error())
	}
	return c.done, err
}

func (c *copier) folder(dst, src *os.Root, at string, depth int) error {
	list, err := src.Open(".")
	if err != nil {
		return c.leaveOut(at, err.Error())
	}
	defer list.Close()
	for {
		// Names alone: what else a listing tells of a file may come from a path.
		names, err := list.Readdirnames(256)
		for _, name := range names {
			if c.listed++; c.listed > maxListed {
				return errEnough
			}
			if err := c.entry(dst, src, name, path.Join(at, name), depth); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.leaveOut(at, err.Error())
		}
	}
}

func (c *copier) entry(dst, src *os.Root, name, at string, depth int) error {
	info, err := src.Lstat(name)
	if err != nil {
		return c.leaveOut(at, err.Error())
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return c.file(dst, src, name, at, info)
	case mode.IsDir() && depth+1 >= maxDepth:
		return c.leaveOut(at, fmt.Sprintf("deeper than %d folders", maxDepth))
	case mode.IsDir():
		return c.subfolder(dst, src, name, at, depth, info)
	case mode&fs.ModeSymlink != 0 && c.links:
		return c.link(dst, src, name, at)
	default:
		return c.leaveOut(at, kindOf(mode))
	}
}

// kindOf says in words what is not copied.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}

func (c *copier) subfolder(dst, src *os.Root, name, at string, depth int, info fs.FileInfo) error {
	if c.files <= 0 {
		return c.leaveOut(at, "over the limit of files")
	}
	c.files--
	if err := makeReadable(src, name, info, 0o700); err != nil {
		return c.leaveOut(at, err.Error())
	}
	from, err := src.OpenRoot(name)
	if err != nil {
		return c.leaveOut(at, err.Error())
	}
	defer from.Close()
	if err := dst.Mkdir(name, 0o755); err != nil && !isFolder(dst, name) {
		return c.writing(at, err)
	}
	to, err := dst.OpenRoot(name)
	if err != nil {
		return c.writing(at, err)
	}
	defer to.Close()
	if err := c.folder(to, from, at, depth+1); err != nil {
		return err
	}
	return c.give(dst, name, at)
}

// isFolder says whether the name is that of a folder, and not of a link to one.
func isFolder(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.IsDir()
}

func (c *copier) file(dst, src *os.Root, name, at string, info fs.FileInfo) error {
	switch stat, ok := info.Sys().(*syscall.Stat_t); {
	case ok && stat.Nlink > 1 && !c.hardLinks:
		return c.leaveOut(at, "a file with several names")
	case c.files <= 0:
		return c.leaveOut(at, "over the limit of files")
	case info.Size() > c.bytes:
		return c.leaveOut(at, "over the limit of bytes")
	}
	if err := makeReadable(src, name, info, 0o400); err != nil {
		return c.leaveOut(at, err.Error())
	}
	in, err := src.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return c.leaveOut(at, err.Error())
	}
	defer in.Close()
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644|info.Mode().Perm()&0o111)
	if err != nil {
		return c.writing(at, err)
	}
	n, err := io.Copy(out, io.LimitReader(in, info.Size()))
	if err = errors.Join(err, out.Close()); err != nil {
		return c.writing(at, err)
	}
	c.files--
	c.bytes -= n
	c.done.Files = append(c.done.Files, File{Name: at, Bytes: n})
	c.done.Bytes += n
	return c.give(dst, name, at)
}

func (c *copier) link(dst, src *os.Root, name, at string) error {
	target, err := src.Readlink(name)
	if err != nil {
		return c.leaveOut(at, err.Error())
	}
	if err := dst.Symlink(target, name); err != nil {
		return c.writing(at, err)
	}
	return c.give(dst, name, at)
}

// makeReadable gives this process the rights to a file of its own user that the command has
// taken away.
func makeReadable(src *os.Root, name string, info fs.FileInfo, need fs.FileMode) error {
	if info.Mode().Perm()&need == need || os.Geteuid() == 0 {
		return nil
	}
	return src.Chmod(name, info.Mode().Perm()|need)
}

func (c *copier) give(dst *os.Root, name, at string) error {
	if c.owner == nil {
		return nil
	}
	return c.writing(at, dst.Lchown(name, *c.owner, *c.owner))
}

// writing returns an error of the folder that is written to, which ends the copy.
func (c *copier) writing(at string, err error) error {
	kind := fault.Unavailable
	if errors.Is(err, syscall.ENOSPC) {
		kind = fault.Exhausted
	}
	return fault.WithKind(kind, err, "copy %q", at)
}

// leaveOut records a path that is not copied.
func (c *copier) leaveOut(at, why string) error {
	if c.strict {
		return fault.New(fault.Invalid, "%q cannot be copied: %s", at, why)
	}
	c.done.Missing++
	if len(c.done.LeftOut) < maxNamed {
		c.done.LeftOut = append(c.done.LeftOut, fmt.Sprintf("%q: %s", at, why))
	}
	return nil
}
