package main

import (
	"archive/zip"
	"errors"
	"io"
	"os"
)

// bootstrap is what Lambda starts.
const bootstrap = "bootstrap"

// sizes returns a file's size, and that of the archive with it alone.
func sizes(path string) (file, archive int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close() // read only: nothing can be lost
	var size counter
	z := zip.NewWriter(&size)
	entry, err := z.Create(bootstrap)
	if err != nil {
		return 0, 0, err
	}
	file, err = io.Copy(entry, f)
	err = errors.Join(err, z.Close())
	return file, int64(size), err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}
