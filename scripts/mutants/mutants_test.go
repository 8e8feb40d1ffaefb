package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every mutation of the list applies to the code as it is.
func TestMutationsApply(t *testing.T) {
	t.Parallel()
	const root = "../.."
	mutants, err := load("mutants.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		texts := map[string]string{}
		for _, c := range m.Change {
			if _, known := texts[c.File]; !known {
				b, err := os.ReadFile(filepath.Join(root, c.File))
				if err != nil {
					t.Fatalf("%s: %v", m.Name, err)
				}
				texts[c.File] = string(b)
			}
			if texts[c.File], err = c.apply(texts[c.File]); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
		for _, p := range m.Packages {
			if tests, err := filepath.Glob(filepath.Join(root, p, "*_test.go")); err != nil || len(tests) == 0 {
				t.Errorf("%s: package %s has no tests (%v)", m.Name, p, err)
			}
		}
	}
}

func TestChangeAppliesToOnePlaceOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"a b": "a c", "a": "", "b b": ""} {
		got, err := Change{File: "f", Old: "b", New: "c"}.apply(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestMutantIsTakenBack(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "f")
	if err := os.WriteFile(file, []byte("one two"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := Mutant{Change: []Change{{"f", "one", "1"}, {"f", "two", "2"}}}
	before, err := m.apply(root)
	if err != nil || before[root+"/f"] != "one two" {
		t.Errorf("%q, %v", before, err)
	}
	if b, _ := os.ReadFile(file); string(b) != "1 2" {
		t.Errorf("%q", b)
	}
}

func TestTableNamesSurvivors(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := writeTable(&b, []Result{{Name: "x", KilledBy: "simulation", Detail: "seed 3: I2", Seconds: 4},
		{Name: "y"}}); err != nil {
		t.Fatal(err)
	}
	want := "MUTANT  KILLED BY   SECONDS  BY WHAT\n" +
		"x       simulation  4        seed 3: I2\n" +
		"y       SURVIVED    0        \n" +
		"2 mutants, 1 survived\n"
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
}
