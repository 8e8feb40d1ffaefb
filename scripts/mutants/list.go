package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
)

// Mutant is a fault that the tests must notice.
type Mutant struct {
	Name     string   // unique
	Why      string   // what goes wrong
	Packages []string // whose unit tests run. Example: "./shared/core/shard"
	Change   []Change // what makes the fault
}

// Change replaces a text that its file has in one place.
type Change struct {
	File string // from the root of the repository
	Old  string
	New  string
}

// load reads the list of mutants. It returns all its problems at once.
func load(file string) ([]Mutant, error) {
	var l struct{ Mutant []Mutant }
	meta, err := toml.DecodeFile(file, &l)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, k := range meta.Undecoded() {
		problems = append(problems, fmt.Errorf("%s: unknown key %s", file, k))
	}
	names := map[string]bool{}
	for _, m := range l.Mutant {
		switch {
		case m.Name == "" || m.Why == "" || len(m.Packages) == 0 || len(m.Change) == 0:
			problems = append(problems, fmt.Errorf("%s: mutant %q lacks its name, why, packages or changes", file, m.Name))
		case names[m.Name]:
			problems = append(problems, fmt.Errorf("%s: two mutants have the name %q", file, m.Name))
		}
		names[m.Name] = true
	}
	return l.Mutant, errors.Join(problems...)
}

// apply returns the text with the change. It is an error if the text has the old text
// nowhere, or in several places: the mutation must be adapted to the code.
func (c Change) apply(text string) (string, error) {
	if n := strings.Count(text, c.Old); c.Old == "" || n != 1 {
		return "", fmt.Errorf("%s has the old text %d times, want once: adapt the mutation to the code: %s", c.File, n, c.Old)
	}
	return strings.Replace(text, c.Old, c.New, 1), nil
}

// apply changes the files of the tree at root. It returns the text of each file before,
// by its path.
func (m Mutant) apply(root string) (before map[string]string, err error) {
	before = map[string]string{}
	for _, c := range m.Change {
		path := root + "/" + c.File
		b, err := os.ReadFile(path)
		if err != nil {
			return before, err
		}
		text, err := c.apply(string(b))
		if err != nil {
			return before, err
		}
		if _, known := before[path]; !known {
			before[path] = string(b)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return before, err
		}
	}
	return before, nil
}
