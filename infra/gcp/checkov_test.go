package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// exceptions is the file of checkov's checks that the plan does not pass, each with its
// reason.
const exceptions = "checkov.txt"

// withoutKey is the check that everything is encrypted with a key of the user's.
const withoutKey = "CKV_GCP_83"

// The checks of checkov that the plan does not pass are those of the file of exceptions: no
// other one fails, and no exception is out of date. With a key, the check for one passes.
func TestCheckovFindsWhatIsAnException(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options map[string]any
		passes  []string // what is an exception otherwise
	}{
		"with Google's keys": {nil, nil},
		"with an own key":    {map[string]any{"kms_key": ownKey}, []string{withoutKey}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed := readExceptions(t)
			for _, id := range c.passes {
				delete(allowed, id)
			}
			checkov(t, newWorkspace(t, c.options), allowed)
		})
	}
}

// checkov checks a plan, and wants the checks that fail to be the allowed ones.
func checkov(t *testing.T, w workspace, allowed map[string]bool) {
	t.Helper()
	program := filepath.Join(filepath.Dir(tools), "checkov", "bin", "checkov")
	if _, err := os.Stat(program); err != nil {
		lacks(t, "checkov")
	}
	w.planned(t)
	shown, ok := w.tofu(t, "show", "-json", "plan")
	if !ok {
		t.Fatal(shown)
	}
	w.write(t, "plan.json", []byte(shown))
	cmd := exec.CommandContext(t.Context(), program, "--file", filepath.Join(w.dir, "plan.json"), "--framework",
		"terraform_plan", "--output", "json", "--quiet", "--compact", "--skip-download")
	cmd.Env = append(w.env, "CHECKOV_RUN_SCA_PACKAGE_SCAN_V2=false", "LOG_LEVEL=ERROR")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // it fails if a check does
		t.Fatal(err)
	}
	var report struct {
		Results struct {
			Failed []struct {
				ID       string `json:"check_id"`
				Name     string `json:"check_name"`
				Resource string `json:"resource"`
			} `json:"failed_checks"`
		} `json:"results"`
		Summary struct {
			Passed int `json:"passed"`
		} `json:"summary"`
	}
	if err := json.Unmarshal(out, &report); err != nil || report.Summary.Passed == 0 {
		t.Fatalf("checkov reports %v, %d passed checks: %.2000s", err, report.Summary.Passed, out)
	}
	for _, f := range report.Results.Failed {
		if _, ok := allowed[f.ID]; !ok {
			t.Errorf("%s: %s: %s", f.Resource, f.ID, f.Name)
		}
		allowed[f.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(allowed)) {
		if !allowed[id] {
			t.Errorf("%s has the exception %s, which nothing needs any more", exceptions, id)
		}
	}
}

// readExceptions returns the ids of the exceptions, which are not used yet.
func readExceptions(t *testing.T) map[string]bool {
	t.Helper()
	file, err := os.Open(exceptions)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // read only
	ids := map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		id, reason, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(id, "#") || id == "" {
			continue
		}
		if strings.TrimSpace(reason) == "" {
			t.Errorf("the exception %s has no reason", id)
		}
		ids[id] = false
	}
	return ids
}
