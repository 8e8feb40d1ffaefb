package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
)

func statusCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show progress, speed, workers and problems of all runs or of one run",
		Long: "Shows the open runs and those that ended last, newest first, or one run, and the workers. It says how many\n" +
			"more have ended: --limit, --since and --all show them.\n\n" +
			"With --watch, it updates the display until RUN (without RUN: every run) has ended, and exits with 1 if a\n" +
			"run that it watched did not succeed. Without any run it waits for the first one on a terminal, and ends\n" +
			"elsewhere. Ctrl-C ends only the display.\n\n" + runHelp,
		Args: arguments(1, "RUN"),

		SuggestFor: []string{"ls", "list", "ps", "top", "runs"},
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print one JSON object for each run; with --watch, one for each change")
	watch := c.Flags().Bool("watch", false, "update the display until the run has ended")
	page := pageFlags(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		which, err := page(e.Clock.Now())
		if err != nil {
			return err
		}
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		s := statusView{Env: e, service: api.New(in.Ports, in.Deployment, in.Profile), json: *asJSON, page: which,
			location: in.Location, path: in.Path}
		if len(args) > 0 {
			var r status.Status
			if *watch {
				r, err = s.awaitBegin(c.Context(), args[0], func() (status.Status, error) {
					return e.awaitRun(c.Context(), in, s.service, args[0])
				})
			} else {
				r, err = findRun(c.Context(), s.service, args[0])
			}
			if err != nil {
				return err
			}
			s.only = r.Run
		}
		if *watch {
			return newWatcher(&s).watch(c.Context(), max(watchInterval, in.Poll))
		}
		return s.once(c.Context())
	}
	return c
}

// endedShown is how many ended runs status shows by itself.
const endedShown = 20

// pageFlags adds the flags that choose ended runs. It returns a function that reads them, at a time.
func pageFlags(c *cobra.Command) func(now time.Time) (status.Page, error) {
	limit := c.Flags().Int("limit", endedShown, "show at most so many ended runs, the last to end")
	since := c.Flags().String("since", "", "show the runs that ended since a `time` (2026-03-01,\n"+
		"2026-03-01T12:00:00Z) or within a duration (90m, 24h)")
	all := c.Flags().Bool("all", false, "show all ended runs")
	return func(now time.Time) (page status.Page, err error) {
		if page.Since, err = parseSince(*since, now); err != nil {
			return page, err
		}
		if *all && (*since != "" || c.Flags().Changed("limit")) {
			return page, &fault.Error{Kind: fault.Invalid, Err: errors.New("--all shows all ended runs"),
				Remedy: "leave out --limit and --since, or --all"}
		}
		if *limit < 1 {
			return page, &fault.Error{Kind: fault.Invalid,
				Err:    fmt.Errorf("--limit %d is not a number of runs from 1 on", *limit),
				Remedy: "use --all for all of them"}
		}
		if !*all && (*since == "" || c.Flags().Changed("limit")) {
			page.Limit = *limit
		}
		return page, nil
	}
}

// parseSince returns the time that a text of --since means; zero for "".
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("--since %.40q is not a time", text),
		Remedy: "use a time like 2026-03-01 or 2026-03-01T12:00:00Z, or a duration like 24h"}
}

// statusView shows all runs of an installation, or one of them.
type statusView struct {
	*Env
	service  *api.Service
	only     identity.RunID // "" shows all
	page     status.Page    // of the ended runs
	json     bool
	location installation.Location
	path     func(key string) string // where an object of the bucket is
}

// overview returns the current state of what is shown.
func (s *statusView) overview(ctx context.Context) (api.Overview, error) {
	if s.only == "" {
		return s.service.Overview(ctx, s.page)
	}
	return s.service.RunOverview(ctx, s.only)
}

// once shows the current state. Tables go to Out, notes to Err.
func (s *statusView) once(ctx context.Context) error {
	o, err := s.overview(ctx)
	if err != nil {
		return err
	}
	if s.json {
		_, err := io.WriteString(s.Out, jsonLines(o, o.Runs))
		return err
	}
	sc := s.screen(o, nil)
	if _, err := io.WriteString(s.Out, sc.body()); err != nil {
		return err
	}
	for _, note := range sc.notes() {
		if err := s.say("%s", note); err != nil {
			return err
		}
	}
	return nil
}

// screen returns the overview, prepared for the terminal; paces are those of watched runs.
func (s *statusView) screen(o api.Overview, paces map[identity.RunID]progress.Pace) screen {
	columns, _, ok := terminal.Size(s.Out)
	if !ok {
		columns = 0 // unlimited
	}
	return screen{
		Overview: o, one: s.only != "", paces: paces, now: s.Clock.Now(), columns: columns, path: s.path,
		colours:   s.palette(s.Out),
		withFlags: func(text string) string { return withLocationFlags(text, s.location) },
	}
}

// complete matches command lines that need no location flags.
var complete = regexp.MustCompile(`--(dir|cloud|provider|help)\b|^rollout convert `)

// withLocationFlags completes the commands in a text, so that users can copy them: `rollout up` becomes
// `rollout up --dir D`. It leaves commands that have such flags already, and other text, unchanged.
func withLocationFlags(text string, p installation.Location) string {
	if p == (installation.Location{}) {
		return text
	}
	parts := strings.Split(text, "`")
	for i := 1; i < len(parts)-1; i += 2 { // odd parts are between backquotes
		if strings.HasPrefix(parts[i], "rollout ") && !complete.MatchString(parts[i]) {
			parts[i] += " " + p.Flags()
		}
	}
	return strings.Join(parts, "`")
}
