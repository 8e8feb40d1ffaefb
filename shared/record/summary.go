package record

import (
	"time"

	"rollout/shared/core/identity"
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
	Items            uint64         `json:"items"`
	Completed        uint64         `json:"completed"`
	Failed           uint64         `json:"failed"`
	FailedByClass    map[string]int `json:"failed_by_class"`
	Copies           uint64         `json:"copies"` // items with the answer or the failure of another item
	Shards           int            `json:"shards"`
	PromptTokens     int64          `json:"prompt_tokens"`
	CompletionTokens int64          `json:"completion_tokens"`
	WastedTokens     int64          `json:"wasted_tokens"`
	CostUSD          float64        `json:"cost_usd"`
	Model            string         `json:"model"`
	Workers          []string       `json:"workers"`
	CreatedAt        time.Time      `json:"created_at"`
	StartedAt        time.Time      `json:"started_at,omitzero"`
	EndedAt          time.Time      `json:"ended_at"`
	Seconds          float64        `json:"seconds"`
	Outputs          string         `json:"outputs"`            // the key of completions.jsonl
	Errors           string         `json:"errors"`             // the key of errors.jsonl
	Training         *Trained       `json:"training,omitempty"` // of a training
}
