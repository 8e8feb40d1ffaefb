package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/guidance"
)

func guidanceDiffCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "diff RUN",
		Short: "Compare two steps of a rollout's guidance",
		Long: "Prints which entries differ between two steps of a guidance: added (+), dropped (-) and rewritten (~).\n\n" +
			missionHelp + runHelp,
		Args: arguments(0, "RUN"),
	}
	location := locationFlags(c)
	var flags guidanceFlags
	flags.add(c)
	steps := c.Flags().String("steps", "", "compare the steps `A..B` (default: from the first to the default step)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		from, to, err := parseSteps(*steps)
		if err != nil {
			return usage(c, "--steps: %v", err)
		}
		r, err := e.openRollout(c, openArguments{*location, args[0], flags.mission})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		for _, mission := range r.missions {
			a, err := r.step(c.Context(), mission, from)
			if err != nil {
				return err
			}
			var b guidance.Guidance
			if to < 0 {
				b, _, err = r.present(c.Context(), mission)
			} else {
				b, err = r.step(c.Context(), mission, to)
			}
			if err != nil {
				return err
			}
			if err := e.printDiff(a, b, flags.json); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// parseSteps reads A..B, of which both parts may be left out: then from is 0, and to is -1.
func parseSteps(s string) (from, to int, err error) {
	a, b, ok := strings.Cut(s, "..")
	to = -1
	for _, part := range []struct {
		text string
		to   *int
	}{{a, &from}, {b, &to}} {
		if part.text == "" {
			continue
		}
		if *part.to, err = strconv.Atoi(part.text); err != nil || *part.to < 0 {
			return 0, 0, fmt.Errorf("%.20q is not a step: write two numbers from 0, such as 0..2", part.text)
		}
	}
	if s != "" && !ok {
		return 0, 0, fmt.Errorf("%.20q has no ..: write two steps, such as 0..2", s)
	}
	return from, to, nil
}

// guidanceDiff is a comparison as JSON.
type guidanceDiff struct {
	Mission string           `json:"mission"`
	From    int              `json:"from"`
	To      int              `json:"to"`
	Changes []guidanceChange `json:"changes"`
}

// guidanceChange is a difference of an entry. Numbers count from 1.
type guidanceChange struct {
	Kind guidance.Kind `json:"op"` // add, rewrite or drop
	From int           `json:"from,omitempty"`
	To   int           `json:"to,omitempty"`
	Old  string        `json:"old,omitempty"`
	New  string        `json:"new,omitempty"`
}

// printDiff writes what differs between a and b.
func (e *Env) printDiff(a, b guidance.Guidance, asJSON bool) error {
	d := guidanceDiff{a.Mission, a.Step, b.Step, []guidanceChange{}}
	for _, c := range guidance.Diff(a, b) {
		d.Changes = append(d.Changes, guidanceChange{c.Kind, c.From, c.To, c.Old, c.New})
	}
	if asJSON {
		return json.NewEncoder(e.Out).Encode(d)
	}
	var t strings.Builder
	colours := e.palette(e.Out)
	title := fmt.Sprintf("mission %s, steps %d..%d", progress.SanitizeLine(d.Mission, nameColumns), d.From, d.To)
	t.WriteString(colours.In(terminal.Bold, title) + "\n")
	line := func(colour, sign string, number int, text string) {
		text = fmt.Sprintf("%s %2d. %s", sign, number, progress.SanitizeLine(text, guidanceColumns))
		t.WriteString(colours.In(colour, text) + "\n")
	}
	for _, c := range d.Changes {
		switch c.Kind {
		case guidance.Add:
			line(terminal.Green, "+", c.To, c.New)
		case guidance.Drop:
			line(terminal.Red, "-", c.From, c.Old)
		case guidance.Rewrite:
			line(terminal.Red, "~", c.From, c.Old)
			line(terminal.Green, " ", c.To, c.New)
		}
	}
	if len(d.Changes) == 0 {
		t.WriteString("  the entries are the same\n")
	}
	_, err := e.Out.Write([]byte(t.String()))
	return err
}
