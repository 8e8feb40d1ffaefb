package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
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
		environment := a.Deployed.Environment(a.caller(policy))
		return scenarios.Rollout(t, programs.Path("rollout"), environment,
			append(args, "--cloud", "aws", "--dir", a.dir)...)
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
	// The doctor of a user tries all but secrets; that of a reader tries nothing that it would have to make. Neither
	// reaches a registry from here.
	text, err := os.ReadFile(filepath.Join(a.dir, "rollout.toml"))
	if err != nil {
		t.Fatal(err)
	}
	scenarios.Write(t, folder, "rollout.toml", strings.Replace(string(text), "[cloud.fleet]\n",
		"[cloud.secrets]\nallowlist = [\"hf-token\"]\n[cloud.fleet]\n", 1))
	for policy, unseen := range map[string][]string{
		"user":   {"secret_store"},
		"reader": {"object_store", "queue", "secret_store", "content_id_roundtrip"},
	} {
		out, err := scenarios.Rollout(t, programs.Path("rollout"), a.Deployed.Environment(a.caller(policy)),
			"cloud", "doctor", "--json", "--provider", "aws", "--config", filepath.Join(folder, "rollout.toml"))
		if err != nil {
			t.Fatalf("the doctor of a %s: %v\n%s", policy, err, out)
		}
		var report struct {
			Checks []struct{ Name, Status, Note string }
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		for _, c := range report.Checks {
			if c.Name == "engine_image" {
				continue
			}
			if (c.Status != "pass") != slices.Contains(unseen, c.Name) ||
				c.Status != "pass" && !strings.HasPrefix(c.Note, "can't be seen with these rights: ") {
				t.Errorf("the doctor of a %s says %+v", policy, c)
			}
		}
	}
	for _, command := range [][]string{{"reader", "submit", few}, {"reader", "pause", "many"},
		{"reader", "resume", "many"}, {"reader", "stop", "many"}} {
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
	// The other actions of the policies are those of commands that this test does not have: of the AWS CLI in the
	// README's table of troubles, an upload in parts, promote, the pruning of snapshots, and submit when an upload's
	// event is late. The stand-in's table asks for fewer rights to its key than DynamoDB's documentation lists.
	others := []string{"autoscaling:DescribeScalingActivities", "cloudwatch:GetDashboard", "cloudwatch:GetMetricData",
		"dynamodb:DeleteItem", "ec2:GetConsoleOutput", "logs:FilterLogEvents", "sqs:ReceiveMessage",
		"s3:AbortMultipartUpload", "sqs:ChangeMessageVisibility", "lambda:InvokeFunction",
		"kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"}
	for _, policy := range []string{"reader", "user"} {
		p, ok := roles(t, a.deployment).User(a.policy(policy))
		used := a.AllowedActions(a.caller(policy))
		for _, action := range p.Actions() {
			if !slices.Contains(used, action) && !slices.Contains(others, action) {
				t.Errorf("a %s may do %s, which no command does", policy, action)
			}
		}
		if !ok || len(used) < 10 {
			t.Errorf("a %s used %q", policy, used)
		}
	}
}
