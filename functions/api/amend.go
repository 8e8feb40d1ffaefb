package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/trials"
)

// Amendment is what a run of trials is amended by.
type Amendment struct {
	// Replications is how often each task is tried under each variant then; 0 leaves it.
	Replications int
	// Variants are further ones.
	Variants []config.Variant
	// TasksName is the name of a file of further tasks, and Tasks its content; "" for none.
	TasksName string
	Tasks     []byte
	// Set are settings of limits: see config.Run.Set.
	Set []string
	// DryRun only says what the amended run would do.
	DryRun bool
}

// Amended names the child run that adds trials to those of an ended run.
type Amended struct {
	Run    identity.RunID    `json:"run_id"` // "" of a dry run
	Parent identity.RunID    `json:"parent"`
	Stage  record.TrialStage `json:"amended"`    // how large the amended run is
	Trials int               `json:"trials"`     // of it
	Added  int               `json:"new_trials"` // that it asks; it keeps the others
	Set    []string          `json:"set,omitempty"`
}

// maxVariantsText bounds the variants of an amendment: they are part of messages and documents.
const maxVariantsText = 96 << 10

// Amend requests a child of an ended run of trials, which keeps its trials and asks those that the
// amendment adds. A run that has not ended is Conflict; one whose files are gone is NotFound; an
// amendment that adds nothing, or does not fit the run, is Invalid.
func (s *Service) Amend(ctx context.Context, id identity.RunID, a Amendment) (Amended, error) {
	parent, err := host.LoadManifest(ctx, s.ports.Docs, id)
	if err != nil {
		return Amended{}, err
	}
	e := events.Amend{Replications: a.Replications, Tasks: a.TasksName}
	if len(a.Variants) > 0 {
		text, err := json.Marshal(a.Variants)
		if err != nil {
			return Amended{}, fault.WithKind(fault.Internal, err, "encode the variants")
		}
		if len(text) > maxVariantsText {
			return Amended{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("the variants have %d bytes, at most %d are "+
				"allowed in one amendment", len(text), maxVariantsText), Remedy: "add them one after the other"}
		}
		e.Variants = string(text)
	}
	what := strings.Join(append([]string{"amend", fmt.Sprint(a.Replications), e.Variants, a.TasksName,
		identity.Content(a.Tasks).String()}, a.Set...), "\n")
	child := identity.ChildRun(id, what, s.ports.Clock.Now().UnixMilli())
	ports := s.ports
	if a.TasksName != "" {
		ports.Blobs = tasksOver{ports.Blobs, record.MoreTasksKey(child), a.Tasks}
	}
	m, err := submit.AmendRun(ctx, ports, kind.Table{}, parent, child, e, a.Set)
	if err != nil {
		return Amended{}, err
	}
	if err := s.checkAgents(parent, m); err != nil {
		return Amended{}, err
	}
	stage := m.Stages[len(m.Stages)-1]
	out := Amended{Parent: id, Stage: stage, Trials: stage.Trials(), Added: trials.Added(m.Stages), Set: a.Set}
	if a.DryRun {
		return out, nil
	}
	if a.TasksName != "" {
		key := record.MoreTasksKey(child)
		_, err := s.ports.Blobs.Put(ctx, key, bytes.NewReader(a.Tasks), blob.PutOptions{CreateOnly: true})
		if err != nil && !fault.Is(err, fault.Conflict) {
			return Amended{}, fault.Wrap(err, "store the tasks")
		}
	}
	out.Run = child
	return out, s.ports.Send(ctx, host.TaskQueue, events.RetryRequested{Run: string(child), Parent: string(id), Amend: &e,
		Set: a.Set})
}

// checkAgents refuses an amended run with agents that the installation does not permit.
func (s *Service) checkAgents(parent, m record.Manifest) error {
	if !slices.ContainsFunc(m.Config.Variants, config.Variant.IsAgent) {
		return nil
	}
	k, err := kind.Table{}.Of(parent.Kind)
	if err != nil {
		return err
	}
	if m.Roles, err = k.RolesOfChild(parent, m.Config, s.deployment); err != nil {
		return err
	}
	return submit.CheckAgents(s.deployment, m, s.remote)
}

// tasksOver is a bucket that also has the tasks of a child, so that they are checked before
// anything is written.
type tasksOver struct {
	blob.Store
	key     string
	content []byte
}

// Stat implements blob.Store.
func (o tasksOver) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if key != o.key {
		return o.Store.Stat(ctx, key, version)
	}
	return blob.Info{Key: key, Size: int64(len(o.content))}, nil
}

// Get implements blob.Store.
func (o tasksOver) Get(ctx context.Context, key string, opts blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key != o.key {
		return o.Store.Get(ctx, key, opts)
	}
	b := o.content[min(opts.Offset, int64(len(o.content))):]
	if opts.Length > 0 {
		b = b[:min(opts.Length, int64(len(b)))]
	}
	return io.NopCloser(bytes.NewReader(b)), blob.Info{Key: key, Size: int64(len(o.content))}, nil
}

// newVariant is a variant in the body of a request. What its limits leave out is the default, as in
// a TOML file. In stored documents it is 0.
type newVariant struct{ config.Variant }

// UnmarshalJSON implements json.Unmarshaler.
func (v *newVariant) UnmarshalJSON(text []byte) error {
	var given struct {
		Limits json.RawMessage `json:"limits"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return err
	}
	if given.Limits != nil {
		limits := config.DefaultAgentLimits()
		v.Limits = &limits
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(&v.Variant)
}

// postAmend amends a run by replications and variants. Further tasks come from the command line.
func (s *Service) postAmend(r *http.Request) (int, any, error) {
	var body struct {
		Replications int          `json:"replications"`
		Variants     []newVariant `json:"variants"`
		Set          []string     `json:"set"`
		DryRun       bool         `json:"dry_run"`
	}
	if err := read(r, &body); err != nil {
		return 0, nil, err
	}
	a := Amendment{Replications: body.Replications, Set: body.Set, DryRun: body.DryRun}
	for _, v := range body.Variants {
		a.Variants = append(a.Variants, v.Variant)
	}
	out, err := s.Amend(r.Context(), runOf(r), a)
	code := http.StatusAccepted
	if body.DryRun {
		code = http.StatusOK
	}
	return code, out, err
}
