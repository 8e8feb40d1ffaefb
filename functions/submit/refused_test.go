package submit_test

import (
	"context"
	"io"
	"strconv"
	"strings"
	"testing"

	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

func TestUploadThatCannotRunBecomesARefusedRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config, content, key, want string
		pools                      []config.Pool
	}{
		"config is not TOML": {config: "[", want: "prompts/x.toml"},
		"unknown key":        {config: "schema_version = 1\nshards = 3\n", want: "shards"},
		"config too large":   {config: strings.Repeat("#", 2<<20), want: "longer"},
		"NaN":                {config: "schema_version = 1\nsampling.temperature = nan\n", want: "temperature: must be"},
		"an infinity":        {config: "schema_version = 1\nlimits.failed_share = inf\n", want: "failed_share: must be"},
		"NaN among members":  {config: "schema_version = 1\nrequest.extra.a.b = [nan]\n", want: "request.extra"},
		"a list that no manifest can hold": {want: "has 4000 strings",
			config: "schema_version = 1\nsampling.stop = [" +
				strings.Repeat(strconv.Quote(strings.Repeat("x", 100))+",", 4000) + "]"},
		"an invalid name": {config: "schema_version = 1\nname = \"a\\u001b[2Jb\"\n", want: "name: has control characters"},
		"dollars where nothing has a price": {config: "schema_version = 1\nlimits.dollars = 2.5\n",
			want: "pool default has no price that it could count"},
		"model without a pool": {config: "schema_version = 1\n[model]\nuri = \"other\"\n",
			want: "no pool serves the model other"},
		"several pools, no model": {want: "several pools",
			pools: []config.Pool{{Name: "a", Model: "m"}, {Name: "b", Model: "n"}}},
		"UTF-16": {content: "\xff\xfe{\x00", want: "UTF-16"},
		"a JSON array": {content: "[\n{\"prompt\":\"a\"}\n]\n",
			want: "rollout convert --from json x.jsonl x-lines.jsonl"},
		"not a gzip archive": {key: "prompts/x.jsonl.gz", want: "gzip"},
		"not a zstd archive": {key: "prompts/x.jsonl.zst", want: "unpack"},
	} {
		d := newFixture(t)
		if c.pools != nil {
			d.deploy.Pools = c.pools
		}
		if c.config != "" {
			hosttest.Put(t, d.Ports, "prompts/x.toml", c.config)
		}
		key, content := "prompts/x.jsonl", prompt
		if c.key != "" {
			key = c.key
		}
		if c.content != "" {
			content = c.content
		}
		m := d.upload(key, content)
		if m.Name != "x" || m.Kind != config.KindBatch {
			t.Errorf("%s: it is the %s %q", name, m.Kind, m.Name)
		}
		if !strings.Contains(m.Refused, c.want) {
			t.Errorf("%s: refused for %q, want %q", name, m.Refused, c.want)
			continue
		}
		if n := d.planned(); n != 0 {
			t.Errorf("%s: it is planned", name)
		}
		sum := hosttest.Object(t, d.Ports, record.OutputKey(m.Run, record.SummaryFile))
		if !strings.Contains(sum, `"reason":"refused"`) {
			t.Errorf("%s: the summary is %s", name, sum)
		}
	}
}

// deniedBlobs are objects of which some can't be read.
type deniedBlobs struct {
	blob.Store
	denied string
}

func (b deniedBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if key == b.denied {
		return nil, blob.Info{}, fault.New(fault.Denied, "permission denied")
	}
	return b.Store.Get(ctx, key, o)
}

// A file that can't be read stays so until its owner changes it. A service's denial may
// pass: the event is delivered again.
func TestUnreadableFileRefusesTheRunUnlessTheBucketIsRemote(t *testing.T) {
	t.Parallel()
	for _, denied := range []string{"prompts/x.jsonl", "prompts/x.toml"} {
		for _, remote := range []bool{false, true} {
			d := newFixture(t)
			d.at.RemoteBucket = remote
			e := d.put("prompts/x.jsonl", prompt)
			hosttest.Put(t, d.Ports, "prompts/x.toml", "schema_version = 1\n")
			p := d.Ports
			p.Blobs = deniedBlobs{p.Blobs, denied}
			err := submit.New(p, submit.Options{Deployment: d.deploy, At: d.at}).Uploaded(t.Context(), e)
			if m := d.manifest(e); remote != fault.Is(err, fault.Denied) || remote != (m.Run == "") ||
				strings.Contains(m.Refused, "permission denied") == remote {
				t.Errorf("%s is denied, remote %v: %v, refused for %q", denied, remote, err, m.Refused)
			}
		}
	}
}

// A run that no manifest can hold is refused, instead of being tried for ever.
func TestRunThatNoManifestCanHoldIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	e := d.put("prompts/x.jsonl", prompt)
	in := record.Input{Key: e.Key, Version: e.Version, Size: e.Size}
	m := record.Manifest{Run: identity.UploadRun("local", e.Key, e.Version), Name: "many"}
	m.Inputs = append(m.Inputs, in)
	m.ConfigAlsoOf = strings.Repeat("a long name", document.MaxValue/10)
	sub := submit.New(d.Ports, submit.Options{Deployment: d.deploy})
	if err := sub.Create(t.Context(), m, config.DefaultRun()); err != nil {
		t.Fatal(err)
	}
	got := d.manifest(e)
	if !strings.Contains(got.Refused, "make a manifest of") || got.Name != "many" || len(got.Inputs) != 1 ||
		d.planned() != 0 {
		t.Errorf("refused: %q, %d inputs", got.Refused, len(got.Inputs))
	}
}
