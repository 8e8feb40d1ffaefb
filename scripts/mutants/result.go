package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
)

// Result is what became of a mutant.
type Result struct {
	Name     string  `json:"name"`
	Why      string  `json:"why"`
	KilledBy string  `json:"killed_by"` // "simulation", "unit tests"; "" if it has survived
	Detail   string  `json:"detail"`    // what the test said
	Seconds  float64 `json:"seconds"`   // since it was applied, with the time to compile
}

func (r Result) String() string {
	return fmt.Sprintf("%s: %s after %.0f s %s", r.Name, cmp.Or(r.KilledBy, "SURVIVED"), r.Seconds, r.Detail)
}

// writeTable writes the results as a table.
func writeTable(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MUTANT\tKILLED BY\tSECONDS\tBY WHAT")
	survivors := 0
	for _, r := range results {
		if r.KilledBy == "" {
			survivors++
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%s\n", r.Name, cmp.Or(r.KilledBy, "SURVIVED"), r.Seconds, r.Detail)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d mutants, %d survived\n", len(results), survivors)
	return err
}
