package models

import (
	"context"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// Objects is a folder of a bucket as the source of a model. It must not change meanwhile.
type Objects struct {
	Blobs  blob.Store
	Folder string // without a slash at its end
}

// List returns the objects of the folder, at any depth. A folder without any is NotFound.
func (o Objects) List(ctx context.Context) (files []Listed, err error) {
	err = Cache{Blobs: o.Blobs}.each(ctx, o.Folder+"/", func(info blob.Info) error {
		files = append(files, Listed{Path: strings.TrimPrefix(info.Key, o.Folder+"/"), Size: info.Size})
		if len(files) > maxFiles {
			return fault.New(fault.Invalid, "the folder has more than %d files", maxFiles)
		}
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fault.New(fault.NotFound, "there are no files in the folder %s of the bucket", o.Folder)
	}
	return files, err
}

// Open opens a file; see Source.
func (o Objects) Open(ctx context.Context, f Listed) (io.ReadCloser, error) {
	r, info, err := o.Blobs.Get(ctx, o.Folder+"/"+f.Path, blob.GetOptions{})
	if err != nil {
		return nil, err
	}
	if info.Size != f.Size {
		_ = r.Close() // the fault is told
		return nil, fault.New(fault.Corrupt, "%s changed meanwhile: it has %d bytes instead of %d", f.Path, info.Size, f.Size)
	}
	return r, nil
}
