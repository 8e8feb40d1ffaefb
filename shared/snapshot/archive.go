package snapshot

import (
	"archive/tar"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"rollout/shared/fault"
)

// Limits bound a folder to save, and an archive to restore.
type Limits struct {
	Entries int   // files and folders
	Bytes   int64 // in all files
}

// defaultLimits replace zero limits of a Store.
var defaultLimits = Limits{Entries: 10_000, Bytes: 1 << 40}

// MaxName is the longest name in an archive in bytes, the most that a tar header holds
// without an extension.
const MaxName = 100

func (l Limits) orDefault() Limits {
	return Limits{cmp.Or(l.Entries, defaultLimits.Entries), cmp.Or(l.Bytes, defaultLimits.Bytes)}
}

// size returns the longest archive within the limits in bytes: the files, a header and
// padding for each entry, and the end.
func (l Limits) size() int64 { return l.Bytes + int64(l.Entries)*1024 + 1024 }

// entry is a file or folder in an archive.
type entry struct {
	name string // '/'-separated; a folder's ends with a slash
	size int64
}

func (e entry) folder() bool { return strings.HasSuffix(e.name, "/") }

// header returns the only valid header of an entry. It has no times, owners or modes of
// the machine.
func (e entry) header() *tar.Header {
	if e.folder() {
		return &tar.Header{Typeflag: tar.TypeDir, Name: e.name, Mode: 0o755, Format: tar.FormatGNU}
	}
	return &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Size: e.size, Mode: 0o644, Format: tar.FormatGNU}
}

// writeArchive writes the folder as an archive: entries in byte order of their names,
// GNU headers, no compression. Equal folders give equal bytes on every machine. Links,
// devices, and names that not every machine can store are Invalid. Its memory grows
// only with the number of entries.
func writeArchive(w io.Writer, folder fs.FS, l Limits) error {
	entries, err := list(folder, l)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, e := range entries {
		if err := t.WriteHeader(e.header()); err != nil {
			return err
		}
		if e.folder() {
			continue
		}
		if err := copyFile(t, folder, e); err != nil {
			return err
		}
	}
	return t.Close()
}

func copyFile(w io.Writer, folder fs.FS, e entry) error {
	f, err := folder.Open(e.name)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "snapshot")
	}
	defer f.Close() // read only
	n, err := io.Copy(w, io.LimitReader(f, e.size))
	if err != nil {
		return err
	}
	if more, _ := f.Read(make([]byte, 1)); n != e.size || more > 0 {
		return fault.New(fault.Invalid,
			"snapshot: %s changed while it was read: first stop the process that writes it", e.name)
	}
	return nil
}

// list returns the folder's entries in the order of the archive.
func list(folder fs.FS, l Limits) ([]entry, error) {
	var all []entry
	var total int64
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "snapshot")
		}
		if name == "." {
			return nil
		}
		e := entry{name: name}
		switch {
		case d.IsDir():
			e.name += "/"
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return fault.WithKind(fault.Invalid, err, "snapshot")
			}
			e.size = info.Size()
		default:
			return fault.New(fault.Invalid, "snapshot: %s is neither a file nor a folder (%s)", name, d.Type())
		}
		if why := badName(e.name); why != "" {
			return fault.New(fault.Invalid, "snapshot: the name %.120q %s", e.name, why)
		}
		all = append(all, e)
		total += e.size
		return l.check(len(all), total)
	})
	if err != nil {
		return nil, fault.Wrap(err, "read the folder")
	}
	if len(all) == 0 {
		return nil, fault.New(fault.Invalid, "snapshot: the folder is empty")
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// check returns Exhausted if the entries or their bytes exceed the limits.
func (l Limits) check(entries int, bytes int64) error {
	if entries > l.Entries {
		return fault.New(fault.Exhausted, "more than %d files and folders", l.Entries)
	}
	if bytes > l.Bytes {
		return fault.New(fault.Exhausted, "more than %d bytes of files", l.Bytes)
	}
	return nil
}

// badName returns why an archive cannot have the name, or "".
func badName(name string) string {
	if len(name) > MaxName {
		return fmt.Sprintf("is longer than %d bytes", MaxName)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == '\\' || c == ':' {
			return "has a character that not every machine allows in names"
		}
	}
	path := strings.TrimSuffix(name, "/")
	if path == "." || !fs.ValidPath(path) {
		return "is not a plain path within the folder"
	}
	return ""
}
