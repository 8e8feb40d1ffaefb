package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name       string
	content    []byte
	executable bool
}

// pack returns a .tar.gz of the files in the folder. Its bytes depend on the
// arguments alone: entries are sorted, belong to user and group 0, and were
// changed at the given time.
func pack(folder string, files []entry, changed time.Time) ([]byte, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var b bytes.Buffer
	packed, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(packed)
	changed = changed.Truncate(time.Second) // the format has no fractions
	directory := tar.Header{
		Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: changed, Format: tar.FormatUSTAR,
	}
	if err := archive.WriteHeader(&directory); err != nil {
		return nil, err
	}
	for _, f := range files {
		header := tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: 0o644, Size: int64(len(f.content)),
			ModTime: changed, Format: tar.FormatUSTAR,
		}
		if f.executable {
			header.Mode = 0o755
		}
		if err := archive.WriteHeader(&header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := packed.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
