// Package snapshot stores folders of state, such as that of a training, and restores
// them byte for byte.
//
// A snapshot is a deterministic archive of a folder: an object with the blake3 of its
// bytes as its name, so that equal folders have equal names everywhere, and a document
// that names its run. Restore verifies every byte before any file is visible, and
// accepts only an archive that Save could have written.
//
// Documents decide. Save writes in this order, and Prune removes in the reverse order:
//
//	the bytes at pending/<ulid> ─▶ content/<id> names this save ─▶ the bytes at cas/… ─▶ snapshot/<run>/<id>
//
// A process that crashes in between leaves bytes that no snapshot names, which the
// next Prune of the run removes. It never leaves a snapshot without its bytes.
//
// The package does not interpret what it stores, does not restore single files, and
// does not delete bytes that a snapshot of any run names.
package snapshot

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/disk"
	"rollout/shared/document"
	"rollout/shared/fault"
)

// Kind is what a snapshot holds. Example: "train_state".
type Kind string

// TrainState is everything that a training continues from: parameters, moments of the
// optimizer, step and cursors.
const TrainState Kind = "train_state"

// RoleTar is the role of a snapshot's only part: the archive.
const RoleTar = "tar"

// Snapshot is the document snapshot/<run>/<id>. The run's worker writes it, or the
// command that trains.
type Snapshot struct {
	Schema    int             `json:"schema"`
	ID        string          `json:"id"` // of the archive's bytes, 64 hex digits
	Kind      Kind            `json:"kind"`
	Run       identity.RunID  `json:"run_id"`
	CreatedAt time.Time       `json:"created_at"`
	Label     string          `json:"label,omitempty"` // for users
	Parts     []Part          `json:"parts"`
	Algorithm string          `json:"algorithm_id"`   // that wrote the state. Example: "sft"
	Meta      json.RawMessage `json:"meta,omitempty"` // one JSON value of the algorithm
	Save      string          `json:"save"`           // identifies the save in content/<id>
}

// Part is one object of a snapshot.
type Part struct {
	Role    string `json:"role"`
	Content string `json:"content"` // blake3, 64 hex digits; identity.ContentKey is its key
	Length  int64  `json:"length"`  // bytes
}

// Details describe a snapshot to save.
type Details struct {
	Run       identity.RunID
	Kind      Kind
	Algorithm string
	Label     string          // at most MaxLabel bytes
	Meta      json.RawMessage // at most MaxMeta bytes
}

// Limits of details.
const (
	MaxLabel = 256
	MaxMeta  = 64 << 10
)

// Store saves and restores the snapshots of an installation. All methods may be called
// concurrently, by any number of processes.
type Store struct {
	Blobs  blob.Store
	Docs   document.Store
	Clock  clock.Clock
	Limits Limits    // of folders and archives; zero: 10,000 entries, 1 TiB
	Disk   disk.Disk // of restored folders; nil: the machine's
}

const (
	prefix        = "snapshot/"
	contentPrefix = "content/"
)

// Key returns the key of the document of a run's snapshot.
func Key(run identity.RunID, id string) string { return prefix + string(run) + "/" + id }

// contentKey returns the key of the document that names the saves of a content.
func contentKey(id string) string { return contentPrefix + id }

func (d Details) check() error {
	switch {
	case !d.Run.Valid():
		return fault.New(fault.Invalid, "snapshot: %.64q is not a run id", d.Run)
	case !word(string(d.Kind)):
		return fault.New(fault.Invalid, "snapshot of run %s: %.64q is not a kind: use lower-case letters and underscores",
			d.Run, d.Kind)
	case !word(d.Algorithm):
		return fault.New(fault.Invalid,
			"snapshot of run %s: %.64q is not an algorithm: use lower-case letters and underscores", d.Run, d.Algorithm)
	case len(d.Label) > MaxLabel || strings.ContainsFunc(d.Label, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fault.New(fault.Invalid, "snapshot of run %s: the label must be one line of at most %d bytes",
			d.Run, MaxLabel)
	case len(d.Meta) > MaxMeta:
		return fault.New(fault.Invalid, "snapshot of run %s: its meta has %d bytes, the limit is %d",
			d.Run, len(d.Meta), MaxMeta)
	case len(d.Meta) > 0 && !json.Valid(d.Meta):
		return fault.New(fault.Invalid, "snapshot of run %s: its meta is not JSON", d.Run)
	}
	return nil
}

// word reports whether s is 1 to 64 lower-case letters, digits and underscores.
func word(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	})
}

// part returns the content and the length of the archive. A document that names none
// is Corrupt.
func (s Snapshot) part() (identity.ContentID, int64, error) {
	if len(s.Parts) == 1 && s.Parts[0].Role == RoleTar && s.Parts[0].Content == s.ID && s.Parts[0].Length > 0 {
		if id, ok := identity.ParseContentID(s.ID); ok {
			return id, s.Parts[0].Length, nil
		}
	}
	return identity.ContentID{}, 0, fault.New(fault.Corrupt, "the document %s does not name an archive", Key(s.Run, s.ID))
}

// String returns a short name for logs, such as "sft train_state 1f2e3d4c5b6a".
func (s Snapshot) String() string {
	return fmt.Sprintf("%s %s %.12s", s.Algorithm, s.Kind, s.ID)
}
