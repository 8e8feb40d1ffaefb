package kind

import (
	"context"
	"io"
	"iter"
	"slices"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

// Kind is what differs between kinds of run. The zero value of an optional field
// is what a batch has. All functions are safe for concurrent use.
type Kind struct {
	Name     string // as configs and manifests have it. Example: "batch"
	Executor string // of the pools that answer its items. Example: config.ExecutorInfer

	// ConfigOf returns what the manifests of runs have of a config. It is called once, before
	// Complete. Optional: nil keeps the config.
	ConfigOf func(config.Run) config.Run

	// Complete decides what all readers of a run must agree on, from the run's
	// config, the site and the head of each input: pool, model and dialect of the
	// manifest. Its Invalid and Corrupt errors refuse the run. NotFound means that
	// an input is gone.
	Complete func(context.Context, *record.Manifest, Site) error

	// Roles returns the roles that a run of the config has beyond the answer, by their
	// numbers from 1 on. Optional: nil means no further roles.
	Roles func(config.Run) []Role

	// Job returns the one line that is planned instead of the run's only input,
	// whose pinned object and digest are given. Optional: nil plans the lines of the inputs.
	Job func(record.Manifest, record.Ranges, identity.ContentID) (record.Job, error)

	// Grow writes the lines that are planned next, behind all that is planned so far,
	// once every item so far has its result. Without a line it completes the plan.
	// What it writes may depend on its arguments alone: it is called again after a
	// crash, and what was written first stands. Its Invalid and Corrupt errors end
	// the run. Optional: nil plans the inputs and no more.
	Grow func(context.Context, Growth, io.Writer) error
	// Appends returns how many objects Grow writes for a run of the config, each made of
	// the answers to the run's inputs; one of them may have no line. Optional: nil means
	// as many as have a line, each made of the results of what was planned before it.
	Appends func(config.Run) int
	// RoleOf returns the role of the lines that Grow has written: record.RoleAnswer, or
	// the name of one of Roles. It depends on its arguments alone. Optional: nil gives all
	// of them the role answer.
	RoleOf func(context.Context, Appended) (string, error)
	// CutOf returns how many lines that Grow has written each shard gets, in their order.
	// The lines behind them are cut as those of inputs are. It depends on its arguments
	// alone. Optional: nil cuts all lines so.
	CutOf func(context.Context, Appended) ([]int, error)
	// ShardOf makes each line that Grow has written for a role with output a shard of its own, and
	// returns its role and what dispatch must know of it. It depends on its arguments alone. Optional: CutOf then says
	// how lines are cut.
	ShardOf func(record.Manifest, []byte) (schedule.Attributes, error)
	// Amend writes the lines of the items that a child run adds to the plan of its parent: see
	// record.Amendment. What it writes depends on its arguments alone. Its Invalid and Corrupt
	// errors end the run. Optional: nil means that runs can't be amended.
	Amend func(context.Context, Amended, io.Writer) error
	// AmendConfig returns the config of a manifest with more replications, unless that is 0, and
	// further variants. Its errors are Invalid. It is set together with Amend.
	AmendConfig func(c config.Run, replications int, variants []config.Variant) (config.Run, error)
	// OwnLines says that no line of the inputs is an item: the plan begins with what Grow
	// writes, which reads them itself. Optional.
	OwnLines bool

	// Constraints returns which shards of a run of the config may be in flight together.
	// Optional: any may.
	Constraints func(config.Run) schedule.Constraints

	// Looks says how runs are looked at that prune variants. Optional: nil never prunes.
	Looks *Looks

	// Progress returns how far a rollout has come, whose plan has that last object; nil if
	// nothing is known yet. Optional.
	Progress func(context.Context, Appended) (*record.Rollout, error)

	// Facts gives the facts of a run, in its Parquet files, columns beyond those of every
	// run. Optional.
	Facts *Facts

	// Artifacts completes the summary of an ended run, and publishes the files that
	// the run has besides completions, errors and summary. Repeating it changes
	// nothing. Optional.
	Artifacts func(context.Context, Ended, *record.Summary) error
	// OneStream has one call write the output files, also where those of large runs
	// are written in segments. Optional.
	OneStream bool

	// Trains says that a run is one long item, whose executor reports steps and
	// saves snapshots. A run of items has rates and suspects instead. Optional.
	Trains bool
	// ReadsInput says that the executor itself reads the run's input, and reports
	// if it is missing or has changed. Optional.
	ReadsInput bool
	// Retries says that a child run may ask items of an ended run again. The plans of children
	// don't grow. Optional.
	Retries bool
	// Blameless says that holders which vanish make no item a suspect. Optional.
	Blameless bool
}

// Role is what a run's config says about one of its roles. Submit finds the pool
// that serves the model.
type Role struct {
	Name     string // Example: "judge"
	Key      string // that names the model in the config; "" is model.uri. Example: "grade[1].model"
	Model    config.Model
	Sampling config.Sampling
	Request  *config.Request // nil without settings
	Graded   bool            // answers get the scores of the run's graders
	Output   bool            // see record.Role.Output
}

// Site is where a run is submitted to.
type Site struct {
	Deployment config.Deployment
	// Head returns the beginning of an input, unpacked; it is empty if the input
	// is. NotFound means that this version of the input is gone.
	Head func(context.Context, record.Input) ([]byte, error)
}

// Appended is an object that Grow writes or has written.
type Appended struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Input    int // its number, behind the run's inputs
}

// Amended is a child run that adds items to its parent's, for Kind.Amend.
type Amended struct {
	Appended
	// Tasks are the run's input and Manifest.Tasks as they are planned: pinned, and unpacked.
	Tasks []record.Ranges
	First uint64 // index of the first item that is added
}

// Growth is a run whose planned items all have results, for Kind.Grow.
type Growth struct {
	Appended
	// Source is the run's first input as it is planned: pinned, and unpacked.
	Source record.Ranges
	// Answers yields the output rows of what was planned last, which is all inputs or
	// what Grow wrote before, of whatever role, in the order of its items. It ends with
	// an error that Grow must return. The caller may keep the rows.
	Answers iter.Seq2[[]byte, error]
	// Items yields the items of the results that the object is made of, in their order:
	// see Kind.Appends. It ends with an error that Grow must return. The caller may keep
	// what it yields.
	Items iter.Seq2[Item, error]
}

// Item is an item with its final row.
type Item struct {
	Index uint64      // in the run
	Line  []byte      // of the input; nil if it is too long
	Class fault.Class // why it failed; "" if it is answered
	Row   []byte      // nil if it is lost
	// Attempt is that of the shard's last claim: more than 1 if it changed hands.
	Attempt uint64
}

// Ended is a run whose completions and errors are written.
type Ended struct {
	Blobs    blob.Store
	Manifest record.Manifest
	Snapshot *shard.Snapshot // the last one of a run that Trains; nil before the first
	Appended []string        // the keys of the objects that its plan has behind the inputs
	Looks    int             // that were decided
	// Deployment is that of the installation, with the prices of its engines.
	Deployment config.Deployment
	// Attempts yields the shards that were claimed, in their order.
	Attempts iter.Seq2[rollout.Attempt, error]
}

// ManifestConfig returns what the manifests of runs of the config have of it: see ConfigOf.
func (k Kind) ManifestConfig(c config.Run) config.Run {
	if k.ConfigOf == nil {
		return c
	}
	return k.ConfigOf(c)
}

// ConstraintsOf returns the constraints of a run of the config: see Constraints.
func (k Kind) ConstraintsOf(c config.Run) schedule.Constraints {
	if k.Constraints == nil {
		return schedule.Constraints{}
	}
	return k.Constraints(c)
}

// Grows reports whether the plan of a run of the config grows.
func (k Kind) Grows(c config.Run) bool {
	return k.Grow != nil && (k.Appends == nil || k.Appends(c) > 0)
}

// Table holds the kinds of run, by name. The zero value holds those that the
// product has.
type Table struct{ added []Kind }

// builtin returns the kinds that the product has.
func builtin() []Kind { return []Kind{batch(), rolloutKind(), train(), trialsKind()} }

// With returns a table that has the kind too.
func (t Table) With(k Kind) Table {
	return Table{append(slices.Clip(t.added), k)}
}

// Of returns the kind of that name. An unknown one is Invalid, with a list of
// those that exist.
func (t Table) Of(name string) (Kind, error) {
	all := append(builtin(), t.added...)
	var names []string
	for _, k := range all {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return Kind{}, &fault.Error{Kind: fault.Invalid, Remedy: "use one of: " + strings.Join(names, ", "),
		Err: fault.New(fault.Invalid, "the kind of run %q is not known", name)}
}
