package submit_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// fixture is an installation with one pool "default", which serves the model m.
type fixture struct {
	host.Ports
	t      *testing.T
	deploy config.Deployment
	at     cloud.Capabilities
	moved  bool // what the bucket tells of two versions
}

func newFixture(t *testing.T) *fixture {
	d := config.DefaultDeployment()
	d.Bucket, d.Pools = "local", []config.Pool{{Name: "default", Model: "m"}}
	d.Defaults.Shard.Items = 7
	return &fixture{t: t, deploy: d, Ports: hosttest.New()}
}

// upload puts a file and handles its event. It returns the manifest of its run;
// the zero value if it did not become a run.
func (d *fixture) upload(key, content string) record.Manifest {
	d.t.Helper()
	e := d.put(key, content)
	if err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(d.t.Context(), e); err != nil {
		d.t.Fatal(err)
	}
	return d.manifest(e)
}

func (d *fixture) put(key, content string) events.ObjectCreated {
	version := hosttest.Put(d.t, d.Ports, key, content)
	return events.ObjectCreated{Bucket: "local", Key: key, Version: version, Size: int64(len(content))}
}

func (d *fixture) manifest(e events.ObjectCreated) record.Manifest {
	id := identity.UploadRun("local", e.Key, e.Version)
	return hosttest.Load[record.Manifest](d.t, d.Ports, record.ManifestKey(id))
}

// planned returns how many plans were asked for since the last call.
func (d *fixture) planned() int {
	ms, err := d.Queues.Receive(d.t.Context(), host.TaskQueue, 100, time.Minute, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, m := range ms {
		_ = d.Queues.Ack(d.t.Context(), host.TaskQueue, []string{m.Receipt})
	}
	return len(ms)
}

const prompt = "{\"prompt\":\"1\"}\n"

func TestNearestConfigIsUsed(t *testing.T) {
	t.Parallel()
	own, folder := "schema_version = 1\n[shard]\nitems = 1\n", "schema_version = 1\n[shard]\nitems = 2\n"
	for name, c := range map[string]struct {
		files map[string]string
		key   string
		items int
		from  string
	}{
		"own": {map[string]string{"prompts/x.toml": own, "prompts/rollout.toml": folder},
			"prompts/x.jsonl", 1, "prompts/x.toml"},
		"own of a packed file": {map[string]string{"prompts/x.toml": own}, "prompts/x.jsonl.gz", 1, "prompts/x.toml"},
		"shared": {map[string]string{"prompts/y.toml": own, "prompts/rollout.toml": folder},
			"prompts/x.jsonl", 2, "prompts/rollout.toml"},
		"shared, for a nested file": {map[string]string{"prompts/rollout.toml": folder},
			"prompts/a/b/x.jsonl", 2, "prompts/rollout.toml"},
		"default of the deployment": {nil, "prompts/x.jsonl", 7, ""},
		"for one run": {map[string]string{
			"prompts/x.toml": string(config.OneRun{Size: int64(len(prompt))}.Write([]byte(own)))},
			"prompts/x.jsonl", 1, "prompts/x.toml"},
		"for another run, over one of its own": {map[string]string{
			"prompts/x.toml": string(config.OneRun{Size: 1, Before: []byte(folder)}.Write([]byte(own)))},
			"prompts/x.jsonl", 2, "prompts/x.toml"},
		"for another run, over none": {map[string]string{
			"prompts/x.toml": string(config.OneRun{Size: 1}.Write([]byte(own)))}, "prompts/x.jsonl", 7, ""},
	} {
		d := newFixture(t)
		for k, v := range c.files {
			hosttest.Put(t, d.Ports, k, v)
		}
		m := d.upload(c.key, prompt)
		if m.Config.Shard.Items != c.items || m.ConfigKey != c.from {
			t.Errorf("%s: %d items from %q, want %d from %q", name, m.Config.Shard.Items, m.ConfigKey, c.items, c.from)
		}
	}
}

// Two files that differ in their packing alone have the same config, which their runs say.
func TestRunsSayThatTheyShareAConfig(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	alone := d.upload("prompts/x.jsonl.gz", "not an archive")
	hosttest.Put(t, d.Ports, "prompts/x.toml", "schema_version = 1\n")
	first := d.upload("prompts/x.jsonl", prompt)
	second := d.upload("prompts/x.jsonl.zst", "not an archive")
	if alone.ConfigAlsoOf != "" || first.ConfigAlsoOf != "prompts/x.jsonl.gz" || second.ConfigAlsoOf != "prompts/x.jsonl" {
		t.Errorf("the config is also of %q, %q and %q", alone.ConfigAlsoOf, first.ConfigAlsoOf, second.ConfigAlsoOf)
	}
}

func TestEncodingAndDialectAreDecidedOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, config, want string }{
		"plain": {prompt, "", "plain"},
		"OpenAI": {`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}` + "\n",
			"", "openai"},
		"Bedrock":           {`{"recordId":"a","modelInput":{}}` + "\n", "", "bedrock"},
		"Vertex":            {`{"request":{"contents":[]}}` + "\n", "", "vertex"},
		"with a BOM":        {"\ufeff" + prompt, "", "plain"},
		"empty file":        {"", "", "plain"},
		"set in the config": {prompt, "schema_version = 1\n[input]\ndialect = \"openai\"\n", "openai"},
	} {
		d := newFixture(t)
		if c.config != "" {
			hosttest.Put(t, d.Ports, "prompts/x.toml", c.config)
		}
		if m := d.upload("prompts/x.jsonl", c.content); m.Dialect != c.want || m.Refused != "" {
			t.Errorf("%s: %q, refused %q; want %q", name, m.Dialect, m.Refused, c.want)
		}
	}
}

func TestObjectsThatAreNotPromptsFilesAreIgnored(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"prompts/x.toml", "prompts/x.json", "prompts/.x.jsonl", "prompts/.tmp/x.jsonl",
		"runs/r/completions.jsonl", "work/r/x.jsonl", "x.jsonl",
	} {
		d := newFixture(t)
		e := events.ObjectCreated{Bucket: "local", Key: key, Version: "1", Size: 1}
		err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e)
		if err != nil || d.manifest(e).Run != "" || d.planned() != 0 {
			t.Errorf("%s became a run: %v", key, err)
		}
	}
}

func TestRepeatedEventNamesTheSameRunAndAsksForItsPlanAgain(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at})
	e := d.put("prompts/x.jsonl", prompt)
	for range 3 {
		if err := s.Uploaded(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	first := d.manifest(e)
	if n := d.planned(); n != 3 {
		t.Errorf("asked %d times, want 3: a request may be lost", n)
	}
	hosttest.Put(t, d.Ports, "prompts/x.toml", "[") // too late for this run
	d.deploy.Pools = nil
	if err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if now := d.manifest(e); now.Refused != "" || !now.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("the run became %+v", now)
	}
	_, err := d.Blobs.Stat(t.Context(), record.OutputKey(first.Run, record.SummaryFile), "")
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("a run that goes on has a summary: %v", err)
	}
}

// failingDocs fails to create documents below a prefix.
type failingDocs struct {
	document.Store
	prefix string
}

func (i failingDocs) Create(ctx context.Context, key string, value []byte) (document.Revision, error) {
	if strings.HasPrefix(key, i.prefix) {
		return "", fault.New(fault.Unavailable, "the process crashed")
	}
	return i.Store.Create(ctx, key, value)
}

// Wherever a submission stops, reclaim finds every manifest through the index of
// open runs. Refused runs are in it, too, until reclaim moves them to that of ended ones.
func TestRunIsInTheIndexBeforeItsManifestExists(t *testing.T) {
	t.Parallel()
	noted := func(d *fixture, e events.ObjectCreated) bool {
		_, err := d.Docs.Get(t.Context(), record.OpenRunKey(identity.UploadRun("local", e.Key, e.Version)))
		return err == nil
	}
	for name, c := range map[string]struct {
		config, fails  string
		manifest, open bool
	}{
		"created":                 {"", "nowhere", true, true},
		"refused":                 {"[", "nowhere", true, true},
		"failed before the index": {"", record.OpenRunPrefix, false, false},
		"failed between the two":  {"", record.ManifestPrefix, false, true},
	} {
		d := newFixture(t)
		if c.config != "" {
			hosttest.Put(t, d.Ports, "prompts/x.toml", c.config)
		}
		whole := d.Docs
		d.Docs = failingDocs{whole, c.fails}
		e := d.put("prompts/x.jsonl", prompt)
		err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e)
		if (d.manifest(e).Run != "") != c.manifest || (err == nil) != c.manifest || noted(d, e) != c.open {
			t.Errorf("%s: in the index: %v, %v", name, noted(d, e), err)
		}
		d.Docs = whole
		err = submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e)
		if err != nil || !noted(d, e) {
			t.Errorf("%s, and again: in the index: %v, %v", name, noted(d, e), err)
		}
	}
}

// A submission that is repeated enters the run under the time of its first attempt, wherever that
// stopped: a second entry by name would stay when the run's documents expire.
func TestRepeatedSubmissionHasOneEntryByName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []string{record.OpenRunPrefix, record.NamedPrefix, record.ManifestPrefix} {
			d := newFixture(t)
			e, whole := d.put("prompts/x.jsonl", prompt), d.Docs
			d.Docs = failingDocs{whole, fails}
			if err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e); err == nil {
				t.Errorf("%s: the first attempt did not fail", fails)
			}
			d.Docs = whole
			time.Sleep(time.Second)
			if err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			m := d.manifest(e)
			var got, want []string
			for _, prefix := range []string{record.NamedPrefix, record.CreatedPrefix} {
				page, err := d.Docs.List(t.Context(), prefix, "", 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, entry := range page {
					got = append(got, entry.Key)
				}
			}
			for _, n := range record.NamedEntries(m, !d.at.RemoteBucket) {
				want = append(want, n.Key)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s: the entries are %q, want %q", fails, got, want)
			}
		}
	})
}

// A repeated event does not add a run to the index that has ended meanwhile.
func TestRepeatedEventDoesNotReopenARun(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	e := d.put("prompts/x.jsonl", prompt)
	s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at})
	if err := s.Uploaded(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	note, err := d.Docs.Get(t.Context(), record.OpenRunKey(d.manifest(e).Run))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Docs.Delete(t.Context(), note.Key, note.Revision); err != nil {
		t.Fatal(err)
	}
	if err := s.Uploaded(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Docs.Get(t.Context(), note.Key); !fault.Is(err, fault.NotFound) {
		t.Errorf("it is in the index again: %v", err)
	}
}

func TestOverwrittenVersionIsIgnored(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	stale := d.put("prompts/x.jsonl", prompt)
	fresh := d.put("prompts/x.jsonl", prompt+prompt)
	s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at})
	for _, e := range []events.ObjectCreated{stale, fresh} {
		if err := s.Uploaded(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if m := d.manifest(stale); m.Run != "" {
		t.Errorf("the overwritten version became a run: %+v", m)
	}
	if m := d.manifest(fresh); m.Run == "" || m.Inputs[0].Version != fresh.Version {
		t.Errorf("the new version became %+v", m)
	}
}

func TestUnavailableStoreRefusesNoRun(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"prompts/x.jsonl", "prompts/x.jsonl.gz"} {
		d := newFixture(t)
		e := d.put(key, prompt)
		d.Blobs = unavailableBlobs{d.Blobs, key}
		err := submit.New(d.Ports, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e)
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", key, err)
		}
		if m := d.manifest(e); m.Run != "" {
			t.Errorf("%s became %+v", key, m)
		}
	}
}

// unavailableBlobs is a bucket in which reading one object fails at once.
type unavailableBlobs struct {
	blob.Store
	key string
}

func (d unavailableBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == d.key {
		return io.NopCloser(brokenReader{}), blob.Info{}, nil
	}
	return d.Store.Get(ctx, key, o)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) {
	return 0, fault.New(fault.Unavailable, "the connection broke")
}

// A config in a deployment's defaults is checked with the deployment. A kind that
// this version lacks may still come from a program that submits runs itself.
func TestRunOfAnUnknownKindIsRefusedByName(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.deploy.Defaults.Kind = "contest"
	m := d.upload("prompts/x.jsonl", prompt)
	const want = `the kind of run "contest" is not known (use one of: batch, rollout, train, trials)`
	if !strings.Contains(m.Refused, want) {
		t.Errorf("refused with %q, want %q", m.Refused, want)
	}
}

func TestDedupeOfAGrowingRunIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.deploy.Defaults.Kind = "grows"
	grows := kind.Kind{Name: "grows", Complete: kind.CompletePrompts,
		Grow: func(context.Context, kind.Growth, io.Writer) error { return nil }}
	o := submit.Options{Deployment: d.deploy, Kinds: kind.Table{}.With(grows)}
	for key, want := range map[string]string{"prompts/x.jsonl": "", "prompts/y.jsonl": "remove dedupe.enabled"} {
		o.Deployment.Defaults.Dedupe.Enabled = want != ""
		e := d.put(key, prompt)
		if err := submit.New(d.Ports, o).Uploaded(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		if m := d.manifest(e); m.Kind != "grows" || (m.Refused == "") != (want == "") || !strings.Contains(m.Refused, want) {
			t.Errorf("%s: %+v", key, m)
		}
	}
}

func TestRunsWithUnusableGradersAreRefused(t *testing.T) {
	t.Parallel()
	const grader = "schema_version = 1\n[[grade]]\nname = \"a\"\n"
	for name, c := range map[string]struct{ config, refused string }{
		"a known service":    {grader + "kind = \"http\"\nservice = \"reward\"\n", ""},
		"an unknown service": {grader + "kind = \"http\"\nservice = \"other\"\n", "use one of reward"},
		"a schema that does not compile": {grader + "kind = \"json_schema\"\nschema = '{\"type\":\"text\"}'\n",
			"prompts/x.toml:5: grade[0].schema: is not a JSON schema"},
	} {
		d := newFixture(t)
		d.deploy.Graders = map[string]config.GraderService{"reward": {URL: "http://reward.test"}}
		d.put("prompts/x.toml", c.config)
		m := d.upload("prompts/x.jsonl", prompt)
		if (m.Refused == "") != (c.refused == "") || !strings.Contains(m.Refused, c.refused) {
			t.Errorf("%s: refused %q, want %q", name, m.Refused, c.refused)
		}
	}
}

// judged is a kind of run that has a judge besides the answer.
func judged(model string) kind.Kind {
	roles := func(config.Run) []kind.Role {
		return []kind.Role{{Name: "judge", Model: config.Model{URI: model}, Sampling: config.Sampling{MaxTokens: new(int)}}}
	}
	return kind.Kind{Name: config.KindBatch + "-judged", Complete: kind.CompletePrompts, Roles: roles}
}

func TestRolesGetThePoolsThatServeTheirModels(t *testing.T) {
	t.Parallel()
	for model, refused := range map[string]string{
		"wise":  "",
		"wiser": "role judge: no pool serves the model wiser (set model.uri to one of: m, wise",
	} {
		d := newFixture(t)
		d.deploy.Pools = append(d.deploy.Pools, config.Pool{Name: "judges", Model: "wise", Revision: "r1"})
		e := d.put("prompts/x.jsonl", prompt)
		cfg := d.deploy.Defaults
		k := judged(model)
		cfg.Kind, cfg.Model.URI = k.Name, "m"
		s := submit.New(d.Ports, submit.Options{Deployment: d.deploy, Kinds: kind.Table{}.With(k)})
		m := record.Manifest{Run: identity.UploadRun("local", e.Key, e.Version),
			Inputs: []record.Input{{Key: e.Key, Version: e.Version, Size: e.Size}}}
		if err := s.Create(t.Context(), m, cfg); err != nil {
			t.Fatal(err)
		}
		m = d.manifest(e)
		if refused != "" {
			if !strings.Contains(m.Refused, refused) {
				t.Errorf("refused with %q, want %q", m.Refused, refused)
			}
			continue
		}
		if m.Refused != "" || m.Pool != "default" || len(m.Roles) != 1 || m.Roles[0].Pool != "judges" ||
			m.Roles[0].ModelURI != "wise" || m.Roles[0].ModelID != identity.Model("wise", "r1").String() ||
			m.Roles[0].Sampling.MaxTokens == nil {
			t.Errorf("%+v", m)
		}
	}
}

// Servers cut a raw prompt's answer at 16 tokens or at another number of theirs: the
// manifest has ours, unless the config says one.
func TestRawPromptsGetAMaxTokensOfOurs(t *testing.T) {
	t.Parallel()
	chat := `{"custom_id":"a","url":"/v1/completions","body":{"prompt":"p"}}` + "\n"
	for name, c := range map[string]struct {
		line string
		edit func(*config.Run)
		want int
	}{
		"plain":            {prompt, func(*config.Run) {}, 1024},
		"openai":           {chat, func(*config.Run) {}, 0},
		"sampling":         {prompt, func(r *config.Run) { n := 5; r.Sampling.MaxTokens = &n }, 0},
		"sent as chats":    {prompt, func(r *config.Run) { r.Request = &config.Request{Endpoint: "chat"} }, 0},
		"completions":      {prompt, func(r *config.Run) { r.Request = &config.Request{Endpoint: "completions"} }, 1024},
		"an extra member":  {prompt, func(r *config.Run) { r.Request = extra("max_tokens", "") }, 0},
		"by another name":  {prompt, func(r *config.Run) { r.Request = extra("max_out", "max_out") }, 0},
		"a member of none": {prompt, func(r *config.Run) { r.Request = extra("x", "max_out") }, 1024},
	} {
		d := newFixture(t)
		e := d.put("prompts/x.jsonl", c.line)
		cfg := d.deploy.Defaults
		cfg.Model.URI = "m"
		c.edit(&cfg)
		m := record.Manifest{Run: identity.UploadRun("local", e.Key, e.Version),
			Inputs: []record.Input{{Key: e.Key, Version: e.Version, Size: e.Size}}}
		if err := submit.New(d.Ports, submit.Options{Deployment: d.deploy}).Create(t.Context(), m, cfg); err != nil {
			t.Fatal(err)
		}
		if m := d.manifest(e); m.Refused != "" || m.PromptMaxTokens != c.want {
			t.Errorf("%s: %d, want %d (%s)", name, m.PromptMaxTokens, c.want, m.Refused)
		}
	}
}

func extra(name, field string) *config.Request {
	return &config.Request{Extra: map[string]any{name: int64(7)}, MaxTokensField: field}
}

// A judge is a role of its batch: with a model and settings of its own, or the model of
// the answers.
func TestJudgesAreRolesOfTheirRun(t *testing.T) {
	t.Parallel()
	const judge = "schema_version = 1\nmodel.uri = 'm'\n[[grade]]\nname = 'style'\nkind = 'judge'\n" +
		"prompt = '{answer}'\nrange = [0, 1]\n"
	for name, c := range map[string]struct{ config, pool, refused string }{
		"its own model":   {judge + "model = 'wise'\nrequest = { extra = { effort = 'low' } }", "judges", ""},
		"the run's model": {judge, "default", ""},
		"an unknown model": {judge + "model = 'wiser'", "",
			"role judge-style: no pool serves the model wiser (set grade[0].model to one of: m, wise"},
		"identical requests": {judge + "[dedupe]\nenabled = true", "", "can't be combined with dedupe.enabled"},
	} {
		d := newFixture(t)
		d.deploy.Pools = append(d.deploy.Pools, config.Pool{Name: "judges", Model: "wise"})
		d.put("prompts/x.toml", c.config)
		m := d.upload("prompts/x.jsonl", prompt)
		if c.refused != "" || m.Refused != "" {
			if c.refused == "" || !strings.Contains(m.Refused, c.refused) {
				t.Errorf("%s: refused with %q, want %q", name, m.Refused, c.refused)
			}
			continue
		}
		if len(m.Roles) != 1 || m.Roles[0].Name != "judge-style" || m.Roles[0].Pool != c.pool ||
			*m.Roles[0].Sampling.Temperature != 0 || (m.Roles[0].Request != nil) != (c.pool == "judges") {
			t.Errorf("%s: %+v", name, m.Roles)
		}
	}
}
