package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rollout/shared/fault"
)

// Problem is one thing that is wrong with a config.
type Problem struct {
	File    string // as it was given to Parse; "" for values from flags
	Line    int    // from 1; 0 if the field is not in the file
	Field   string // "sampling.top_p", "pool[1].name"; "" for the whole file
	Message string // what is wrong and what to do
}

// String renders "file:line: field: message" without the parts that are not
// known.
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

// Problems is everything that is wrong with a config, in the order of its
// lines. errors.As finds it in what Parse and Check return.
type Problems []Problem

// Error renders one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds a report; a file with more of them is no config.
const maxProblems = 100

// checker collects the problems of one file or value.
type checker struct {
	file     string
	lines    positions
	problems Problems
	more     int             // problems beyond maxProblems
	seen     map[string]bool // fields that have a problem: one each is enough
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

// full reports whether further problems would only be counted.
func (c *checker) full() bool { return len(c.problems) == maxProblems }

// err returns the problems as an Invalid fault, or nil if there are none.
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
