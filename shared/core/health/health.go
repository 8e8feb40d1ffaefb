// Package health judges other processes by their heartbeats.
//
// A worker's beat is one document, and the lease of every shard it lists.
//
//	beat ──▶ due_at = now + 2 × interval ──▶ (due) ──▶ overdue ──▶ dead
//
// A worker is dead when now − due_at exceeds both the skew budget and the
// failure timeout. The judge's own clock is the only one used; the skew budget
// pays for its difference from the worker's. The package reads no clock.
package health

import (
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
)

// Timings are the deployment's; see config.Health for the rules among them.
type Timings struct {
	Interval       time.Duration
	SelfFence      time.Duration
	FailureTimeout time.Duration
	SkewBudget     time.Duration
}

// State is what a worker says of itself.
type State string

// The states of a worker.
const (
	Init     State = "init"
	Ready    State = "ready"
	Draining State = "draining"
	Gone     State = "gone" // an orderly end; its shards were released before
)

// HeldShard is one shard in a worker's hands.
type HeldShard struct {
	Run     identity.RunID `json:"run"`
	Shard   int            `json:"shard"`
	Attempt uint64         `json:"attempt"`
	// Items of the shard, and how many of them have their row; 0 until loaded.
	Items int `json:"items,omitempty"`
	Rows  int `json:"rows,omitempty"`
	// Training is how far the training is that the shard is; nil if it is none,
	// or has not begun.
	Training *Training `json:"training,omitempty"`
}

// Training is how far a training is.
type Training struct {
	Step  int      `json:"step"` // taken
	Steps int      `json:"steps"`
	Loss  *float64 `json:"loss"` // of the last step, in nats; null before the first
	// Steps and tokens a second, lately; 0 if not known.
	StepRate  float64 `json:"step_rate"`
	TokenRate float64 `json:"token_rate"`
}

// Heartbeat is the document beat/<worker>. That worker alone writes it; functions
// write the last words of machines that could not, and take them back.
type Heartbeat struct {
	Schema      int         `json:"schema"`
	Worker      string      `json:"worker"`
	Pool        string      `json:"pool"`
	State       State       `json:"state"`
	At          time.Time   `json:"at"`     // the worker's clock
	DueAt       time.Time   `json:"due_at"` // At + 2 × interval
	Started     time.Time   `json:"started"`
	MaxInFlight int         `json:"in_flight"` // requests at once, at most
	Host        string      `json:"host,omitempty"`
	PID         int         `json:"pid,omitempty"`
	CPUs        int         `json:"cpus,omitempty"`
	GPUs        int         `json:"gpus,omitempty"`
	Instance    string      `json:"instance,omitempty"` // what the machine's cloud calls it
	Holds       []HeldShard `json:"holds,omitempty"`
	// FailureReason says why a rented machine left its fleet on which nobody could
	// work; "" if it did not. Then this is no worker's beat, but the machine's last
	// word.
	FailureReason string `json:"gave_up,omitempty"`
	// ProbationEngine names the engine that the worker has, or wants, to itself to ask
	// suspects; "" for none.
	ProbationEngine string `json:"trials,omitempty"`
	Load            Load   `json:"load"`
	// Control is the newest control sequence acted on, per run held.
	Control map[identity.RunID]uint64 `json:"control,omitempty"`
}

// Due is when the next beat is due.
func (t Timings) Due(now time.Time) time.Time { return now.Add(2 * t.Interval) }

// HeartbeatRetention is how long the beat of a worker that is no more is kept at least:
// for people to look at, and for who asks whether a worker was there at all.
const HeartbeatRetention = time.Hour

// Bounds of Visibility.
const (
	leastVisible = time.Second
	mostVisible  = 30 * time.Second
)

// Visibility is how long a message is hidden from others while a process
// handles it: no longer than it takes to find that process dead, so that the
// message comes back when it does not.
func (t Timings) Visibility() time.Duration {
	return min(max(t.FailureTimeout, leastVisible), mostVisible)
}

// Dead reports whether the worker of the beat is dead to the judge.
func (t Timings) Dead(b Heartbeat, now time.Time) bool {
	over := now.Sub(b.DueAt)
	return b.State == Gone || over > t.SkewBudget && over > t.FailureTimeout
}

// HoldsClaim reports whether the beat speaks for that claim of the shard.
func (b Heartbeat) HoldsClaim(run identity.RunID, n int, attempt uint64) bool {
	for _, h := range b.Holds {
		if h.Run == run && h.Shard == n && h.Attempt == attempt {
			return true
		}
	}
	return false
}

// Verdict is what a dispatched shard's document and its holder's beat say.
type Verdict string

// The verdicts.
const (
	Finished   Verdict = "finished"    // Done: coordinate may have missed it
	Alive      Verdict = "alive"       // held by a worker that speaks for it
	Unclaimed  Verdict = "unclaimed"   // nobody has it: its message may be lost
	HolderDead Verdict = "holder_dead" // the holder's heartbeat is over or was never there
	NotListed  Verdict = "disowned"    // a beat newer than the claim does not list it
)

// Judge gives the verdict on one shard. beat is the holder's, nil if it has
// none. A beat newer than the claim speaks against it: workers list a shard
// from before they write its claim.
func (t Timings) Judge(d shard.Doc, beat *Heartbeat, now time.Time) Verdict {
	switch {
	case d.State == shard.Done:
		return Finished
	case d.State != shard.Running:
		return Unclaimed
	case beat == nil || t.Dead(*beat, now):
		return HolderDead
	case beat.HoldsClaim(d.Run, d.Shard, d.Attempt):
		return Alive
	case beat.At.After(d.ClaimedAt):
		return NotListed
	}
	return Alive // claimed since its last beat; the next one will list it
}
