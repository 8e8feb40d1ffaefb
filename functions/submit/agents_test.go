package submit_test

import (
	"strings"
	"testing"

	"rollout/shared/core/identity"
	"rollout/shared/host/hosttest"
)

func TestAgentsAreSubmittedOnlyWherePermitted(t *testing.T) {
	t.Parallel()
	const config = "schema_version = 1\nkind = 'trials'\n" +
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
			hosttest.Put(t, d.Ports, "prompts/x.toml", config+c.more)
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
		})
	}
}
