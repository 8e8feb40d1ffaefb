// Package health judges workers by their heartbeats.
//
// A worker's heartbeat is one document. It is also the lease of every shard that
// it lists, so shards need no renewal of their own.
//
//	heartbeat ──▶ due_at = now + 2 × interval ──▶ (due) ──▶ overdue ──▶ dead
//
// A worker is dead when now − due_at exceeds both the skew budget and the
// failure timeout. The caller passes its own clock's time; the skew budget covers
// the difference from the worker's clock. The package reads no clock and no
// document.
package health

import (
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
)

// Timings are the deployment's heartbeat settings. config.Health has the rules that
// they keep.
type Timings struct {
	Interval       time.Duration
	SelfFence      time.Duration
	FailureTimeout time.Duration
	SkewBudget     time.Duration
}

// State is the state that a worker reports of itself.
type State string

// The states of a worker.
const (
	Init     State = "init"
	Ready    State = "ready"
	Draining State = "draining"
	Gone     State = "gone" // ended in order; it released its shards before
	// Booting is the state of a machine without a worker so far. Its heartbeat says how far its
	// boot is, for people; no worker has written it, and the record of the machine's end replaces it.
	Booting State = "booting"
)

// HeldShard is one shard that a worker holds.
type HeldShard struct {
	Run     identity.RunID `json:"run"`
	Shard   int            `json:"shard"`
	Attempt uint64         `json:"attempt"`
	// Items are the shard's items, and Rows are those that have their row; both are 0
	// until the shard is loaded.
	Items int `json:"items,omitempty"`
	Rows  int `json:"rows,omitempty"`
	// AnsweredAt is when the holder's last request for an item of the shard was answered,
	// by the holder's clock; zero before the first.
	AnsweredAt time.Time `json:"answered_at,omitzero"`
	// Tokens are what the shard has spent in all its attempts; 0 in a run without a
	// budget in tokens.
	Tokens int64 `json:"tokens,omitempty"`
	// Machine is the time of machines of the worker's kind that the shard has taken in all
	// its attempts; zero where machines have no price.
	Machine cost.Use `json:"machine,omitzero"`
	// TokenNanoUSD is what the tokens of all its attempts cost, in billionths of a dollar; 0
	// where they have no price.
	TokenNanoUSD int64 `json:"token_nano_usd,omitempty"`
	// Training is the progress of the shard's training; nil for other shards and
	// before its first step.
	Training *Training `json:"training,omitempty"`
}

// Training is the progress of a training.
type Training struct {
	Step  int      `json:"step"` // taken
	Steps int      `json:"steps"`
	Loss  *float64 `json:"loss"` // of the last step, in nats; null before the first
	// StepRate and TokenRate are recent steps and tokens per second; 0 if unknown.
	StepRate  float64 `json:"step_rate"`
	TokenRate float64 `json:"token_rate"`
}

// Heartbeat is the document beat/<worker>. Only that worker writes it. For a
// machine that failed before it had a worker, functions write a Heartbeat with a
// FailureReason, and clear it later.
type Heartbeat struct {
	Schema      int       `json:"schema"`
	Worker      string    `json:"worker"`
	Pool        string    `json:"pool"`
	State       State     `json:"state"`
	At          time.Time `json:"at"`     // the worker's clock
	DueAt       time.Time `json:"due_at"` // At + 2 × interval
	Started     time.Time `json:"started"`
	MaxInFlight int       `json:"in_flight"` // the most requests at once
	Host        string    `json:"host,omitempty"`
	PID         int       `json:"pid,omitempty"`
	CPUs        int       `json:"cpus,omitempty"`
	GPUs        int       `json:"gpus,omitempty"`
	// Isolation is how strictly the machine isolates the programs of trials: "full", "trusted" or
	// "refused"; "" if the worker runs none.
	Isolation string `json:"isolation,omitempty"`
	Instance  string `json:"instance,omitempty"` // the cloud's name of the machine
	// Kind is the machine's kind, as a key of cost.Uses; "" if it has no price. Price is what
	// it costs in an hour, in dollars. Unclaimed is the time of it that no shard has taken.
	Kind      string      `json:"kind,omitempty"`
	Price     float64     `json:"usd_per_hour,omitempty"`
	Unclaimed cost.Use    `json:"unclaimed,omitzero"`
	Holds     []HeldShard `json:"holds,omitempty"`
	// FailureReason says why a rented machine left its fleet unusable. It is "" in a
	// worker's heartbeat; otherwise the document is the failure report of a machine.
	FailureReason string `json:"gave_up,omitempty"`
	// TakenBack says why the provider took a machine back before it answered anything. It is
	// "" in a worker's heartbeat. Such an end is not the machine's fault, and pauses no run.
	TakenBack string `json:"taken_back,omitempty"`
	// Boot is how far the boot of the machine is, or that it is over; nil in a worker's heartbeat,
	// and in the record of a machine's end.
	Boot *Boot `json:"boot,omitempty"`
	// ProbationEngine names the engine that the worker uses alone, or waits to use
	// alone, in order to ask suspects; "" if it does neither.
	ProbationEngine string `json:"trials,omitempty"`
	Load            Load   `json:"load"`
	// Online is what the worker does for online requests; nil if it takes none.
	Online *Online `json:"online,omitempty"`
	// Control is the newest control sequence applied, by held run.
	Control map[identity.RunID]uint64 `json:"control,omitempty"`
}

// OnlineReadEvery is how often the door of online requests reads the heartbeats: for so long after
// a ProbationEngine is written, the engine's other workers may still get such requests.
const OnlineReadEvery = 250 * time.Millisecond

// Online is what a worker does for online requests: those of clients that wait for the
// answer. They belong to no run.
type Online struct {
	Socket string `json:"socket"` // path of the Unix socket at which it takes them
	// Engine names the engine, if workers share it. While another worker has it as its
	// ProbationEngine, it gets no online requests.
	Engine   string `json:"engine,omitempty"`
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"` // for a slot
	Limit    int    `json:"limit"`   // the most in flight
}

// Boot is how far the boot of a machine is.
type Boot struct {
	Stage BootStage `json:"stage"`
	Since time.Time `json:"since"` // the machine's clock
}

// BootStage is a stage of a boot. Example: "model".
type BootStage string

// The stages of a boot that a machine reports.
const (
	BootImage BootStage = "image" // it fetches the container image of its servers
	BootModel BootStage = "model" // it fetches the model, and its servers load it
	BootReady BootStage = "ready" // its servers answer; its workers start
)

// BootStages returns the stages in their order.
func BootStages() []BootStage { return []BootStage{BootImage, BootModel, BootReady} }

// Due returns when the heartbeat after one of now is due.
func (t Timings) Due(now time.Time) time.Time { return now.Add(2 * t.Interval) }

// RestInterval returns the time between the heartbeats of a worker that has nothing to
// do. Three of them fit into the self-fence time, so that such a worker keeps its lease
// although one fails, and is no more often taken for dead than a busy one.
func (t Timings) RestInterval() time.Duration {
	return max(t.Interval, min(4*t.Interval, t.SelfFence/3))
}

// HeartbeatRetention is how long at least the heartbeat of an ended worker is kept:
// for users, and for functions that ask whether a machine ever had a worker.
const HeartbeatRetention = time.Hour

// Bounds of Visibility.
const (
	minVisibility = time.Second
	maxVisibility = 30 * time.Second
)

// Visibility returns how long a queue hides a message from other receivers while
// a process handles it. It is the failure timeout within bounds, so that the
// message returns when its receiver is found dead.
func (t Timings) Visibility() time.Duration {
	return min(max(t.FailureTimeout, minVisibility), maxVisibility)
}

// Dead reports whether the worker of the heartbeat is dead at now.
func (t Timings) Dead(b Heartbeat, now time.Time) bool {
	over := now.Sub(b.DueAt)
	return b.State == Gone || over > t.SkewBudget && over > t.FailureTimeout
}

// HoldsClaim reports whether the heartbeat lists that claim of the shard.
func (b Heartbeat) HoldsClaim(run identity.RunID, n int, attempt uint64) bool {
	for _, h := range b.Holds {
		if h.Run == run && h.Shard == n && h.Attempt == attempt {
			return true
		}
	}
	return false
}

// Spent returns what a claim of a shard has spent by the heartbeat; zero if it does not list
// the claim.
func (b Heartbeat) Spent(run identity.RunID, n int, attempt uint64) shard.Spent {
	for _, h := range b.Holds {
		if h.Run == run && h.Shard == n && h.Attempt == attempt {
			return shard.Spent{Tokens: h.Tokens, Kind: b.Kind, Machine: h.Machine, TokenNanoUSD: h.TokenNanoUSD}
		}
	}
	return shard.Spent{}
}

// Verdict is the state of a sent shard by its document and its holder's heartbeat.
type Verdict string

// The verdicts.
const (
	Finished   Verdict = "finished"    // Done; coordinate may have missed the event
	Alive      Verdict = "alive"       // held by a living worker that lists it
	Unclaimed  Verdict = "unclaimed"   // without a holder; its message may be lost
	HolderDead Verdict = "holder_dead" // the holder is dead or never had a heartbeat
	NotListed  Verdict = "disowned"    // a heartbeat newer than the claim does not list it
)

// Judge returns the verdict on one shard. beat is the holder's heartbeat, or nil if
// there is none. Workers list a shard before they write its claim, so a heartbeat
// that is newer than the claim and does not list it disproves the claim.
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
	return Alive // claimed after its last heartbeat, the next one lists it
}

// Load is what a worker observed of its engine recently. It only explains to users
// why a run is slow; no decision depends on it. The zero value is that of a worker
// without requests so far.
type Load struct {
	InFlight int `json:"busy"` // requests at the engine now
	// Rows counts the items that got their row since the worker started. Tokens
	// counts the completion tokens of those rows.
	Rows   int64     `json:"rows"`
	Tokens int64     `json:"tokens"`
	RowAt  time.Time `json:"row_at,omitzero"` // of the last row, to within a heartbeat
	// Rate and TokenRate are rows and completion tokens per second over the last 30 s.
	Rate      float64 `json:"rate"`
	TokenRate float64 `json:"token_rate"`
	// MedianMS is the median duration of the last answered requests.
	MedianMS int64 `json:"median_ms"`
	// Faults counts the failed requests since the worker started. LastFault is the
	// kind of the last failure. Example: "throttled".
	Faults    int64  `json:"faults"`
	LastFault string `json:"fault,omitempty"`
	// UnavailableReason says why the engine cannot answer; "" while it can.
	UnavailableReason string    `json:"away,omitempty"`
	UnavailableSince  time.Time `json:"away_since,omitzero"`
	// Servers are the servers behind the engine, if it balances several.
	Servers []Server `json:"servers,omitempty"`
	// Pipeline is how well the worker's group of processes works; nil without one.
	Pipeline *Pipeline `json:"pipeline,omitempty"`
	// Limit is the pool's limit on requests; nil without one.
	Limit *Limit `json:"limit,omitempty"`
	// Runs are the runs of which the worker holds shards, in the order of their ids.
	Runs []RunLoad `json:"runs,omitempty"`
}

// Pipeline is how well the stages of a worker's group of processes overlap.
type Pipeline struct {
	Signature    string  `json:"signature"`     // what bounds it. Example: "stage 1 bound"
	OverlapScore float64 `json:"overlap_score"` // share of the shorter stage that was hidden
	Dropped      int     `json:"dropped"`       // results of earlier epochs
}

// RunLoad is what one run has of a worker.
type RunLoad struct {
	Run      identity.RunID `json:"run"`
	InFlight int            `json:"busy"` // its requests at the engine now
	// Rate and TokenRate are its rows and completion tokens per second over the last 30 s,
	// or since its first request if that is less.
	Rate      float64   `json:"rate"`
	TokenRate float64   `json:"token_rate"`
	RowAt     time.Time `json:"row_at,omitzero"` // of its last row, to within a heartbeat
}

// Of returns what the run has of the worker.
func (l Load) Of(id identity.RunID) (RunLoad, bool) {
	for _, r := range l.Runs {
		if r.Run == id {
			return r, true
		}
	}
	return RunLoad{}, false
}

// Limit is what the worker may ask its engine in a minute.
type Limit struct {
	// Requests and Tokens are the limits of the whole pool; 0 sets none.
	Requests int64 `json:"requests_per_minute,omitempty"`
	Tokens   int64 `json:"tokens_per_minute,omitempty"`
	// RequestsFrom and TokensFrom say where they come from: "config", "headers" of the
	// server, or "refusals", what it answered in the minute before it refused.
	RequestsFrom string `json:"requests_from,omitempty"`
	TokensFrom   string `json:"tokens_from,omitempty"`
	// UsedRequests and UsedTokens are what this worker used in the last minute.
	UsedRequests int64 `json:"used_requests,omitempty"`
	UsedTokens   int64 `json:"used_tokens,omitempty"`
	// WaitUntil is until when the server wants no requests; zero if it takes some.
	WaitUntil time.Time `json:"wait_until,omitzero"`
	// ShareRequests and ShareTokens are what this worker may use of them now.
	ShareRequests int64 `json:"share_requests,omitempty"`
	ShareTokens   int64 `json:"share_tokens,omitempty"`
	// Waiting is how many requests waited for the limit at once since the last
	// heartbeat, at most. WaitingSince is when those that wait now began to.
	Waiting      int       `json:"waiting"`
	WaitingSince time.Time `json:"waiting_since,omitzero"`
}

// MaxServers is how many servers a heartbeat lists at most.
const MaxServers = 64

// Server is one inference server as a worker observes it.
type Server struct {
	Name     string `json:"name"`  // Example: "http://127.0.0.1:8000/v1"
	State    string `json:"state"` // of its circuit breaker, or ServerSetAside
	InFlight int    `json:"in_flight"`
	Limit    int    `json:"limit"` // requests at once; 0: no limit of its own
	// Waiting is how many requests of all clients wait at the server, as it reports;
	// negative if it reports nothing.
	Waiting int `json:"waiting"`
	// LastError is set if it is not healthy, or lists another model than it is asked for, or
	// answers as another one.
	LastError string `json:"why,omitempty"`
}

// States of a Server, beside those of a circuit breaker that is not closed.
const (
	ServerClosed = "closed" // it is healthy
	// ServerSetAside gets no requests of items, because it failed many or all of them.
	ServerSetAside = "set_aside"
)
