package installation

import (
	"context"
	"os"
	"path/filepath"

	"rollout/shared/host"
	"rollout/shared/ownership"
	"rollout/shared/record"
)

// localOwnership returns the bucket of the installation in dir. The folder may be a
// link or a mount that leads into another installation.
func localOwnership(dir string, ports host.Ports) ownership.Bucket {
	place := dir
	if abs, err := filepath.Abs(dir); err == nil {
		place = abs
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = "" // a replaced state then does not claim the bucket by itself
	}
	return ownership.Bucket{
		Ports: ports, Place: place, Host: machine,
		Address: func(key string) string { return filepath.Join(BucketDir(place), filepath.FromSlash(key)) },
		Remedy:  "let " + BucketDir(place) + " be a folder of its own, not a link or a mount of another one's",
		Adopts: func(ctx context.Context, m ownership.Mark) (bool, error) {
			return adopts(ctx, ports, place, m)
		},
	}
}

// adopts reports whether a state without an id, as of a backup that an earlier version
// made, belongs to the marked bucket: it has runs, and the bucket is not the folder of
// the installation that claimed it.
func adopts(ctx context.Context, ports host.Ports, place string, m ownership.Mark) (bool, error) {
	runs, err := ports.Docs.List(ctx, record.ManifestPrefix, "", 1)
	if err != nil || len(runs) == 0 {
		return false, err
	}
	return !sameFolder(BucketDir(m.Place), BucketDir(place)), nil
}

// sameFolder reports whether two paths lead to one folder.
func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
