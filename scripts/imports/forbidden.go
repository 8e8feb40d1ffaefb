package imports

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// unfinished and metadata are written so that they do not find themselves.
var (
	unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)
	metadata   = []byte("169." + "254.")
)

// metadataAt are the drivers that may ask a cloud's metadata service.
var metadataAt = []string{"shared/aws/...", "shared/gcp/..."}

// ForbiddenWords returns every unfinished note, and every metadata address outside of
// the drivers, as "file:line: what is wrong".
func ForbiddenWords(tree fs.FS) ([]string, error) {
	var out []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || !text(name):
			return nil
		}
		b, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(b, []byte("\n")) {
			at := name + ":" + strconv.Itoa(i+1) + ": "
			if w := unfinished.Find(line); w != nil {
				out = append(out, at+string(w)+": finish it, or file it")
			}
			if bytes.Contains(line, metadata) && !matchAny(metadataAt, path.Dir(name)) {
				out = append(out, at+"a metadata address outside of the cloud drivers")
			}
		}
		return nil
	})
	return out, err
}

// text reports whether a file is written by hand and short of data.
func text(name string) bool {
	ext := path.Ext(name)
	return slices.Contains([]string{".go", ".sh", ".md", ".toml", ".yml", ".yaml", ".tf", ".mk", ".mod"}, ext) ||
		path.Base(name) == "Makefile" || strings.HasPrefix(name, ".ci/")
}

// UnknownFolders returns the top-level folders that the design does not name.
func UnknownFolders(tree fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && !skipped[e.Name()] && !slices.Contains(TopLevel, e.Name()) {
			out = append(out, e.Name()+": the repository has no such folder at its top: use "+strings.Join(TopLevel, ", "))
		}
	}
	return out, nil
}
