package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rollout/shared/fault"
)

// Problem is one error in a config.
type Problem struct {
	File    string // the name that Parse was called with; "" for values from flags
	Line    int    // from 1; 0 if the field is missing from the file
	Field   string // "" for the whole file. Examples: "sampling.top_p", "pool[1].name"
	Message string // the error and its remedy
}

// String returns "file:line: field: message", without the parts that are empty.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems holds all errors of a config, ordered by line. Use errors.As to
// extract it from the errors of the Parse functions and Check methods.
type Problems []Problem

// Error returns the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds a report. A file with more problems is probably not a
// config.
const maxProblems = 100

// checker collects the problems of one file or value.
type checker struct {
	file     string
	lines    positions
	problems Problems
	more     int             // number of problems beyond maxProblems
	seen     map[string]bool // fields with a problem; further problems of the same field are dropped
}

func newChecker(file string, lines positions) *checker {
	return &checker{file: file, lines: lines, seen: map[string]bool{}}
}

func (c *checker) add(field, format string, args ...any) {
	c.addAt(c.lines.of(field), field, format, args...)
}

func (c *checker) addAt(line int, field, format string, args ...any) {
	if c.seen[field] {
		return
	}
	c.seen[field] = true
	if c.full() {
		c.more++
		return
	}
	c.problems = append(c.problems, Problem{c.file, line, field, fmt.Sprintf(format, args...)})
}

// full reports whether the report has maxProblems; further ones are only counted.
func (c *checker) full() bool { return len(c.problems) == maxProblems }

// err returns the problems as an Invalid fault. It returns nil without problems.
func (c *checker) err() error {
	if len(c.problems) == 0 {
		return nil
	}
	ps := slices.Clone(c.problems)
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	if c.more > 0 {
		ps = append(ps, Problem{File: c.file, Message: fmt.Sprintf("and %d more problems", c.more)})
	}
	return &fault.Error{Kind: fault.Invalid, Err: ps}
}
