package config

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestPriorityIsANameOrANumber(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]float64{
		"":                                  PriorityNormal,
		"[run]":                             PriorityNormal,
		"[run]\npriority = \"low\"":         PriorityLow,
		"[run]\npriority = \"normal\"":      PriorityNormal,
		"[run]\npriority = \"high\"":        PriorityHigh,
		"[run]\npriority = 7":               7,
		"[run]\npriority = 2.5":             2.5,
		"[run]\npriority = 0.1 # the least": MinPriority,
	} {
		r, err := ParseRun("x.toml", []byte("schema_version = 1\n"+file))
		if err != nil || r.Scheduling.Weight() != want {
			t.Errorf("%q: weight %v, %v, want %v", file, r.Scheduling.Weight(), err, want)
		}
	}
	d, err := ParseDeployment("rollout.toml", []byte("schema_version = 1\n[defaults.run]\npriority = \"low\""))
	if err != nil || d.Defaults.Scheduling.Weight() != PriorityLow {
		t.Errorf("defaults: %v, %v", d.Defaults.Scheduling.Weight(), err)
	}
}

func TestBadPrioritiesAreReported(t *testing.T) {
	t.Parallel()
	for priority, want := range map[string]string{
		`"hihg"`:   `run.priority: "hihg" is not a valid priority; did you mean "high"?`,
		`"urgent"`: `use low, normal, high, or a number from 0.1 to 100`,
		`0`:        `must be at least 0.1 and at most 100, is 0`,
		`-4`:       `must be at least 0.1`,
		`101`:      `at most 100, is 101`,
		`nan`:      `must be at least 0.1`,
		`true`:     `must be a number`,
	} {
		_, err := ParseRun("x.toml", []byte("schema_version = 1\n[run]\npriority = "+priority))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("priority = %s: %v, want %q", priority, err, want)
		}
	}
}

// The manifests of runs without a priority are as they were before there was one.
func TestManifestsOfRunsWithoutPriorityHaveNone(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(DefaultRun())
	if err != nil || strings.Contains(string(b), `"run"`) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestWeightsOfPrioritiesHaveNames(t *testing.T) {
	t.Parallel()
	names := map[float64]string{PriorityLow: "low", PriorityNormal: "normal", PriorityHigh: "high", 7: ""}
	for weight, want := range names {
		if got := PriorityName(weight); got != want {
			t.Errorf("weight %v has the name %q, want %q", weight, got, want)
		}
	}
}
