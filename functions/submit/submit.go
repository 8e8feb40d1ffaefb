// Package submit turns an uploaded object into a run.
//
//		ObjectCreated ─▶ config ─▶ complete ─▶ open index ─▶ manifest ─▶ RunSubmitted ─▶ plan
//		                              └─ cannot run ─▶ refused manifest, summary
//
//	 1. Resolve the config: the .toml of the same name, prompts/rollout.toml, or
//	    the default of the deployment.
//	 2. Complete the manifest: decide pool, model, encoding and dialect once for
//	    all readers, from the config and the head of each input. What that takes is the kind's to say.
//	 3. Enter the run into the index by name, so that users find it, and into that
//	    of open runs, so that reclaim finds it whatever is lost later.
//	 4. List the inputs, if they are many, and create the manifest. Its id is derived from bucket, key and version of the
//	    object, so that a repeated event names the same run; the first manifest
//	    wins.
//	 5. Ask for the plan, also if the manifest already existed: an earlier call may
//	    have failed before it asked.
//
// An upload that cannot be a run becomes a refused run, so that its owner sees
// why. An object that is the input of an earlier run under a new version, because the folder
// was restored or copied, or the file was put back, is that run's input again (see found).
// The package never plans, and reads only the head of a new input.
package submit

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade/judge"
	"rollout/shared/grade/rules"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/prices"
	"rollout/shared/record"
)

// Submitter creates runs. It is safe for concurrent use.
type Submitter struct {
	host.Ports
	opts Options
}

// Options are what a submitter takes besides its ports.
type Options struct {
	Deployment config.Deployment
	At         cloud.Capabilities // of the place of the deployment
	Kinds      kind.Table
	// Inputs say how the inputs of a run are listed; nil for record.DefaultInputLimits.
	Inputs *record.InputLimits
	// Moved reports whether two versions of an object differ only by the place where it is
	// stored; nil if the bucket cannot tell. It decides where no bytes are left to compare.
	Moved func(old, now string) bool
}

// New returns a submitter over the ports.
func New(p host.Ports, o Options) *Submitter {
	return &Submitter{Ports: p.WithSource("submit"), opts: o}
}

// Uploaded handles the creation of an object. It ignores objects that are not
// prompts files.
func (s *Submitter) Uploaded(ctx context.Context, e events.ObjectCreated) error {
	if !input.IsPromptsKey(e.Key) {
		return nil
	}
	stem, packed, _ := input.SplitName(e.Key)
	id := identity.UploadRun(s.opts.Deployment.Bucket, e.Key, e.Version)
	in := record.Input{Key: e.Key, Version: e.Version, Size: e.Size, Packed: packed}
	m := record.Manifest{Run: id, Name: DefaultName(e.Key), Inputs: []record.Input{in}}
	if !s.opts.At.RemoteBucket { // whose watch finds objects again
		switch known, err := host.LoadUpload(ctx, s.Docs, id); {
		case err == nil:
			return s.announce(ctx, known)
		case host.IsExpired(err):
			return s.passOver(ctx, err)
		case !fault.Is(err, fault.NotFound):
			return err
		}
	}
	cfg, key, err := s.config(ctx, stem, e.Size)
	m.ConfigKey = key
	if err != nil {
		if !s.refuses(err) {
			return err
		}
		m.Refused, cfg = err.Error(), config.DefaultRun()
	}
	if key == stem+configSuffix {
		if m.ConfigAlsoOf, err = s.twin(ctx, e.Key); err != nil {
			return err
		}
	}
	if e.Found != "" && m.Refused == "" {
		switch earlier, ok, err := s.found(ctx, e, cfg); {
		case host.IsExpired(err):
			return s.passOver(ctx, err)
		case err != nil:
			return err
		case ok:
			return s.announce(ctx, earlier)
		}
	}
	return s.createUnless(ctx, m, cfg, func(m record.Manifest) (bool, error) { return s.refusedBefore(ctx, m, e) })
}

// passOver logs that nothing is done for a run that has expired: its input was an input before.
func (s *Submitter) passOver(ctx context.Context, expired error) error {
	s.Log.InfoContext(ctx, "not run again", observe.KeyError, expired)
	return nil
}

// twin returns a prompts file whose name differs from that of key in its packing alone,
// so that both have the same config; "" without such a file.
func (s *Submitter) twin(ctx context.Context, key string) (string, error) {
	for _, other := range input.Twins(key) {
		_, err := s.Blobs.Stat(ctx, other, "")
		switch {
		case err == nil:
			s.Log.WarnContext(ctx, "two prompts files have the same config", "key", key, "other", other)
			return other, nil
		case !fault.Is(err, fault.NotFound) && !s.refuses(err):
			return "", err
		}
	}
	return "", nil
}

// refuses reports whether an error of an upload lasts until its owner uploads it again.
func (s *Submitter) refuses(err error) bool {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Corrupt:
		return true
	case fault.Denied:
		return !s.opts.At.RemoteBucket
	}
	return false
}

// Create completes and creates a manifest whose inputs are pinned, and asks for
// its plan. If the manifest already exists it stays as it is, and Create only
// asks for its plan. If an input is gone, Create creates nothing and returns nil.
func (s *Submitter) Create(ctx context.Context, m record.Manifest, cfg config.Run) error {
	return s.createUnless(ctx, m, cfg, func(record.Manifest) (bool, error) { return false, nil })
}

// createUnless is Create, unless known reports that the complete manifest is of an upload
// that was handled before.
func (s *Submitter) createUnless(ctx context.Context, m record.Manifest, cfg config.Run,
	known func(record.Manifest) (bool, error)) (err error) {
	ctx, span := s.StartSpan(ctx, time.Time{}, "submit", m.Run)
	defer func() { span.End(err) }()
	switch first, err := host.LoadManifest(ctx, s.Docs, m.Run); {
	case err == nil:
		return s.announce(ctx, first)
	case host.IsExpired(err):
		return s.passOver(ctx, err)
	case !fault.Is(err, fault.NotFound):
		return err
	}
	m.Schema, m.Kind, m.Config = record.Schema, cmp.Or(cfg.Kind, config.DefaultRun().Kind), cfg
	if m.CreatedAt.IsZero() {
		m.CreatedAt = s.Clock.Now().UTC()
	}
	if cfg.Name != "" {
		m.Name = cfg.Name
	}
	if m.Refused == "" {
		if err := s.complete(ctx, &m); err != nil {
			switch {
			case s.refuses(err):
				m.Refused = err.Error()
			case fault.Is(err, fault.NotFound): // deleted or overwritten since
				s.Log.InfoContext(ctx, "upload is gone", observe.KeyRun, m.Run, observe.KeyError, err)
				return nil
			default:
				return err
			}
		}
	}
	if known, err := known(m); err != nil || known {
		return err
	}
	return s.create(ctx, m)
}

// create creates a completed or refused manifest, and asks for its plan.
func (s *Submitter) create(ctx context.Context, m record.Manifest) (err error) {
	if m.Refused == "" {
		if m, err = input.PutList(ctx, s.Blobs, m, s.inputLimits()); err != nil {
			return err
		}
	}
	m = saveable(m)
	if m.CreatedAt, err = s.noteOpen(ctx, m); err != nil {
		return err
	}
	if err := s.noteNames(ctx, m); err != nil {
		return err
	}
	if m.Parent != nil && m.Refused == "" {
		switch err := s.checkParent(ctx, m.Parent.Run); {
		case fault.Is(err, fault.NotFound):
			m.Refused = err.Error()
		case err != nil:
			return err
		}
	}
	_, err = host.Save(ctx, s.Docs, record.ManifestKey(m.Run), m, "")
	switch {
	case fault.Is(err, fault.Conflict): // another call created it first, and may have decided otherwise
		if m, err = host.LoadManifest(ctx, s.Docs, m.Run); err != nil {
			return err
		}
	case err != nil:
		return err
	case m.Refused != "":
		s.Observe(ctx, observe.RunRefused{Run: m.Run, Name: m.Name, Reason: m.Refused})
	default:
		s.Observe(ctx, observe.RunSubmitted{Run: m.Run, Name: m.Name, Model: m.ModelURI, Dialect: m.Dialect,
			Endpoint: endpointOf(m)})
	}
	return s.announce(ctx, m)
}

func (s *Submitter) inputLimits() record.InputLimits {
	if s.opts.Inputs != nil {
		return *s.opts.Inputs
	}
	return record.DefaultInputLimits()
}

// endpointOf says where the run's rows go, for people.
func endpointOf(m record.Manifest) string {
	switch r := m.Config.Request; {
	case m.Dialect == string(dialect.OpenAI):
		return "as the rows say"
	case r != nil && r.Endpoint != "":
		return r.Endpoint
	case m.Dialect == string(dialect.Plain):
		return "prompts to completions, messages to chat"
	}
	return "chat"
}

// noteNames enters the run into the index by name and, where objects may be found again
// under another version, by its input.
func (s *Submitter) noteNames(ctx context.Context, m record.Manifest) error {
	for _, e := range record.NamedEntries(m, !s.opts.At.RemoteBucket) {
		_, err := host.Save(ctx, s.Docs, e.Key, e.NamedRun, "")
		if err != nil && !fault.Is(err, fault.Conflict) {
			return fault.Wrap(err, "note the name of run %s", m.Run)
		}
	}
	return nil
}

// noteOpen enters the run into the index of open runs before the run exists, so
// that reclaim finds it if a later step is lost. It renews an existing note, so
// that reclaim does not take it for that of a failed submission. It returns when the first
// attempt to create the run began: the entries by name have that time in their keys, so that
// another attempt writes the same ones.
func (s *Submitter) noteOpen(ctx context.Context, m record.Manifest) (created time.Time, err error) {
	change := func(o record.OpenRun, _ bool) (record.OpenRun, bool, error) {
		o.Schema, o.Run, o.At = record.Schema, m.Run, s.Clock.Now().UTC()
		if o.Created.IsZero() {
			o.Created = m.CreatedAt
		}
		return o, true, nil
	}
	o, err := host.Update(ctx, s.Docs, record.OpenRunKey(m.Run), change)
	return o.Created, fault.Wrap(err, "note that run %s is open", m.Run)
}

// announce asks for the run's plan. For a refused run it writes the refusal
// instead.
func (s *Submitter) announce(ctx context.Context, m record.Manifest) error {
	if m.Refused != "" {
		return s.writeRefusal(ctx, m)
	}
	return s.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(m.Run)})
}

// writeRefusal writes the summary of a refused run, which users read.
func (s *Submitter) writeRefusal(ctx context.Context, m record.Manifest) error {
	sum := record.Summary{Schema: record.Schema, Run: m.Run, Name: m.Name, Phase: string(run.Failed), Reason: "refused",
		Message: m.Refused, CreatedAt: m.CreatedAt, EndedAt: m.CreatedAt, FailedByClass: map[string]int{}}
	key, body := record.OutputKey(m.Run, record.SummaryFile), strings.NewReader(string(record.Encode(sum))+"\n")
	_, err := s.Blobs.Put(ctx, key, body, blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// complete decides what all readers of the run must agree on: pools, models,
// encoding and dialect. Its Invalid and Corrupt errors refuse the run.
func (s *Submitter) complete(ctx context.Context, m *record.Manifest) error {
	if err := record.CheckInputs(m.Inputs); err != nil {
		return err
	}
	if s.opts.At.RemoteBucket {
		if _, parts := record.SplitInputs(*m, s.inputLimits()); len(parts) > 0 {
			return fault.New(fault.Invalid, "%d files are too many for a run in a cloud in this version", len(m.Inputs))
		}
	}
	if err := noOutput(m.Inputs); err != nil {
		return err
	}
	if err := CheckGraders(s.opts.Deployment, m.Config.Grades); err != nil {
		return err
	}
	m.Plugins = pinsOf(s.opts.Deployment, m.Config.Grades)
	k, err := s.opts.Kinds.Of(m.Kind)
	if err != nil {
		return err
	}
	if k.Grows(m.Config) && m.Config.Dedupe.Enabled {
		return &fault.Error{Kind: fault.Invalid, Remedy: "remove dedupe.enabled",
			Err: fault.New(fault.Invalid, "a run of kind %q asks every request: later ones depend on each answer", k.Name)}
	}
	m.Config = k.ManifestConfig(m.Config)
	if err := k.Complete(ctx, m, kind.Site{Deployment: s.opts.Deployment, Head: s.head}); err != nil {
		return err
	}
	if k.Executor == config.ExecutorInfer {
		m.PromptMaxTokens = PromptMaxTokens(m.Config, dialect.Name(m.Dialect))
	}
	if m.Roles, err = k.ResolveRoles(m.Config, m.ModelURI, s.opts.Deployment); err != nil {
		return err
	}
	if err := s.freezeAgents(ctx, m); err != nil {
		return err
	}
	return prices.CheckBudget(s.opts.Deployment, m.Config.Limits, m.Pools())
}

// defaultPromptMaxTokens is the longest answer to a raw prompt without a limit.
// Servers differ: vLLM and OpenAI cut such answers at 16 tokens, SGLang at 128.
const defaultPromptMaxTokens = 1024

// PromptMaxTokens returns what Manifest.PromptMaxTokens says of a run with the config that
// asks an engine about rows of the dialect.
func PromptMaxTokens(c config.Run, d dialect.Name) int {
	if d != dialect.Plain || c.Sampling.MaxTokens != nil {
		return 0
	}
	if r := c.Request; r != nil {
		if r.Endpoint != "" && r.Endpoint != "completions" {
			return 0
		}
		for _, name := range []string{"max_tokens", "max_completion_tokens", r.MaxTokensField} {
			if _, set := r.Extra[name]; set {
				return 0
			}
		}
	}
	return defaultPromptMaxTokens
}

// CheckGraders refuses graders that workers could not make, whatever the config's checks
// let pass, and those of a service or a plugin that the deployment lacks.
func CheckGraders(d config.Deployment, grades []config.Grade) error {
	for _, g := range grades {
		var err error
		switch g.Kind {
		case config.GradeHTTP, config.GradePlugin:
		case config.GradeJudge:
			_, err = judge.New(g)
		default:
			_, err = rules.New(g)
		}
		if err != nil {
			return err
		}
	}
	return d.CheckServices(grades)
}

// pinsOf returns the plugins that graders name, as the deployment has them now.
func pinsOf(d config.Deployment, grades []config.Grade) (pins []record.PluginPin) {
	for _, g := range grades {
		p := d.Plugins[g.Plugin]
		pin := record.PluginPin{Name: g.Plugin, Version: p.Version, Content: p.ContentID}
		if g.Kind == config.GradePlugin && !slices.Contains(pins, pin) {
			pins = append(pins, pin)
		}
	}
	return pins
}

// noOutput refuses inputs that are outputs of runs, so that a run cannot feed
// another one, or itself.
func noOutput(inputs []record.Input) error {
	for _, in := range inputs {
		if strings.HasPrefix(in.Key, record.RunsPrefix) {
			return &fault.Error{Kind: fault.Invalid, Op: in.Label() + " is the output of a run and cannot be an input",
				Remedy: "copy it to a name that begins with " + record.PromptsPrefix}
		}
	}
	return nil
}

// HeadSize is how many bytes of an input decide encoding and dialect.
const HeadSize = 1 << 20

// head reads the head of an input, unpacked. An input that is gone or changed is
// NotFound.
func (s *Submitter) head(ctx context.Context, in record.Input) ([]byte, error) {
	r, err := input.OpenPinned(ctx, s.Blobs, in.Key, blob.GetOptions{Version: in.Version, Length: HeadSize})
	if err != nil {
		if fault.ClassOf(err) == fault.InputChanged {
			return nil, fault.WithKind(fault.NotFound, err, "this version of %s is gone", in.Label())
		}
		return nil, err
	}
	defer r.Close()
	u, err := input.Unpack(r, in.Packed)
	if err != nil {
		return nil, fault.Wrap(err, "%s", in.Label())
	}
	defer u.Close()
	b, err := io.ReadAll(io.LimitReader(u, HeadSize))
	if fault.Is(err, fault.Corrupt) && in.Packed != "" && len(b) > 0 {
		err = nil // only the head of the archive was read
	}
	return b, fault.Wrap(err, "%s", in.Label())
}

// configSuffix ends the name of a config that is beside a prompts file.
const configSuffix = ".toml"

// maxConfig bounds a config object, in bytes.
const maxConfig = 1 << 20

// config returns the config of an upload and the key of its object: the .toml
// with the same stem, or prompts/rollout.toml, or the deployment's default, whose
// key is "". A .toml that holds for one run is passed over for an upload of another size.
func (s *Submitter) config(ctx context.Context, stem string, size int64) (config.Run, string, error) {
	for _, k := range []string{stem + configSuffix, record.PromptsPrefix + "rollout.toml"} {
		b, err := input.ReadObject(ctx, s.Blobs, k, maxConfig)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return config.Run{}, k, err
		}
		if one, is := config.ReadOneRun(b); is && one.Size != size {
			if one.Before == nil {
				continue
			}
			b = one.Before
		}
		cfg, err := config.ParseRun(k, b)
		return cfg, k, err
	}
	return s.opts.Deployment.Defaults, "", nil
}

// DefaultName is the name of a run whose config has none. Example: "nightly".
func DefaultName(key string) string {
	stem, _, _ := input.SplitName(key)
	return path.Base(stem)
}
