package rollout

import (
	"encoding/json"

	"rollout/shared/core/selection"
)

// The files of a rollout, under runs/<run>/.
const (
	TrajectoriesFile = "trajectories.jsonl"  // a row for each answer with a verdict
	FailuresFile     = "failures.jsonl"      // a row for each answer without one, and for each invalid line
	SelectionsFile   = "selections.jsonl"    // a row for each ticket
	ReviewFile       = "manual_review.jsonl" // a row for each ticket that a person shall look at
	MetricsFile      = "metrics_epoch.jsonl" // a row for each epoch
	ReflectionFile   = "reflection.jsonl"    // a row for each reflection
	CandidatesFile   = "candidates.jsonl"    // a row for each plan that a reflection made
	FrontsFile       = "fronts.jsonl"        // a row for each change of a front, in a run with reflection.pareto
	DistillFile      = "distill.jsonl"       // a chat for each ticket whose selected answer is worth learning
	PreferencesFile  = "preferences.jsonl"   // a pair for each ticket with a better and a worse answer
	AttemptsFile     = "attempts.jsonl"      // a row for each shard: who answered it
	AuditFile        = "audit.json"          // of a run without reflection: an Audit
)

// about names the ticket of a row.
type about struct {
	Group   string  `json:"group_id"`
	Mission string  `json:"mission"`
	Label   *string `json:"label"` // null if there is none
	Epoch   int     `json:"epoch"`
	Batch   int     `json:"batch"`
	Step    int     `json:"step"` // of the guidance that it was answered under
}

// draw names the member of a row.
type draw struct {
	ID string `json:"id"` // of the row in completions.jsonl or errors.jsonl
	about
	Decode int   `json:"decode"`
	Sample int   `json:"sample"`
	Seed   int64 `json:"seed"`
}

// Trajectory is a row of TrajectoriesFile.
type Trajectory struct {
	draw
	Verdict   string          `json:"verdict"`
	Selected  bool            `json:"selected"`
	Score     *float64        `json:"score"`
	Advantage *float64        `json:"advantage"`
	Scores    json.RawMessage `json:"scores,omitempty"`
	Text      string          `json:"completion"`
	Finish    string          `json:"finish_reason"`
	Usage     json.RawMessage `json:"usage"`
	Response  json.RawMessage `json:"response,omitempty"`
}

// Failure is a row of FailuresFile about a member. Rows about an invalid line are Refused.
type Failure struct {
	draw
	Cause   string          `json:"cause"`
	Message string          `json:"message,omitempty"`
	Score   *float64        `json:"score"`                // 0 for an answer without a verdict, null without an answer
	Text    string          `json:"completion,omitempty"` // of an answer without a verdict
	Usage   json.RawMessage `json:"usage,omitempty"`
}

// Selected is a row of SelectionsFile and of ReviewFile.
type Selected struct {
	about
	Verdict    *string          `json:"verdict"` // null without a selection
	ID         string           `json:"id,omitempty"`
	Agreement  float64          `json:"agreement"`
	Votes      []selection.Vote `json:"votes"`
	LabelMatch *bool            `json:"label_match"`
	Teaches    selection.Lesson `json:"teaches"`
	Review     selection.Review `json:"review"`
	Mean       *float64         `json:"mean"`
	Spread     *float64         `json:"spread"`
	Members    int              `json:"members"`
	Failed     map[string]int   `json:"failed,omitempty"`
}

// Metrics is a row of MetricsFile.
type Metrics struct {
	Epoch   int `json:"epoch"`
	Batches int `json:"batches"`
	// Replaced is how many of the tickets took the place of others that teach nothing.
	Replaced int `json:"replaced,omitempty"`
	Totals
	MeanAgreement *float64 `json:"agreement"`
	Accuracy      *float64 `json:"accuracy"` // of the selections that have a label
	MeanScore     *float64 `json:"score"`

	from int // the first batch
}

// Attempt is a row of AttemptsFile: the shard of a batch and who answered it. It is the
// only file that may differ between two runs with the same answers.
type Attempt struct {
	Shard   int    `json:"shard"`
	Items   int    `json:"items"`
	Attempt uint64 `json:"attempt"`
	Worker  string `json:"worker,omitempty"`
}

// FrontRow is a row of FrontsFile: a mission's front after a reflection.
type FrontRow struct {
	Reflection int           `json:"reflection"`
	Mission    string        `json:"mission"`
	Members    []FrontMember `json:"members"`
}

// candidateRow is a row of CandidatesFile.
type candidateRow struct {
	Reflection int    `json:"reflection"`
	Mission    string `json:"mission"`
	Step       int    `json:"step"` // that it was made from
	Number     int    `json:"candidate"`
	Accepted   bool   `json:"accepted"`
	Candidate
}
