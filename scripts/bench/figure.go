package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// schema is the version of the file format.
const schema = 1

// Report is the result of one run of bench, as it is written to a file.
type Report struct {
	Schema  int       `json:"schema"`
	Commit  string    `json:"commit"`
	At      time.Time `json:"at"`
	Go      string    `json:"go"`
	CPU     string    `json:"cpu"`
	Cores   int       `json:"cores"`
	Figures []Figure  `json:"figures"`
	Notes   []string  `json:"notes,omitempty"` // what was not measured, and why
}

// Figure is one quantity of one case, with a value for each round.
type Figure struct {
	Name   string    `json:"name"` // name of a Go benchmark without "Benchmark". Example: "Run/bytes=300"
	Unit   string    `json:"unit"` // Example: "samples/s"
	Values []float64 `json:"values"`
}

// Value is the median, 0 without values.
func (f Figure) Value() float64 {
	v := slices.Sorted(slices.Values(f.Values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// add adds the value of one more round.
func (r *Report) add(name, unit string, value float64) {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Name == name && f.Unit == unit {
			f.Values = append(f.Values, value)
			return
		}
	}
	r.Figures = append(r.Figures, Figure{Name: name, Unit: unit, Values: []float64{value}})
}

// value returns the median of a figure; false if it was not measured.
func (r *Report) value(name, unit string) (float64, bool) {
	for _, f := range r.Figures {
		if f.Name == name && f.Unit == unit {
			return f.Value(), true
		}
	}
	return 0, false
}

// newReport returns a report with a description of this machine.
func newReport(now time.Time) *Report {
	r := &Report{Schema: schema, Commit: "unknown", At: now.UTC(), Go: runtime.Version(), CPU: "unknown",
		Cores: runtime.NumCPU()}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(b)) {
			if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == "model name" {
				r.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	return r
}

// save writes the report to a file and creates its folder.
func (r *Report) save(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// loadReport reads a file of save.
func loadReport(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s is not a file of bench: %w", path, err)
	}
	if r.Schema != schema {
		return nil, fmt.Errorf("%s has schema %d, this command reads schema %d: measure again", path, r.Schema, schema)
	}
	return &r, nil
}
