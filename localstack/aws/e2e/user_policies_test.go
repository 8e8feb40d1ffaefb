package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
)

// The commands of users and readers work with the stack's policies for them, and
// others are denied.
func TestUserPoliciesAllowOnlyTheirCommands(t *testing.T) {
	t.Parallel()
	s := scenarios.Serve(t, fakellm.Config{Latency: 50 * time.Millisecond})
	a := open(t, s, scenarios.Settings{Machines: 1}, nil)
	folder := t.TempDir()
	few := scenarios.Write(t, folder, "few.jsonl", scenarios.SimplePrompts(20))
	scenarios.Write(t, folder, "few.toml", "schema_version = 1\nname = \"few\"\n")
	many := scenarios.Write(t, folder, "many.jsonl", scenarios.SimplePrompts(4000))
	as := func(policy string, args ...string) (string, error) {
		where := []string{"--cloud", "aws", "--dir", a.dir}
		if args[0] == "cloud" {
			where = []string{"--provider", "aws", "--config", filepath.Join(a.dir, "rollout.toml")}
		}
		environment := a.Deployed.Environment(a.policy(policy))
		return scenarios.Rollout(t, programs.Path("rollout"), environment, append(args, where...)...)
	}
	works := func(policy string, args ...string) string {
		t.Helper()
		out, err := as(policy, args...)
		if err != nil {
			t.Fatalf("%s by a %s: %v\n%s", strings.Join(args, " "), policy, err, out)
		}
		return out
	}
	if out := works("user", "submit", few, "--dry-run"); !strings.Contains(out, "in a cloud can't be seen from here") {
		t.Errorf("a dry run says\n%s", out)
	}
	if out := works("user", "submit", few, "--sample", "10"); !strings.Contains(out, "the whole file: 20 items") ||
		!strings.Contains(out, "--cloud aws") {
		t.Errorf("a sample says\n%s", out)
	}
	works("user", "submit", few, "--wait")
	works("user", "submit", many)
	scenarios.Eventually(t, "the run exists", func() bool { _, err := as("user", "status", "many"); return err == nil })
	for _, policy := range []string{"reader", "user"} {
		if out := works(policy, "status"); !strings.Contains(out, "few") || !strings.Contains(out, "many") {
			t.Errorf("status of a %s is\n%s", policy, out)
		}
		works(policy, "explain", "many")
		if out := works(policy, "plan", "few"); !strings.Contains(out, "20 items in") {
			t.Errorf("plan of a %s is\n%s", policy, out)
		}
		works(policy, "explain", "few", "#3")
		works(policy, "results", "few", "-o", filepath.Join(t.TempDir(), "few.jsonl"))
		works(policy, "bundle", "few", "-o", filepath.Join(t.TempDir(), "few.tar.gz"))
	}
	if denied := a.DeniedRequests(); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}

	a.mayBeDenied = true
	for _, command := range [][]string{{"reader", "submit", few}, {"reader", "pause", "many"},
		{"reader", "resume", "many"}, {"reader", "stop", "many"}, {"user", "cloud", "doctor"}} {
		before := len(a.DeniedRequests())
		if out, err := as(command[0], command[1:]...); err == nil || len(a.DeniedRequests()) == before {
			t.Errorf("%s by a %s: %v, denied %q\n%s", strings.Join(command[1:], " "), command[0], err,
				a.DeniedRequests()[before:], out)
		}
	}

	before := len(a.DeniedRequests())
	for _, verb := range []string{"pause", "resume", "stop"} {
		works("user", verb, "many")
	}
	if denied := a.DeniedRequests()[before:]; len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
}
