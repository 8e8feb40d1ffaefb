package submit_test

import (
	"strings"
	"testing"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

func TestAgentsAreSubmittedOnlyWherePermitted(t *testing.T) {
	t.Parallel()
	const settings = "schema_version = 1\nkind = 'trials'\n" +
		"[[variant]]\nname = 'v'\ncommand = ['sh']\nartifact = 'agents/a/'\n"
	for name, c := range map[string]struct {
		processes, remote, artifact bool
		more, want                  string
	}{
		"permitted":         {true, false, true, "", ""},
		"not permitted":     {false, false, true, "", "processes = true in [trials]"},
		"in a cloud":        {true, true, true, "", "workers in a cloud run no programs"},
		"no artifact":       {true, false, false, "", "artifact of the variant v"},
		"dollars, no price": {true, false, true, "[variant.limits]\ndollars = 1\n", "no price"},
		"what a grader wants": {true, false, true, "shows = ['x']\n[[grade]]\nname='g'\nkind='exact'\nexpected='x'\n",
			"would show"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.deploy.Trials.Processes, d.at.RemoteBucket = c.processes, c.remote
			if c.artifact {
				hosttest.Put(t, d.Ports, "agents/a/agent", "echo 1")
			}
			hosttest.Put(t, d.Ports, "prompts/x.toml", settings+c.more)
			m := d.upload("prompts/x.jsonl", `{"id":"a","prompt":"1"}`+"\n")
			if (c.want == "") != (m.Refused == "") || !strings.Contains(m.Refused, c.want) {
				t.Errorf("refused because of %q, want %q", m.Refused, c.want)
			}
			if c.want != "" {
				return
			}
			if len(m.Artifacts) != 1 || m.Artifacts[0].Variant != "v" || m.Artifacts[0].Files != 1 ||
				m.Artifacts[0].Key != "agents/a/" {
				t.Fatalf("%+v", m.Artifacts)
			}
			id, _ := identity.ParseContentID(m.Artifacts[0].Content)
			if !strings.Contains(hosttest.Object(t, d.Ports, identity.ContentKey(id)), "echo 1") {
				t.Error("the artifact has lost its file")
			}
			if !d.keeps(m.Artifacts[0], m.Run) {
				t.Error("the artifact may be deleted before the run expires")
			}
		})
	}
}

// keeps reports whether the artifact's object is kept for the run.
func (d *fixture) keeps(a record.Artifact, r identity.RunID) bool {
	d.t.Helper()
	doc, err := d.Docs.Get(d.t.Context(), "content/"+a.Content)
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.t.Fatal(err)
	}
	return strings.Contains(string(doc.Value), `"run/`+string(r)+`"`)
}

// A child keeps the artifacts of its parent, whatever is in their place now, and freezes those of
// the variants that an amendment adds.
func TestChildrenFreezeTheAgentsThatTheyAdd(t *testing.T) {
	t.Parallel()
	for _, permitted := range []bool{true, false} {
		d := newFixture(t)
		d.deploy.Trials.Processes = permitted
		content := identity.TextContent("old")
		hosttest.Put(t, d.Ports, identity.ContentKey(content), "old")
		kept := record.Artifact{Variant: "old", Key: "agents/old/", Content: content.String()}
		d.ended(func(m *record.Manifest, _ *run.State) {
			m.Kind, m.Config.Kind = config.KindTrials, config.KindTrials
			m.Config.Shard = config.DefaultShard()
			m.Config.Variants = []config.Variant{{Name: "old", Command: []string{"sh"}, Artifact: "agents/old/"}}
			m.Artifacts = []record.Artifact{kept}
		})
		hosttest.Put(t, d.Ports, "agents/new/agent", "echo 1")
		m := d.request(events.RetryRequested{Run: childID, Parent: string(inputtest.RunID), Amend: &events.Amend{
			Variants: `[{"name":"new","command":["sh"],"artifact":"agents/new/"}]`}})
		if !permitted {
			if !strings.Contains(m.Refused, "does not permit programs") {
				t.Errorf("refused because of %q", m.Refused)
			}
			continue
		}
		if m.Refused != "" || len(m.Artifacts) != 2 || m.Artifacts[0] != kept || m.Artifacts[1].Files != 1 ||
			m.Artifacts[1].Variant != "new" {
			t.Fatalf("%q, %+v", m.Refused, m.Artifacts)
		}
		for _, a := range m.Artifacts {
			if !d.keeps(a, childID) {
				t.Errorf("the artifact of %s may be deleted before the child expires", a.Variant)
			}
		}
	}
}
