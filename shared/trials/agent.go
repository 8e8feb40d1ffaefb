package trials

import (
	"bytes"
	"encoding/json"
	"slices"

	"rollout/shared/jsonl"
)

// AgentRecord is the member "agent" of the row of a trial whose variant is an agent, and of its
// Fact: how the program ended, and what it used.
type AgentRecord struct {
	Isolation string `json:"isolation"` // the level: "full" or "trusted"
	// Enforced says what held each limit.
	Enforced any    `json:"enforced,omitempty"`
	Exit     string `json:"exit"`             // Examples: "exited", "time_limit"
	ExitCode int    `json:"exit_code"`        // of "exited"
	Signal   string `json:"signal,omitempty"` // of "signaled"
	Limit    string `json:"limit,omitempty"`  // that ended the trial. Examples: "time_limit", "tokens"

	Seconds    float64 `json:"seconds"`     // from the program's start to its end
	CPUSeconds float64 `json:"cpu_seconds"` // of all its processes
	PeakMemory int64   `json:"peak_memory"` // bytes; 0 if the kernel does not tell
	Output     int64   `json:"output"`      // bytes of standard output and error
	// Stderr is the beginning of what it wrote to its standard error.
	Stderr string `json:"stderr,omitempty"`

	Requests         int64 `json:"requests"`
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	Estimated        int64 `json:"estimated_requests,omitempty"` // whose tokens no server has counted
	Refused          int64 `json:"refused_requests,omitempty"`   // beyond a limit
	// Forbidden are requests for more than the model alone answers, and FirstForbidden says what was
	// wrong with the first.
	Forbidden      int64   `json:"forbidden_requests,omitempty"`
	FirstForbidden string  `json:"first_forbidden,omitempty"`
	Dollars        float64 `json:"dollars"`
	Tries          int     `json:"tries"` // of the trial, until a machine and a server were there

	// Result is result.json without its answer; Scores are the agent's own, of grade.json.
	Result json.RawMessage    `json:"result,omitempty"`
	Scores map[string]float64 `json:"scores,omitempty"`
}

// agentOf returns the member "agent" of a row; nil without one.
func agentOf(row []byte) json.RawMessage {
	o := jsonl.ReadKnownObject(row)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == "agent" {
			return bytes.Clone(m.Value)
		}
	}
	return nil
}

// TaskFile returns task.json of an agent: what it may see of the trial's line. These are the
// task's id, its messages, its prompt, and the members that shows names.
func TaskFile(line []byte, shows []string) ([]byte, error) {
	t, err := readTrial(line)
	if err != nil {
		return nil, err
	}
	dst := jsonl.AppendQuoted([]byte(`{"id":`), t.Task)
	o := jsonl.ReadKnownObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		switch string(m.Name) {
		case "messages":
			if prompt, ok := promptOf(m.Value); ok {
				dst = jsonl.AppendQuoted(append(dst, `,"prompt":`...), prompt)
			}
			dst = append(append(dst, `,"messages":`...), m.Value...)
		case "task":
			task := jsonl.ReadKnownObject(m.Value)
			for m, ok := task.Next(); ok; m, ok = task.Next() {
				if slices.Contains(shows, string(m.Name)) {
					dst = append(append(append(append(dst, ','), m.RawName...), ':'), m.Value...)
				}
			}
		}
	}
	return append(dst, '}'), nil
}

// promptOf returns the text of messages that are one of the user's.
func promptOf(messages []byte) (string, bool) {
	var list []struct {
		Role    string
		Content *string
	}
	if json.Unmarshal(messages, &list) != nil || len(list) != 1 || list[0].Role != "user" || list[0].Content == nil {
		return "", false
	}
	return *list[0].Content, true
}

// SeedOf returns the seed of a trial's line.
func SeedOf(line []byte) int64 {
	var asked struct{ Seed int64 }
	_ = json.Unmarshal(line, &asked) // a line of a trial has one
	return asked.Seed
}
