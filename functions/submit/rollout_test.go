package submit_test

import (
	"testing"

	"rollout/shared/blob"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

const rolloutConfig = `schema_version = 1
kind = "rollout"
[[mission]]
name = "m"
[[grade]]
name = "g"
kind = "exact"
expected = "answer.text"
`

const oneTicket = `{"group_id":"g","content":"c","answer":{"text":"yes"}}` + "\n"

// TestManifestOfARolloutSaysWhereMembersCarryTheirTicket checks what workers read: lines of
// the plain dialect, with the ticket under a name of its own.
func TestManifestOfARolloutSaysWhereMembersCarryTheirTicket(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	hosttest.Put(t, d.Ports, "prompts/x.toml", rolloutConfig)
	m := d.upload("prompts/x.jsonl", oneTicket)
	if m.Refused != "" || m.Dialect != "plain" || len(m.Config.Grades) != 1 ||
		m.Config.Grades[0].Expected != "ticket.answer.text" {
		t.Errorf("the manifest is %+v", m)
	}
}

// TestKeptTicketsAreTheRunThatTheyWereBefore restores a folder with a rollout, and changes
// its file or its config.
func TestKeptTicketsAreTheRunThatTheyWereBefore(t *testing.T) {
	t.Parallel()
	const key = "prompts/x.jsonl"
	for name, c := range map[string]struct {
		content, config string
		change          func(*fixture)
		same            bool
	}{
		"same bytes":         {oneTicket, rolloutConfig, nil, true},
		"work files deleted": {oneTicket, rolloutConfig, (*fixture).clean, true},
		"other bytes":        {`{"group_id":"g","content":"d","answer":{"text":"yes"}}` + "\n", rolloutConfig, nil, false},
		"another config":     {oneTicket, rolloutConfig + "weight = 2.0\n", nil, false},
	} {
		d := newFixture(t)
		hosttest.Put(t, d.Ports, "prompts/x.toml", rolloutConfig)
		first := d.upload(key, oneTicket)
		d.plan()
		if p := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(first.Run)); p.Items != 1 {
			t.Fatalf("%s: the plan is %+v", name, p)
		}
		if c.change != nil {
			c.change(d)
		}
		hosttest.Put(t, d.Ports, "prompts/x.toml", c.config)
		if got := d.appears(key, c.content, blob.Kept); (got == first.Run) != c.same {
			t.Errorf("%s: run %s became %s", name, first.Run, got)
		}
	}
}
