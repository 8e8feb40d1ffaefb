package stack_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/infra/aws/stack"
)

// byEmail are the settings with an email address.
func byEmail(s *stack.Settings) { s.Email = "team@example.com" }

func TestReclaimAlonePutsEventsOnTheStacksBusAlone(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	var allowed []string
	for _, s := range made.policies() {
		if s.allow && slices.Contains(s.actions, "events:PutEvents") {
			allowed = append(allowed, s.of.id)
			want := []string{"arn:<AWS::Partition>:events:eu-central-1:<AWS::AccountId>:event-bus/acme-events"}
			if !slices.Equal(s.resources, want) {
				t.Errorf("%s may put events on %v, want %v", s.of.id, s.resources, want)
			}
		}
	}
	reclaim := made.role(t, "reclaim")
	if len(allowed) != 1 || len(reclaim) == 0 || allowed[0] != reclaim[0].of.id {
		t.Errorf("these may put events: %v, want the role of reclaim alone", allowed)
	}
	if name := made.one(t, "AWS::Events::EventBus").Properties.text("Name"); name != "acme-events" {
		t.Errorf("the bus is named %s", name)
	}
}

func TestWithoutAnEmailAddressNoRuleReadsTheBus(t *testing.T) {
	t.Parallel()
	made := asUsual(t)
	if topics := made.all("AWS::SNS::Topic"); len(topics) != 1 {
		t.Errorf("%d topics, want that of the alarms", len(topics))
	}
	for _, r := range made.all("AWS::Events::Rule") {
		if r.Properties.at("EventBusName") != nil {
			t.Errorf("%s reads the bus", r.id)
		}
	}
}

// EventBridge alone may publish to the topic of the events, and nothing else than email
// addresses of the settings gets them.
func TestEventsGoToTheEmailAddress(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, byEmail))
	topic := made.physical(t, "AWS::SNS::Topic", "TopicName", "acme-events")
	var subscribed int
	for _, s := range made.all("AWS::SNS::Subscription") {
		if s.Properties.text("TopicArn") == "<"+topic.id+">" {
			subscribed++
			if s.Properties.text("Endpoint") != "team@example.com" || s.Properties.text("Protocol") != "email" {
				t.Errorf("%v gets events", s.Properties)
			}
		}
	}
	if subscribed != 1 {
		t.Errorf("%d subscriptions, want 1", subscribed)
	}
	for _, p := range made.all("AWS::SNS::TopicPolicy") {
		if !slices.Contains(texts(p.Properties.at("Topics")), "<"+topic.id+">") {
			continue
		}
		for _, s := range statements(p, p.Properties.list("PolicyDocument.Statement")) {
			if s.allow && s.principal != `{"Service":"events.amazonaws.com"}` {
				t.Errorf("%s may %v", s.principal, s.actions)
			}
		}
	}
}

// toldFiles are examples of each type of event that people are told.
var toldFiles = []string{"run_completed", "run_completed_bare", "run_failed", "run_stopped", "run_paused", "budget_low",
	"capacity_missing", "quota_reached", "launch_failed", "boot_failed"}

// checkEachTypeHasOneRule checks that each type of event for people is in exactly one rule, but
// that of tests, and that no rule has another one.
func checkEachTypeHasOneRule(t *testing.T, made template) {
	t.Helper()
	source, err := os.ReadFile("../../../events/notification.go")
	if err != nil {
		t.Fatal(err)
	}
	rules, declared := map[string]int{}, 0
	for _, r := range made.all("AWS::Events::Rule") {
		if r.Properties.at("EventBusName") != nil {
			for _, name := range texts(r.Properties.at("EventPattern.detail-type")) {
				rules[name]++
			}
		}
	}
	for _, d := range declaredTypes.FindAllStringSubmatch(string(source), -1) {
		declared++
		want := 1
		if events.Type(d[1]) == events.TypeNotifyTest {
			want = 0
		}
		if n := rules[d[1]]; n != want {
			t.Errorf("%s is in %d rules, want %d", d[1], n, want)
		}
		delete(rules, d[1])
	}
	if declared < 2 || len(rules) > 0 {
		t.Errorf("events/notification.go declares %d types, and rules have these others: %v", declared, rules)
	}
}

// declaredTypes finds the types that a file of package events declares.
var declaredTypes = regexp.MustCompile(`(?m)^\tType\w+\s+Type = "([^"]+)"$`)

// The golden file has the texts of emails. An intended change is written with -rewrite.
func TestEachEventIsOneReadableEmail(t *testing.T) {
	t.Parallel()
	made := synth(t, settings(t, byEmail))
	checkEachTypeHasOneRule(t, made)
	var got strings.Builder
	for _, name := range toldFiles {
		event, err := os.ReadFile(filepath.Join("../../../events/testdata/v1", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var detail tree
		if err := json.Unmarshal(event, &detail); err != nil {
			t.Fatal(err)
		}
		var mails []string
		for _, r := range made.all("AWS::Events::Rule") {
			types := texts(r.Properties.at("EventPattern.detail-type"))
			if r.Properties.at("EventBusName") == nil || !slices.Contains(types, detail.text("type")) {
				continue
			}
			for _, target := range r.Properties.list("Targets") {
				mails = append(mails, transformed(t, tree(target.(map[string]any)), tree{"detail": map[string]any(detail)}))
			}
		}
		if len(mails) != 1 {
			t.Fatalf("%s is %d emails, want 1", name, len(mails))
		}
		if name == "run_completed" {
			readme, err := os.ReadFile("../README.md")
			if sample := "```\n" + mails[0] + "\n```"; err != nil || !strings.Contains(string(readme), sample) {
				t.Errorf("infra/aws/README.md lacks the sample: %v\n%s", err, sample)
			}
		}
		fmt.Fprintf(&got, "== %s\n%s\n", name, strings.Join(mails, "\n"))
	}
	const file = "testdata/emails.txt"
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the emails differ from %s; write an intended change with -rewrite (-want +got):\n%s", file, diff)
	}
}

// variable is a variable of an input template.
var variable = regexp.MustCompile(`<([a-z_]+)>`)

// transformed returns the input of a target as EventBridge makes it of an event: the lines of
// the template, each a JSON string, with the values of the variables. One without a value is
// left out.
func transformed(t *testing.T, target, event tree) string {
	t.Helper()
	paths, _ := target.at("InputTransformer.InputPathsMap").(map[string]any)
	template := target.text("InputTransformer.InputTemplate")
	if len(template) > 8192 || len(paths) > 100 {
		t.Errorf("the template has %d bytes and %d variables, more than EventBridge takes", len(template), len(paths))
	}
	var lines []string
	for line := range strings.SplitSeq(template, "\n") {
		var text string
		if err := json.Unmarshal([]byte(line), &text); err != nil {
			t.Errorf("the line %s is no JSON string: %v", line, err)
		}
		lines = append(lines, variable.ReplaceAllStringFunc(text, func(v string) string {
			path, ok := paths[strings.Trim(v, "<>")].(string)
			if !ok {
				t.Errorf("%s is no variable of the template", v)
			}
			return event.text(strings.TrimPrefix(path, "$."))
		}))
	}
	return strings.Join(lines, "\n")
}
