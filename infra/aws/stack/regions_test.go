package stack_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/infra/aws/stack"
)

// in sets the region.
func in(region string) func(*stack.Settings) {
	return func(s *stack.Settings) { s.Deployment.Cloud.Region = region }
}

func TestRegionsTemplateHasOnlyWhatTheRegionHas(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]struct {
		api, budget bool
		notes       []string
	}{
		"eu-central-1":   {api: true, budget: true},
		"eu-north-1":     {api: true, notes: []string{"the budget is left out: eu-north-1"}},
		"cn-northwest-1": {budget: true, notes: []string{"the API is left out: cn-northwest-1"}},
		"me-central-1":   {notes: []string{"the API is left out: me-central-1", "the budget is left out: me-central-1"}},
	} {
		s := settings(t, in(region))
		made := synth(t, s)
		if got := len(made.all("AWS::Lambda::Url")) == 1; got != want.api {
			t.Errorf("%s: the API has an address: %v", region, got)
		}
		if _, got := made.Outputs["ApiUrl"]; got != want.api {
			t.Errorf("%s: the address is an output: %v", region, got)
		}
		if got := len(made.all("AWS::Budgets::Budget")) == 1; got != want.budget {
			t.Errorf("%s: there is a budget: %v", region, got)
		}
		if got := s.Notes(); !slices.EqualFunc(got, want.notes, strings.HasPrefix) {
			t.Errorf("%s: the notes are %q, want %q", region, got, want.notes)
		}
	}
}

func TestAPIIsLeftOutIfAsked(t *testing.T) {
	t.Parallel()
	s := settings(t, func(s *stack.Settings) {
		s.API, s.Deployment.Secrets = false, []string{"api-token"}
		s.FunctionsDir = t.TempDir()
		for _, name := range []string{"submit", "plan", "coordinate", "finalize", "reclaim", "interrupt"} {
			dir := filepath.Join(s.FunctionsDir, name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "bootstrap"), []byte(name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	})
	made := synth(t, s)
	if n := len(made.all("AWS::Lambda::Function")); n != 6 {
		t.Errorf("the template has %d functions, want 6", n)
	}
	if len(made.all("AWS::Lambda::Url")) > 0 || strings.Contains(string(made.text), "acme-api") {
		t.Error("the template has parts of the API")
	}
	for _, p := range made.all("AWS::Lambda::Permission") {
		if p.Properties.text("Principal") == "*" {
			t.Errorf("%s lets the public invoke a function", p.id)
		}
	}
	if notes := s.Notes(); len(notes) > 0 {
		t.Errorf("there are notes on what was asked for: %q", notes)
	}
}

// CloudFormation's linter knows which resource types each region has. Regions whose
// templates have the same types are checked together, in the template of the first of them.
func TestLinterFindsNothingInAnyRegion(t *testing.T) {
	t.Parallel()
	lint := tool(t, "cfn-lint")
	schemas, err := filepath.Glob(filepath.Join(os.Getenv("ROLLOUT_INFRA"),
		"python/lib/python3*/site-packages/cfnlint/data/schemas/providers/*-*.json"))
	if err != nil || len(schemas) < 40 {
		t.Fatalf("cfn-lint knows %d regions: %v", len(schemas), err)
	}
	groups := map[string][]string{}
	for _, path := range schemas {
		region := strings.TrimSuffix(filepath.Base(path), ".json")
		types := fmt.Sprint(settings(t, in(region)).Notes())
		types = strings.ReplaceAll(types, region, "")
		groups[types] = append(groups[types], region)
	}
	dir := t.TempDir()
	for _, regions := range groups {
		file := filepath.Join(dir, regions[0]+".json")
		if err := os.WriteFile(file, synth(t, settings(t, in(regions[0]))).text, 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, nil, lint, slices.Concat([]string{"--ignore-checks", "W3005", "--regions"}, regions, []string{"--", file})...)
	}
}
