package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// The commands of people work under the policies that the stack has for them,
// and what goes beyond is refused.
func TestPeoplesPoliciesAllowTheirCommandsAndNoMore(t *testing.T) {
	t.Parallel()
	s := serve(t, "--latency", "50ms")
	a := open(t, s, "max_machines = 1\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 1); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	few := write(t, folder, "few.jsonl", simple(20))
	write(t, folder, "few.toml", "schema_version = 1\nname = \"few\"\n")
	many := write(t, folder, "many.jsonl", simple(4000))
	as := func(policy string, args ...string) (string, error) {
		where := []string{"--cloud", "aws", "--dir", a.dir}
		if args[0] == "cloud" {
			where = []string{"--provider", "aws", "--config", filepath.Join(a.dir, "rollout.toml")}
		}
		return rollout(t, a.Environment(a.policy(policy)), append(args, where...)...)
	}
	works := func(policy string, args ...string) string {
		t.Helper()
		said, err := as(policy, args...)
		if err != nil {
			t.Fatalf("%s by a %s: %v\n%s", strings.Join(args, " "), policy, err, said)
		}
		return said
	}
	works("user", "submit", few, "--wait")
	works("user", "submit", many)
	eventually(t, "it is a run", func() bool { _, err := as("user", "status", "many"); return err == nil })
	for _, policy := range []string{"reader", "user"} {
		if said := works(policy, "status"); !strings.Contains(said, "few") || !strings.Contains(said, "many") {
			t.Errorf("a %s sees\n%s", policy, said)
		}
		works(policy, "explain", "many")
		works(policy, "explain", "few", "#3")
		works(policy, "results", "few", "-o", filepath.Join(t.TempDir(), "few.jsonl"))
		works(policy, "bundle", "few", "-o", filepath.Join(t.TempDir(), "few.tar.gz"))
	}
	if refused := a.DeniedRequests(); len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}

	a.refused = true // from here on on purpose
	for _, beyond := range [][]string{{"reader", "submit", few}, {"reader", "pause", "many"}, {"reader", "resume", "many"}, {"reader", "stop", "many"}, {"user", "cloud", "doctor"}} {
		before := len(a.DeniedRequests())
		if said, err := as(beyond[0], beyond[1:]...); err == nil || len(a.DeniedRequests()) == before {
			t.Errorf("%s by a %s: %v, refused %q\n%s", strings.Join(beyond[1:], " "), beyond[0], err, a.DeniedRequests()[before:], said)
		}
	}

	before := len(a.DeniedRequests())
	for _, steer := range []string{"pause", "resume", "stop"} {
		works("user", steer, "many")
	}
	if refused := a.DeniedRequests()[before:]; len(refused) > 0 {
		t.Errorf("refused: %q", refused)
	}
}
