package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func report() *Report {
	r := &Report{Schema: schema, Commit: "abc", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Go: "go1.26",
		CPU: "Fast", Cores: 2}
	for _, v := range []float64{59_000, 70_000, 61_000} {
		r.add("Run/bytes=300", "samples/s", v)
	}
	r.add("Run/bytes=300", "cpu-µs/sample", 26)
	r.add("Run/bytes=300", "×River", 11)
	r.Notes = []string{"something was not measured"}
	return r
}

func TestReportIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "folder", "f.json")
	if err := report().save(path); err != nil {
		t.Fatal(err)
	}
	r, err := loadReport(path)
	if err != nil || r.Commit != "abc" || len(r.Figures) != 3 || r.Figures[0].Value() != 61_000 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTableMarksMissedGoals(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := report().table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"≥ 6e+04  met", "≤ 25     MISSED", "≥ 10     met", "note: something"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, b.String())
		}
	}
}

func TestTextIsInTheFormatOfBenchmarks(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := report().text(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\nBenchmarkRun/bytes=300 1 59000 samples/s\n") {
		t.Errorf("%s", b.String())
	}
}

func TestEachFigureHasOneGoal(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, g := range goals() {
		if key := g.name + " " + g.unit; seen[key] {
			t.Errorf("two goals for %s", key)
		} else {
			seen[key] = true
		}
	}
}

func TestValueIsTheMedian(t *testing.T) {
	t.Parallel()
	if v := (Figure{}).Value(); v != 0 {
		t.Errorf("%v", v)
	}
	if v := (Figure{Values: []float64{4, 1, 3, 2}}).Value(); v != 2.5 {
		t.Errorf("%v", v)
	}
}
