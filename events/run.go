package events

import "cmp"

// The types of events about runs.
const (
	TypeObjectCreated   Type = "rollout.object.created.v1"
	TypeRunSubmitted    Type = "rollout.run.submitted.v1"
	TypeRetryRequested  Type = "rollout.run.retry.v1"
	TypeBatchRequested  Type = "rollout.run.batch.v1"
	TypePlanRange       Type = "rollout.range.plan.v1"
	TypePlanAdvanced    Type = "rollout.plan.advanced.v1"
	TypeWakeup          Type = "rollout.run.ring.v1"
	TypeControlChanged  Type = "rollout.control.changed.v1"
	TypeFinalize        Type = "rollout.run.finalize.v1"
	TypeFinalizeSegment Type = "rollout.segment.finalize.v1"
	TypeFinalized       Type = "rollout.run.finalized.v1"
)

// ObjectCreated reports that an object was written. A bucket sends it, and submit
// decides whether the object is a run.
type ObjectCreated struct {
	// Bucket is the bucket's name in the deployment.
	Bucket string `json:"bucket"`
	// Key is the object's key, such as "prompts/nightly.jsonl".
	Key string `json:"key"`
	// Version identifies the object's bytes.
	Version string `json:"version"`
	// Size is the object's length in bytes.
	Size int64 `json:"size" jsonschema:"minimum=0"`
	// Found says that the object may be an earlier one under a new version: "kept" if it
	// was there when the bucket's watch began, "returned" if its key had an object before,
	// and then none.
	Found string `json:"found,omitempty" jsonschema:"enum=kept,enum=returned"`
}

// RunSubmitted asks plan to start or continue planning a run whose manifest exists.
type RunSubmitted struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
}

// RetryRequested asks submit for a child of an ended run, which asks some of its items
// again.
type RetryRequested struct {
	// Run is the child's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Parent is the ended run's id.
	Parent string `json:"parent" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Only selects items by their rows: failed, unanswered, unscored, all, or classes.
	Only []string `json:"only,omitempty"`
	// Items selects items by their indexes: a gap from 0, a length, a gap, a length
	// and so on.
	Items []int `json:"items,omitempty"`
	// FinishReasons selects answered items by how an answer ended.
	FinishReasons []string `json:"finish_reasons,omitempty"`
	// Set are settings over those of the parent's config, such as
	// "sampling.max_tokens=800".
	Set []string `json:"set,omitempty"`
	// Amend adds trials to those of the parent, and no item is asked again.
	Amend *Amend `json:"amend,omitempty"`
}

// Amend says what a child adds to the trials of its parent.
type Amend struct {
	// Replications is how often each task is tried under each variant; 0 leaves it.
	Replications int `json:"replications,omitempty" jsonschema:"minimum=0"`
	// Variants are further variants, as JSON text: a list as a config has it.
	Variants string `json:"variants,omitempty"`
	// Tasks is the name of a file of further tasks, whose content the child's object of tasks has.
	Tasks string `json:"tasks,omitempty"`
}

// BatchRequested asks submit for the run of a batch whose document exists.
type BatchRequested struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
}

// PlanRange asks plan to cut one range of an input object into shards.
type PlanRange struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Range is the range's number, from 0 over all inputs.
	Range int `json:"range" jsonschema:"minimum=0"`
	// Input is the input object's number, from 0.
	Input int `json:"input" jsonschema:"minimum=0"`
	// Offset is the range's first byte in the object.
	Offset int64 `json:"offset" jsonschema:"minimum=0"`
	// Limit is the byte after the range: a line that begins before it belongs to
	// the range.
	Limit int64 `json:"limit" jsonschema:"minimum=0"`
}

// PlanAdvanced tells coordinate that more of the plan is merged.
type PlanAdvanced struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
}

// Wakeup asks coordinate to evaluate a run now, and to request again what is
// outstanding.
type Wakeup struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Reason says why, for users.
	Reason string `json:"reason,omitempty"`
}

// ControlChanged reports that the desired state of a run has changed.
type ControlChanged struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Sequence is the sequence of the control document.
	Sequence uint64 `json:"sequence"`
}

// Finalize asks finalize to write a run's output files or, while the run goes on, what is whole
// of its facts.
type Finalize struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
}

// FinalizeSegment asks finalize to write one segment of a run's output files: the
// rows of consecutive shards.
type FinalizeSegment struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// From is the segment's first shard.
	From int `json:"from" jsonschema:"minimum=0"`
	// To is the shard after the segment's last.
	To int `json:"to" jsonschema:"minimum=1"`
}

// Finalized reports that a run's output files are written, summary.json last.
type Finalized struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Phase is the run's terminal phase, such as "completed". It may be empty: the
	// receiver can derive it.
	Phase string `json:"phase,omitempty"`
}

// EventType returns the payload's type.
func (ObjectCreated) EventType() Type { return TypeObjectCreated }

// EventType returns the payload's type.
func (RunSubmitted) EventType() Type { return TypeRunSubmitted }

// EventType implements Payload.
func (RetryRequested) EventType() Type { return TypeRetryRequested }

// EventType implements Payload.
func (BatchRequested) EventType() Type { return TypeBatchRequested }

// EventType returns the payload's type.
func (PlanRange) EventType() Type { return TypePlanRange }

// EventType returns the payload's type.
func (PlanAdvanced) EventType() Type { return TypePlanAdvanced }

// EventType returns the payload's type.
func (Wakeup) EventType() Type { return TypeWakeup }

// EventType returns the payload's type.
func (ControlChanged) EventType() Type { return TypeControlChanged }

// EventType returns the payload's type.
func (Finalize) EventType() Type { return TypeFinalize }

// EventType returns the payload's type.
func (FinalizeSegment) EventType() Type { return TypeFinalizeSegment }

// EventType returns the payload's type.
func (Finalized) EventType() Type { return TypeFinalized }

func (p ObjectCreated) check() error {
	return cmp.Or(key("bucket", p.Bucket), key("key", p.Key), key("version", p.Version), count("size", p.Size))
}

func (p RunSubmitted) check() error { return runID(p.Run) }

func (p RetryRequested) check() error { return cmp.Or(runID(p.Run), runID(p.Parent)) }

func (p BatchRequested) check() error { return runID(p.Run) }

func (p PlanRange) check() error {
	return cmp.Or(runID(p.Run), count("range", p.Range), count("input", p.Input),
		count("offset", p.Offset), count("limit", p.Limit), count("length", p.Limit-p.Offset))
}

func (p PlanAdvanced) check() error   { return runID(p.Run) }
func (p Wakeup) check() error         { return cmp.Or(runID(p.Run), text("reason", p.Reason)) }
func (p ControlChanged) check() error { return runID(p.Run) }
func (p Finalize) check() error       { return runID(p.Run) }

func (p FinalizeSegment) check() error {
	return cmp.Or(runID(p.Run), count("from", p.From), count("length", p.To-p.From-1))
}

func (p Finalized) check() error {
	if p.Phase == "" {
		return runID(p.Run)
	}
	return cmp.Or(runID(p.Run), name("phase", p.Phase))
}
