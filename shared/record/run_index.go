package record

import (
	"fmt"
	"strings"
	"time"

	"rollout/shared/core/identity"
)

// The index of runs makes looking at runs independent of how many there ever were:
//
//	submit ─▶ open/<run>, named/<name>, then the manifest
//	reclaim, when the run has ended ─▶ ended/<time>.<run>, then open/<run> is deleted
//
// A run is at every time under open/ or under ended/, and for a moment under both.
// Readers list open/ first, so that they do not miss a run that moves meanwhile.

// EndedPrefix is the prefix of the entries of ended runs, the last to end first. Only
// reclaim writes them.
const EndedPrefix = "ended/"

// RunIndexKey is the key of the RunIndex. It sorts before all entries of ended runs, so
// that a reader of their first page has it without another request.
const RunIndexKey = EndedPrefix + "!index"

// EndedKey returns the key of the entry of a run that ended at a time.
// Example: "ended/fffffe6b5d3a8fff.01JD2ZQ4T5W0M1X9YB7R3K8CVE".
func EndedKey(at time.Time, r identity.RunID) string { return EndedAfter(at) + string(r) }

// EndedAfter returns what sorts directly before the entries of runs that ended at or
// before a time, and behind those of all later ones.
func EndedAfter(at time.Time) string { return EndedPrefix + descending(at) + "." }

// descending renders a time so that later ones sort first.
func descending(at time.Time) string { return fmt.Sprintf("%016x", ^uint64(max(0, at.UnixMilli()))) }

// RunIndex is the document ended/!index: what is known of the entries of ended runs as a
// whole. Only reclaim writes it.
type RunIndex struct {
	Schema int `json:"schema"`
	// Built says that every run is in the index. Runs of earlier versions are entered
	// first, page after page, and readers list all manifests until then.
	Built bool   `json:"built,omitempty"`
	After string `json:"after,omitempty"` // the last manifest that was entered, before Built
	Ended int    `json:"ended"`           // entries of ended runs
	// Entered are runs that are counted and whose notes under open/ may be left. A change that
	// is repeated after a crash, or by another process, is not counted again.
	Entered []identity.RunID `json:"entered,omitempty"`
	// Linked says that every child is entered under its parent: see ParentPrefix. Runs of
	// earlier versions are entered as those of which Built tells. No run expires before.
	Linked bool `json:"linked,omitempty"`
	// Expired counts the runs whose documents were deleted, and Expiring are those whose
	// documents are being deleted. ExpireAfter is the entry behind which to look for more; "" is
	// the first one that is old enough.
	Expired     int        `json:"expired,omitempty"`
	Expiring    []Expiring `json:"expiring,omitempty"`
	ExpireAfter string     `json:"expire_after,omitempty"`
}

// NamedRun is an entry of the index of runs by what users call them: a name, or the key of
// an input. Submit creates it before the manifest, so that an entry may be of a run that
// never was, or that has another name. The first ones of a prefix are of the newest runs.
type NamedRun struct {
	Schema  int            `json:"schema"`
	Run     identity.RunID `json:"run"`
	Created time.Time      `json:"created"`
	Size    int64          `json:"size,omitempty"` // of the input
}

// NamedPrefix is the prefix of the entries of the index by name and by input.
const NamedPrefix = "named/"

// NamePrefix returns the prefix of the entries of runs with a name.
func NamePrefix(name string) string { return namedPrefix("name " + name) }

// InputPrefix returns the prefix of the entries of runs that were made from an object.
func InputPrefix(key string) string { return namedPrefix("input " + key) }

// ParentPrefix returns the prefix of the entries of the children of a run.
func ParentPrefix(parent identity.RunID) string { return namedPrefix("parent " + string(parent)) }

// namedPrefix keeps keys short and printable, whatever users call their runs.
func namedPrefix(text string) string {
	return NamedPrefix + identity.NewHasher().Content([]byte(text)).String()[:32] + "/"
}

// NamedKey returns the key of the entry of a run under a NamePrefix, an InputPrefix or a
// ParentPrefix.
func NamedKey(prefix string, created time.Time, r identity.RunID) string {
	return prefix + descending(created) + "." + string(r)
}

// NamedEntry is an entry of the index by name, by input, by parent or by time, and its key.
type NamedEntry struct {
	Key string
	NamedRun
}

// NamedEntries returns the entries of a run: that by its name and, of a child, that under its
// parent. On one machine there is one by its time, too, and if it may have been made from an
// upload, one by its input.
func NamedEntries(m Manifest, oneMachine bool) []NamedEntry {
	entry := func(prefix string, size int64) NamedEntry {
		return NamedEntry{NamedKey(prefix, m.CreatedAt, m.Run),
			NamedRun{Schema: Schema, Run: m.Run, Created: m.CreatedAt, Size: size}}
	}
	out := []NamedEntry{entry(NamePrefix(m.Name), 0)}
	if oneMachine {
		out = append(out, entry(CreatedPrefix, 0))
	}
	if oneMachine && m.InputCount() == 1 && m.Parent == nil {
		out = append(out, entry(InputPrefix(m.Inputs[0].Key), m.Inputs[0].Size))
	}
	if m.Parent != nil {
		out = append(out, entry(ParentPrefix(m.Parent.Run), 0))
	}
	return out
}

// RunOfEntry returns the run of an EndedKey or a NamedKey, and whether the key is one.
func RunOfEntry(key string) (identity.RunID, bool) {
	r := identity.RunID(key[strings.LastIndexByte(key, '.')+1:])
	return r, r.Valid()
}
