package leaderboard

import (
	"time"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/statistics"
	"rollout/shared/record"
)

// Run is an ended run of trials.
type Run struct {
	Blobs    blob.Store
	Manifest record.Manifest
}

// Report is what trials show. Numbers that need more trials are null.
type Report struct {
	Run          identity.RunID        `json:"run_id"`
	Name         string                `json:"name"`
	Phase        string                `json:"phase"`
	Model        string                `json:"model"`
	EndedAt      time.Time             `json:"ended_at"`
	CostUSD      float64               `json:"cost_usd"`
	Tasks        int                   `json:"tasks"`
	Trials       int                   `json:"trials"`
	Replications int                   `json:"replications"`
	Variants     []record.TrialVariant `json:"variants"` // the best first
	JudgesUSD    *float64              `json:"judges_usd"`
	// Reducer makes the score of a task of the scores of its trials, for Pairs and Flips. Reduced are
	// the means of these scores; it is absent for the mean, which Variants have.
	Reducer string    `json:"reducer"`
	Reduced []Reduced `json:"reduced,omitempty"` // in the order of Variants
	Pairs   []Pair    `json:"pairs"`             // of all variants, in that order
	Passes  []Pass    `json:"passes"`
	// Unsolved are the first tasks of which no trial is right, and Solved those of which all are,
	// under any variant; right is a score of 1 or more.
	Unsolved Tasks `json:"unsolved"`
	Solved   Tasks `json:"solved"`
	// Flips are the tasks on which the variants First and Second differ most.
	First  string `json:"first,omitempty"`
	Second string `json:"second,omitempty"`
	Flips  []Flip `json:"flips"`
	Better int    `json:"better"` // tasks on which Second is better
	Worse  int    `json:"worse"`  // and on which it is worse
}

// Tasks is a list of tasks, of which the first ones are named.
type Tasks struct {
	Count int      `json:"count"`
	First []string `json:"first"`
}

// Reduced is the mean over a variant's tasks of what the reducer makes of each, with its 95 %
// interval.
type Reduced struct {
	Variant string   `json:"variant"`
	Tasks   int      `json:"tasks"` // that have enough trials for the reducer
	Score   *float64 `json:"score"`
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
}

// Pair compares two variants on the tasks that both have a score of: by the mean of a task's
// trials.
type Pair struct {
	First      string   `json:"first"`
	Second     string   `json:"second"`
	Tasks      int      `json:"tasks"`
	Better     int      `json:"better"`     // tasks on which Second is better
	Worse      int      `json:"worse"`      // and on which it is worse
	Difference *float64 `json:"difference"` // of the mean scores, Second − First
	// Low and High are its 95 % interval: of a bootstrap over tasks, or Student's for scores of 0
	// and 1.
	Low  *float64        `json:"low"`
	High *float64        `json:"high"`
	P    *float64        `json:"p"`
	Test statistics.Test `json:"test"`
	// Adjusted is P, adjusted for the number of pairs (Holm).
	Adjusted *float64 `json:"p_adjusted"`
	// Detectable is the least difference that so many tasks show in four of five cases.
	Detectable *float64 `json:"detectable"`
}

// Pass is how likely K trials of a task are right, under each variant in the order of the report:
// at least one of them (pass@k), and all of them (pass^k). Tasks counts those with K scores or
// more.
type Pass struct {
	K     int        `json:"k"`
	Any   []*float64 `json:"any"`
	All   []*float64 `json:"all"`
	Tasks []int      `json:"tasks"`
}

// Flip is a task on which two variants differ, with one trial of each: of the same replication, if
// their scores differ in one.
type Flip struct {
	Task   string `json:"task"`
	First  Side   `json:"first"`
	Second Side   `json:"second"`
}

// Side is one of the two variants.
type Side struct {
	Mean   float64  `json:"mean"` // of the task's trials, or what another reducer makes of them
	Trial  string   `json:"trial_id"`
	Score  *float64 `json:"score"`
	Answer string   `json:"answer"` // its beginning; "" of a trial that failed
	class  string
}
