package models

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// Prefixes of the keys.
const (
	Prefix        = record.ModelsPrefix
	contentPrefix = Prefix + "content/"
	filesPrefix   = Prefix + "files/"
	hubPrefix     = Prefix + "hub/"
	ownPrefix     = Prefix + "own/"
	manifestEnd   = ".json"
)

const (
	// BlockBytes is the size of all blocks of a file but the last. S3 takes a block in one
	// request, and a read of it takes about a tenth of a second.
	BlockBytes = 8 << 20

	schema = 1
	// Limits of a manifest: more files than any model of the hub has, and blocks for 8 TiB.
	maxFiles    = 20_000
	maxBlocks   = 1 << 20
	maxPath     = 1024
	maxManifest = 96 << 20
)

// File is a file of a model.
type File struct {
	Path   string   `json:"path"` // slash-separated, below the model's folder
	Size   int64    `json:"size"`
	Blocks []string `json:"blocks"` // their content ids, in order
}

// Manifest lists the files of a model.
type Manifest struct {
	Schema int `json:"schema_version"`
	// Name is the hub's, such as "org/model" or "org/model:Q4_K_M", see SplitTag, or for
	// another model what its user calls it.
	Name     string `json:"name"`
	Revision string `json:"revision,omitempty"` // the hub's commit: 40 hexadecimal digits
	Files    []File `json:"files"`              // in the order of their paths
}

// Size returns the bytes of all files.
func (m Manifest) Size() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// blocks returns how many blocks a file of the size has.
func blocks(size int64) int { return int((size + BlockBytes - 1) / BlockBytes) }

// blockSize returns the size of the block of that number.
func (f File) blockSize(block int) int64 {
	return min(BlockBytes, f.Size-int64(block)*BlockBytes)
}

// check returns Corrupt for a manifest that a program must not follow: its paths may lead
// out of the model's folder, or its numbers contradict each other.
func (m Manifest) check() error {
	if m.Schema != schema {
		return fault.New(fault.Corrupt, "the manifest has the version %d, this program knows %d", m.Schema, schema)
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return fault.New(fault.Corrupt, "the manifest lists %d files, want 1 to %d", len(m.Files), maxFiles)
	}
	if err := checkNamed(m.Name, m.Revision); err != nil {
		return fault.WithKind(fault.Corrupt, err, "the manifest")
	}
	all := 0
	paths := make([]string, 0, len(m.Files))
	for _, f := range m.Files {
		if f.Size < 0 || f.Size > maxBlocks*BlockBytes || len(f.Blocks) != blocks(f.Size) {
			return fault.New(fault.Corrupt, "the manifest has %d blocks for %d bytes of %.128q", len(f.Blocks), f.Size, f.Path)
		}
		if slices.ContainsFunc(f.Blocks, notID) {
			return fault.New(fault.Corrupt, "the manifest has a block of %.128q that is no content id", f.Path)
		}
		all += len(f.Blocks)
		paths = append(paths, f.Path)
	}
	if all > maxBlocks {
		return fault.New(fault.Corrupt, "the manifest lists %d blocks, at most %d are allowed", all, maxBlocks)
	}
	return fault.WithKind(fault.Corrupt, checkPaths(paths), "the manifest")
}

// checkPaths returns Invalid if a path leads out of its folder, is there twice, or is a
// folder of another.
func checkPaths(paths []string) error {
	sorted := slices.Sorted(slices.Values(paths))
	files := make(map[string]bool, len(paths))
	for _, p := range sorted {
		hidden := p == partsFolder || strings.HasPrefix(p, partsFolder+"/")
		if !fs.ValidPath(p) || p == "." || len(p) > maxPath || hidden || strings.ContainsAny(p, `\:`) ||
			strings.ContainsFunc(p, unicode.IsControl) {
			return fault.New(fault.Invalid, "%.128q can't be the path of a file", p)
		}
		if files[p] {
			return fault.New(fault.Invalid, "%.128q is listed twice", p)
		}
		files[p] = true
	}
	for _, p := range sorted {
		for at := range p {
			if p[at] == '/' && files[p[:at]] {
				return fault.New(fault.Invalid, "%.128q is a file and a folder", p[:at])
			}
		}
	}
	return nil
}

// encode returns the manifest's bytes and its key.
func (m Manifest) encode() (text []byte, key string, err error) {
	if text, err = json.Marshal(m); err != nil {
		return nil, "", fault.WithKind(fault.Internal, err, "write a manifest")
	}
	if m.Revision != "" {
		return text, HubKey(m.Name, m.Revision), nil
	}
	return text, ownPrefix + m.Name + "/" + identity.Content(text).String() + manifestEnd, nil
}

// decode reads and checks the manifest at the key.
func decode(key string, text []byte) (m Manifest, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fault.WithKind(fault.Corrupt, err, "read the manifest %s", key)
	}
	if err := m.check(); err != nil {
		return m, fault.Wrap(err, "read %s", key)
	}
	want := HubKey(m.Name, m.Revision)
	if m.Revision == "" {
		want = ownPrefix + m.Name + "/" + identity.Content(text).String() + manifestEnd
	}
	if key != want {
		return m, fault.New(fault.Corrupt, "%s is the manifest of another model or was changed", key)
	}
	return m, nil
}

// HubKey returns the key of the manifest of a commit of a model of the hub. A tag is a folder
// of its own.
func HubKey(name, commit string) string {
	return hubPrefix + strings.Replace(name, ":", "/", 1) + "/" + commit + manifestEnd
}

// IsOwnKey reports whether a key is that of the manifest of a model that is not of the hub.
func IsOwnKey(key string) bool {
	return strings.HasPrefix(key, ownPrefix) && strings.HasSuffix(key, manifestEnd) && blob.CheckKey(key) == nil
}

func notID(id string) bool {
	_, ok := identity.ParseContentID(id)
	return !ok
}

// contentKey returns the key of a block with the content id.
func contentKey(id string) string { return contentPrefix + id[:2] + "/" + id }

// fileKey returns the key of the blocks of a file with a digest: lower-case hexadecimal
// digits.
func fileKey(digest string) string { return filesPrefix + digest[:2] + "/" + digest }
