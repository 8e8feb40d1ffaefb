package record

import (
	"fmt"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/share"
	"rollout/shared/dialect"
)

// Manifest is the document run/<run>: what was submitted. Submit creates it, and
// it never changes: the first one written stands.
type Manifest struct {
	Schema    int            `json:"schema"`
	Run       identity.RunID `json:"run"`
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	CreatedAt time.Time      `json:"created_at"`
	// Inputs are all inputs or, with a List, the first ones.
	Inputs []Input `json:"inputs"`
	// List is where the inputs of a run of many files are; nil for other runs.
	List *InputList `json:"list,omitempty"`
	// Tasks are the files of tasks that amendments of trials added behind the input.
	Tasks []Input `json:"tasks,omitempty"`
	// Stages are the sizes of amended trials: those of the oldest ancestor, of each run that added
	// to them, and the run's own. It is empty for others.
	Stages    []TrialStage `json:"stages,omitempty"`
	Dialect   string       `json:"dialect"`
	Config    config.Run   `json:"config"`
	ConfigKey string       `json:"config_key,omitempty"` // the object of the config; "" for the default
	// ConfigAlsoOf is another prompts file with the same config, which differs in its
	// packing alone; "" if there is none.
	ConfigAlsoOf string `json:"config_also_of,omitempty"`
	ModelURI     string `json:"model_uri"`
	ModelID      string `json:"model_id"` // hex
	Pool         string `json:"pool"`
	// Roles are the roles beyond the answer, by their numbers from 1 on.
	Roles []Role `json:"roles,omitempty"`
	// PromptMaxTokens is the max_tokens of raw prompts for which neither the row nor
	// the config has one; 0 leaves it to the server.
	PromptMaxTokens int `json:"prompt_max_tokens,omitempty"`
	// Artifacts are what the agents of trials start with, frozen at submit.
	Artifacts []Artifact `json:"agent_artifact_v1,omitempty"`
	// Plugins are the plugins that the run's graders name, as they were at submit.
	Plugins []PluginPin `json:"plugins,omitempty"`
	// Parent makes the run a child; nil for a run of its own.
	Parent *Parent `json:"parent,omitempty"`
	// Original has the settings from which item ids and seeds are computed; nil means
	// those of Config. It is that of the oldest ancestor, in children with other settings.
	Original *Original `json:"original,omitempty"`
	// Refused says why the run cannot start; it is then Failed from the beginning.
	Refused string `json:"refused,omitempty"`
}

// Artifact is what the agent of a variant starts with: package artifact has its form.
type Artifact struct {
	Variant string `json:"variant"`
	Key     string `json:"key"`        // the folder or the .tar that it was made from
	Content string `json:"content_id"` // hex; identity.ContentKey is its object
	Bytes   int64  `json:"bytes"`      // of its files
	Files   int    `json:"files"`
}

// PluginPin says which plugin a run may use. An empty version or content id takes any.
type PluginPin struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Content string `json:"content_id,omitempty"` // hex; of the plugin's files
}

// Original is the part of a run's config on which item ids depend.
type Original struct {
	Sampling config.Sampling `json:"sampling"`
	Request  *config.Request `json:"request,omitempty"`
}

// DialectModel returns what all items of the run share for item ids and output rows. It is
// without the model's id if the manifest has none.
func (m Manifest) DialectModel() dialect.Model {
	id, _ := identity.ParseContentID(m.ModelID)
	out := dialect.NewModel(m.ModelURI, id, m.Config)
	if m.Original != nil {
		first := dialect.NewModel(m.ModelURI, id, config.Run{Sampling: m.Original.Sampling, Request: m.Original.Request})
		out.Original = &first
	}
	return out
}

// Part returns how the run takes part in the division of its pools.
func (m Manifest) Part() share.Run {
	r := share.Run{Run: m.Run, Weight: m.Config.Scheduling.Weight(), Created: m.CreatedAt.UTC()}
	if d := m.Config.Limits.Deadline; d > 0 {
		r.Deadline = r.Created.Add(d.Std())
	}
	return r
}

// Input is one input object of a run, pinned to a version.
type Input struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Size    int64  `json:"size"`
	Packed  string `json:"packed,omitempty"` // "gzip" or "zstd": planned from an unpacked copy
	Name    string `json:"name,omitempty"`   // for users, if it is not the key
}

// Label returns the input's name for users.
func (i Input) Label() string {
	if i.Name != "" {
		return i.Name
	}
	return i.Key
}

// InputName returns the name of an input for users: that of an input object or, for
// what the run's kind appended, one such as "range 3". Of a run with a List it knows the
// first ones only: see input.Inputs.
func (m Manifest) InputName(input int) string {
	switch {
	case input >= 0 && input < len(m.Inputs):
		return m.Inputs[input].Label()
	case input < m.InputCount():
		return fmt.Sprintf("input %d", input)
	}
	return fmt.Sprintf("range %d", input)
}

// FoundInput is the document found/<upload>: an object that is the input of an earlier
// run, though its version is another one, because the folder was restored or copied, or
// the file was put back. upload is the id that the object would have had as a run of its
// own. Submit creates the document, and it never changes.
//
// The document of the run's own id is what stays of a run that has expired; reclaim writes
// it. It is never deleted: it has some 200 bytes, and without it the object that the run was
// made from would become a run again, also one that comes back after years.
type FoundInput struct {
	Schema  int            `json:"schema"`
	Run     identity.RunID `json:"run"`
	Expired *Expired       `json:"expired,omitempty"`
}

// Desired is the desired state of a run. Example: "pause".
type Desired string

// The desired states.
const (
	DesiredRun   Desired = "run"
	DesiredPause Desired = "pause"
	DesiredEnd   Desired = "end"
)

// Control is the document control/<run>: the desired state of the run. The api
// writes it for users, and coordinate for what it finds itself. An absent document
// means DesiredRun. Workers read it before a claim and at each heartbeat.
type Control struct {
	Schema   int       `json:"schema"`
	Sequence uint64    `json:"sequence"` // higher by one with every change
	Desired  Desired   `json:"desired"`
	Reason   string    `json:"reason,omitempty"` // a run.Reason for DesiredEnd, a text for DesiredPause
	Text     string    `json:"text,omitempty"`   // why a user ended the run, for DesiredEnd
	At       time.Time `json:"at"`
	// Refused is what all requests met when the run last paused because none was
	// answered. It stays when the run is resumed: if its requests meet that again, its
	// items are charged. Example: "status_401".
	Refused string `json:"refused,omitempty"`
}

// UploadScan is the document uploads/scan: how far reclaim's hourly scan for uploads
// without a run is.
type UploadScan struct {
	Schema int       `json:"schema"`
	Since  time.Time `json:"since"`           // the first scan of the installation
	At     time.Time `json:"at"`              // the latest scan
	After  string    `json:"after,omitempty"` // the last key that was looked at; "" begins again
}

// OpenRun is the document open/<run>, an index entry of a run that has not ended.
// Submit creates it before the manifest, so that every manifest has one. Reclaim
// lists these documents to find its work, and deletes them when runs have ended.
type OpenRun struct {
	Schema int            `json:"schema"`
	Run    identity.RunID `json:"run"`
	At     time.Time      `json:"at"` // when submit last began to create the run
	// Created is when submit first began to, as the manifest and the entries by name say. It is
	// zero if a version wrote it that did not say so.
	Created time.Time `json:"created,omitzero"`
	// PlanRequestedAt is when reclaim last requested the plan of a run that has no
	// coordinator document yet.
	PlanRequestedAt time.Time `json:"asked,omitzero"`
}
