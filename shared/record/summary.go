package record

import (
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/grade"
)

// Summary is the object runs/<run>/summary.json. Finalize writes it last: when it
// exists, all other output files do.
type Summary struct {
	Schema           int            `json:"schema"`
	Run              identity.RunID `json:"run_id"`
	Name             string         `json:"name"`
	Phase            string         `json:"phase"`
	Reason           string         `json:"reason"`
	Message          string         `json:"message,omitempty"`
	Warnings         []string       `json:"warnings,omitempty"` // what held the run up, and did not end it
	Items            uint64         `json:"items"`
	Completed        uint64         `json:"completed"`
	Failed           uint64         `json:"failed"`
	FailedByClass    map[string]int `json:"failed_by_class"`
	Copies           uint64         `json:"copies"` // items with the answer or the failure of another item
	Shards           int            `json:"shards"`
	PromptTokens     int64          `json:"prompt_tokens"`
	CompletionTokens int64          `json:"completion_tokens"`
	WastedTokens     int64          `json:"wasted_tokens"`
	WastedEstimated  int64          `json:"wasted_estimated,omitempty"` // of the wasted tokens
	CachedTokens     int64          `json:"cached_tokens,omitempty"`    // of the prompt tokens, as servers report them
	ReasoningTokens  int64          `json:"reasoning_tokens,omitempty"` // of the completion tokens, likewise
	CostUSD          float64        `json:"cost_usd"`                   // the sum of the lines of Cost
	Cost             Cost           `json:"cost"`
	Budgets          []Budget       `json:"budgets,omitempty"` // of the run, with what it spent of them
	Model            string         `json:"model"`
	Workers          []string       `json:"workers"`
	CreatedAt        time.Time      `json:"created_at"`
	StartedAt        time.Time      `json:"started_at,omitzero"`
	EndedAt          time.Time      `json:"ended_at"`
	Seconds          float64        `json:"seconds"`
	Outputs          string         `json:"outputs"`            // the key of completions.jsonl
	Errors           string         `json:"errors"`             // the key of errors.jsonl
	Training         *Trained       `json:"training,omitempty"` // of a training
	// Retry says where the rows of a child come from; nil for a run of its own.
	Retry *Retry `json:"retry,omitempty"`
	// Rollout is what a rollout selected; nil in other runs.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Trials is what the variants of a run of trials came to; nil in other runs.
	Trials *Trials `json:"trials,omitempty"`
	// FinishReasons counts the answers by finish reason, without copies; "none" is an
	// answer for which the server gave no reason.
	FinishReasons map[string]int `json:"finish_reasons,omitempty"`
	// UsageUnknown is how many answers have estimated tokens, because the server did
	// not report them.
	UsageUnknown int `json:"usage_unknown,omitempty"`
	// Score and Scores are the mean scores of the completed items: of the rows' own
	// scores, and of each grader. They are absent in a run without graders.
	Score  *MeanScore           `json:"score,omitempty"`
	Scores map[string]MeanScore `json:"scores,omitempty"`
	// Roles are the counts by role, from the answer on, in a run of several roles. The
	// items above are those of the answer, and the tokens those of all roles.
	Roles []RoleCounts `json:"roles,omitempty"`
}

// Retry says what the rows of a child come from: its parent, or its own requests.
type Retry struct {
	Parent
	// ParentCompleted and ParentFailed are the rows of the parent.
	ParentCompleted uint64 `json:"parent_completed"`
	ParentFailed    uint64 `json:"parent_failed"`
	Kept            uint64 `json:"kept"`        // answers that are the parent's
	KeptFailed      uint64 `json:"kept_failed"` // error rows that are the parent's
	Asked           uint64 `json:"asked"`       // items that were selected
	Answered        uint64 `json:"answered"`    // of Asked
	StillFailed     uint64 `json:"still_failed"`
	// StillFailedByClass counts StillFailed; absent if items were selected by their
	// indexes.
	StillFailedByClass map[string]int `json:"still_failed_by_class,omitempty"`
}

// RefusedLines returns how many lines of the input are not items of the run, because the
// run could not read them as such.
func (s Summary) RefusedLines() int {
	if s.Rollout == nil {
		return 0
	}
	return s.Rollout.Refused
}

// Rollout is how far a rollout is, or what it came to.
type Rollout struct {
	Stage      string `json:"stage,omitempty"` // what is asked now. Example: "answer"; "" after the end
	Epoch      int    `json:"epoch,omitempty"` // the present one, from 1; 0 after the end
	Epochs     int    `json:"epochs"`
	Batch      int    `json:"batch,omitempty"` // the newest one, from 1; 0 after the end
	Batches    int    `json:"batches"`
	Tickets    int    `json:"tickets"`               // of the batches that are over
	AllTickets int    `json:"all_tickets,omitempty"` // of the run; 0 after the end
	AllItems   int    `json:"all_items,omitempty"`   // answers of AllTickets; 0 after the end
	Refused    int    `json:"refused_lines"`         // invalid lines of the input
	Answered   int    `json:"answered"`              // answers with a verdict
	// Failed counts the answers without a verdict by cause: unparsable, or the class of an
	// item's failure.
	Failed map[string]int `json:"failed,omitempty"`
	Review int            `json:"review"` // tickets that a person shall look at
	// Agreement is the mean share of the votes that the selected verdicts have, Accuracy
	// the share of those with a label that equal it, and Score the mean score of answers;
	// null if there is nothing to divide by.
	Agreement *float64 `json:"agreement"`
	Accuracy  *float64 `json:"accuracy"`
	Score     *float64 `json:"score"`
	// Guidance is the newest step of each mission's guidance. Of the Reflections so many
	// were Accepted. Stopped says why the run ended before its last epoch.
	Guidance    map[string]int `json:"guidance,omitempty"`
	Reflections int            `json:"reflections,omitempty"`
	Accepted    int            `json:"accepted,omitempty"`
	Stopped     string         `json:"stopped,omitempty"`
	// Fronts is how many guidances the front of each mission has, with reflection.pareto.
	Fronts map[string]int `json:"fronts,omitempty"`
	// Unsound are the checks of audit.json that do not hold, of an ended run without
	// reflection.
	Unsound []string `json:"unsound,omitempty"`
	// Missions is what an ended run came to, by mission.
	Missions map[string]Mission `json:"missions,omitempty"`
}

// Mission is what a rollout came to in one mission.
type Mission struct {
	Steps    int  `json:"steps"`    // of its guidance beyond the one that it began with
	Promoted int  `json:"promoted"` // the step that guidance.json had at the end of the run
	Gated    bool `json:"gated"`    // each step was compared with the one before
	// Scores are the mean scores of the answers under each step, from 0 on; null without
	// scores.
	Scores []*float64 `json:"scores"`
	// HoldoutAtStart and Holdout are the mean scores of step 0 and of the promoted step on
	// HoldoutTickets that decide nothing; absent if there are none.
	HoldoutTickets int      `json:"holdout_tickets,omitempty"`
	HoldoutAtStart *float64 `json:"holdout_at_start,omitempty"`
	Holdout        *float64 `json:"holdout,omitempty"`
}

// MeanScore is the mean of the scores that completed items have. Items without a
// score do not enter the mean and are counted.
type MeanScore struct {
	Mean           *float64               `json:"mean"` // null if no item has a score
	Scored         uint64                 `json:"scored"`
	Missing        uint64                 `json:"missing"`
	MissingByCause map[grade.Cause]uint64 `json:"missing_by_cause,omitempty"` // of a grader
}

// RoleCounts are the outcomes of the items of one role.
type RoleCounts struct {
	Name             string         `json:"name"`
	Pool             string         `json:"pool"`
	Model            string         `json:"model"`
	Output           bool           `json:"output,omitempty"` // see Role.Output
	Shards           int            `json:"shards"`
	Items            uint64         `json:"items"`
	Completed        uint64         `json:"completed"`
	Failed           uint64         `json:"failed"`
	FailedByClass    map[string]int `json:"failed_by_class"`
	PromptTokens     int64          `json:"prompt_tokens"`
	CompletionTokens int64          `json:"completion_tokens"`
	WastedTokens     int64          `json:"wasted_tokens"`
	WastedEstimated  int64          `json:"wasted_estimated,omitempty"`
}
