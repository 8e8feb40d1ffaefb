// Package snapshot keeps folders of state, such as a training run's, so that
// they can be gone on from byte for byte.
//
// A snapshot is one deterministic archive of a folder: an object named by the
// blake3 of its bytes, so that equal folders have equal names anywhere, and a
// document that says whose it is. Restoring checks every byte before anything
// is visible, and takes only an archive that Save could have written.
//
// Documents decide. Save writes them in this order, and Prune in the other:
//
//	the bytes to pending/<ulid> ─▶ content/<id> names this save ─▶ the bytes at cas/… ─▶ snapshot/<run>/<id>
//
// So a process that ends in between leaves bytes that nobody sees, which the
// next Prune of the run removes, and never a snapshot without its bytes.
//
// The package never looks into what it keeps, never restores a part, and never
// deletes bytes that a snapshot of any run still names.
package snapshot

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
)

// Kind says what a snapshot holds. Example: "train_state".
type Kind string

// TrainState is all that a training run goes on from: parameters, moments of
// the optimizer, step and cursors.
const TrainState Kind = "train_state"

// RoleTar is the role of the one part that snapshots have: the archive.
const RoleTar = "tar"

// Snapshot is the document snapshot/<run>/<id>, written by the run's worker or
// by the command that trains.
type Snapshot struct {
	Schema    int             `json:"schema"`
	ID        string          `json:"id"` // of the archive's bytes, 64 hex digits
	Kind      Kind            `json:"kind"`
	Run       identity.RunID  `json:"run_id"`
	CreatedAt time.Time       `json:"created_at"`
	Label     string          `json:"label,omitempty"` // words for people
	Parts     []Part          `json:"parts"`
	Algorithm string          `json:"algorithm_id"`   // what made it. Example: "sft"
	Meta      json.RawMessage `json:"meta,omitempty"` // the algorithm's own; one JSON value
	Save      string          `json:"save"`           // names the save in content/<id>
}

// Part is one object of a snapshot.
type Part struct {
	Role    string `json:"role"`
	Content string `json:"content"` // blake3, 64 hex digits: where it is, see identity.ContentKey
	Length  int64  `json:"length"`  // bytes
}

// Details are what a snapshot's maker knows about it.
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

// Store keeps snapshots in a bucket and its documents. All methods may be
// called concurrently, by any number of processes.
type Store struct {
	Blobs  blob.Store
	Docs   document.Store
	Clock  clock.Clock
	Limits Limits // of folders and archives; zero is 10,000 entries, 1 TiB
}

const (
	prefix        = "snapshot/"
	contentPrefix = "content/"
)

// Key is where the document of a run's snapshot is.
func Key(run identity.RunID, id string) string { return prefix + string(run) + "/" + id }

// contentKey is where the document is that says which saves need an object.
func contentKey(id string) string { return contentPrefix + id }

func (d Details) check() error {
	switch {
	case !d.Run.Valid():
		return fault.New(fault.Invalid, "snapshot: %.64q is no run id", d.Run)
	case !word(string(d.Kind)):
		return fault.New(fault.Invalid, "snapshot of run %s: %.64q is no kind: use lower-case letters and underscores", d.Run, d.Kind)
	case !word(d.Algorithm):
		return fault.New(fault.Invalid, "snapshot of run %s: %.64q is not a valid algorithm: use lower-case letters and underscores", d.Run, d.Algorithm)
	case len(d.Label) > MaxLabel || strings.ContainsFunc(d.Label, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fault.New(fault.Invalid, "snapshot of run %s: the label must be at most %d bytes, on one line", d.Run, MaxLabel)
	case len(d.Meta) > MaxMeta:
		return fault.New(fault.Invalid, "snapshot of run %s: its meta is %d bytes, the limit is %d", d.Run, len(d.Meta), MaxMeta)
	case len(d.Meta) > 0 && !json.Valid(d.Meta):
		return fault.New(fault.Invalid, "snapshot of run %s: its meta is no JSON", d.Run)
	}
	return nil
}

// word reports whether s is 1 to 64 lower-case letters, digits and underscores.
func word(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	})
}

// part returns the archive's content and length, or Corrupt if the document
// names none.
func (s Snapshot) part() (identity.ContentID, int64, error) {
	if len(s.Parts) == 1 && s.Parts[0].Role == RoleTar && s.Parts[0].Content == s.ID && s.Parts[0].Length > 0 {
		if id, ok := identity.ParseContentID(s.ID); ok {
			return id, s.Parts[0].Length, nil
		}
	}
	return identity.ContentID{}, 0, fault.New(fault.Corrupt, "the document %s names no archive", Key(s.Run, s.ID))
}

// String is for logs. Example: "sft train_state 1f…".
func (s Snapshot) String() string {
	return fmt.Sprintf("%s %s %.12s", s.Algorithm, s.Kind, s.ID)
}
