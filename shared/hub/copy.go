package hub

import (
	"context"
	"encoding/hex"
	"hash"
	"io"

	"rollout/shared/fault"
	"rollout/shared/models"
)

// Copy is a source of files that another program downloaded: their bytes are verified by
// the digests that the hub tells, as if they came from there.
type Copy struct {
	Model Model
	From  models.Source
}

// Listed returns the files of the copy that the hub has, as the hub describes them. A file
// of another size is Corrupt.
func (c Copy) Listed(there []models.Listed) (all []models.Listed, err error) {
	of := make(map[string]models.Listed, len(c.Model.Files))
	for _, f := range c.Model.Files {
		of[f.Path] = f.Listed
	}
	for _, l := range there {
		f, ok := of[l.Path]
		if !ok {
			continue
		}
		if f.Size != l.Size {
			return nil, fault.New(fault.Corrupt, "%.128q has %d bytes, and the hub's has %d", l.Path, l.Size, f.Size)
		}
		all = append(all, f)
	}
	return all, nil
}

// Open opens a file; see models.Source.
func (c Copy) Open(ctx context.Context, l models.Listed) (io.ReadCloser, error) {
	for _, f := range c.Model.Files {
		if f.Path != l.Path {
			continue
		}
		r, err := c.From.Open(ctx, l)
		if err != nil {
			return nil, err
		}
		return &verified{ReadCloser: r, file: f, hash: f.digest.hasher(f.Size)}, nil
	}
	return nil, fault.New(fault.NotFound, "the hub has no file %.128q", l.Path)
}

// verified is a reader that ends with Corrupt unless its bytes have the file's digest.
type verified struct {
	io.ReadCloser
	file File
	hash hash.Hash
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	v.hash.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(v.hash.Sum(nil)) != v.file.Digest {
		return n, fault.New(fault.Corrupt, "%s has other bytes than the hub's", v.file.Path)
	}
	return n, err
}
