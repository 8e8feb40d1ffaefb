package record

import (
	"time"

	"rollout/shared/core/scaling"
)

// Fleet is the document fleet/<pool>: what functions know of the pool's machines in a cloud.
// Only functions write it.
type Fleet struct {
	Schema   int       `json:"schema"`
	AbsentAt time.Time `json:"absent_at,omitzero"` // when a machine last failed to start
	Absent   string    `json:"absent,omitempty"`   // why, in the cloud's words; for people
	// Problem is what kind of cause that is; "" if a version wrote it that did not say so.
	Problem scaling.ProblemKind `json:"problem,omitempty"`
	// Desired is how many machines the cloud shall keep for the pool, and Present how many of
	// them existed, when that was last seen to change, at SeenAt.
	Desired int       `json:"desired,omitempty"`
	Present int       `json:"present,omitempty"`
	SeenAt  time.Time `json:"seen_at,omitzero"`
	// Boots is what the past boots of the pool's machines tell about the next one.
	Boots scaling.Boots `json:"boots,omitzero"`
}

// NoteAbsence returns the document with the reason why no machine came, and true. An older
// reason changes nothing: the newest stands.
func (f Fleet) NoteAbsence(at time.Time, kind scaling.ProblemKind, why string) (Fleet, bool) {
	if !at.After(f.AbsentAt) {
		return f, false
	}
	f.Schema, f.AbsentAt, f.Absent, f.Problem = Schema, at.UTC(), why, kind
	return f, true
}

// See returns the document with the number of machines, and whether that is news.
func (f Fleet) See(desired, present int, at time.Time) (Fleet, bool) {
	if f.Desired == desired && f.Present == present {
		return f, false
	}
	f.Schema, f.Desired, f.Present, f.SeenAt = Schema, desired, present, at.UTC()
	return f, true
}
