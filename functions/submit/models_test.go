package submit_test

import (
	"fmt"
	"strings"
	"testing"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

const trialsOfModels = "schema_version = 1\nkind = 'trials'\nmodel.uri = 'm'\n[sampling]\nmax_tokens = 9\n" +
	"[[variant]]\nname = 'first'\n[[variant]]\nname = 'same'\nmodel = 'm'\n"

// Each further model of trials is a role with output, in the pool that serves it.
func TestFurtherModelsOfTrialsAreRoles(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for n := range 8 {
		fmt.Fprintf(&many, "[[variant]]\nname = 'v%d'\nmodel = 'm%d'\n", n, n)
	}
	for name, c := range map[string]struct{ variants, want, refused string }{
		"one model": {"", "", ""},
		"two models": {"[[variant]]\nname = 'big'\nmodel = 'm1'\n[[variant]]\nname = 'bigger'\nmodel = 'm1'\n" +
			"[[variant]]\nname = 'other'\nmodel = 'm0'\n", "answer-big:pool-1 answer-other:pool-0 ", ""},
		"the model of the run again": {"[[variant]]\nname = 'as-it-is'\nmodel = 'm'\n", "", ""},
		"an unknown one": {"[[variant]]\nname = 'big'\nmodel = 'huge'\n", "",
			"role answer-big: no pool serves the model huge (set variant[2].model to one of: m, m0"},
		"too many": {many.String(), "", "a run has at most 8 roles, the answer included, not 9 (name fewer models"},
	} {
		d := newFixture(t)
		for n := range 8 {
			d.deploy.Pools = append(d.deploy.Pools, config.Pool{Name: fmt.Sprintf("pool-%d", n), Model: fmt.Sprintf("m%d", n)})
		}
		d.put("prompts/x.toml", trialsOfModels+c.variants)
		m := d.upload("prompts/x.jsonl", `{"id":"a","prompt":"1"}`+"\n")
		got := ""
		for _, r := range m.Roles {
			got += r.Name + ":" + r.Pool + " "
			if !r.Output || !r.Graded || *r.Sampling.MaxTokens != 9 || r.ModelID != identity.Model(r.ModelURI, "").String() {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if c.refused == "" && (m.Refused != "" || got != c.want) || !strings.Contains(m.Refused, c.refused) {
			t.Errorf("%s: the roles are %s, want %s; refused with %q", name, got, c.want, m.Refused)
		}
	}
}

// Children keep the roles of their parent, in the pools that serve them now, and amendments add
// those of further models.
func TestChildrenOfTrialsKeepTheModels(t *testing.T) {
	t.Parallel()
	variants := []config.Variant{{Name: "a"}, {Name: "b", Model: "m1"}}
	for name, c := range map[string]struct {
		amend    *events.Amend
		revision string // of m1 now
		want     string
		refused  string
	}{
		"a retry":           {nil, "", "answer-b:moved ", ""},
		"a further model":   {&events.Amend{Variants: `[{"name":"c","model":"m2"}]`}, "", "answer-b:moved answer-c:two ", ""},
		"another revision":  {nil, "r2", "", "the model m1 of role answer-b is served in another revision"},
		"an unknown model":  {&events.Amend{Variants: `[{"name":"c","model":"m3"}]`}, "", "", "no pool serves the model m3"},
		"more replications": {&events.Amend{Replications: 2}, "", "answer-b:moved ", ""},
	} {
		d := newFixture(t)
		d.deploy.Pools = append(d.deploy.Pools, config.Pool{Name: "moved", Model: "m1", Revision: c.revision},
			config.Pool{Name: "two", Model: "m2"})
		d.ended(func(m *record.Manifest, _ *run.State) {
			m.Kind, m.Config.Kind, m.Config.Model.URI = config.KindTrials, config.KindTrials, "m"
			m.Config.Shard, m.Config.Variants = config.DefaultShard(), variants
			m.Roles = []record.Role{{Name: "answer-b", Pool: "one", ModelURI: "m1", Output: true, Graded: true,
				ModelID: identity.Model("m1", "").String()}}
		})
		e := events.RetryRequested{Run: childID, Parent: string(inputtest.RunID), Amend: c.amend}
		if c.amend == nil {
			e.Only = []string{"timeout"}
		}
		m := d.request(e)
		got := ""
		for _, r := range m.Roles {
			got += r.Name + ":" + r.Pool + " "
		}
		if c.refused == "" && (m.Refused != "" || got != c.want) || !strings.Contains(m.Refused, c.refused) {
			t.Errorf("%s: the roles are %s, want %s; refused with %q", name, got, c.want, m.Refused)
		}
	}
}
