package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
)

func statusCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show progress, speed, workers and problems of all runs or of one run",
		Long: "Shows the open runs, then those that ended last, the newest of each first, or one run, and the workers.\n" +
			"It says how many more have ended: --name, --since, --limit and --all choose. Programs read --json:\n\n" +
			"  rollout status --all --json | jq -r 'select(.items.at_fault > 0) | .run_id'\n\n" +
			"With --watch, it updates the display until RUN (without RUN: every run) has ended, and exits with 1 if a\n" +
			"run that it watched did not succeed. Without any run it waits for the first one on a terminal, and ends\n" +
			"elsewhere. Ctrl-C ends only the display.\n\n" + runHelp,
		Args: arguments(1, "RUN"),

		SuggestFor: []string{"ls", "list", "ps", "top", "runs"},
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print one JSON object for each run; with --watch, one for each change")
	watch := c.Flags().Bool("watch", false, "update the display until the run has ended")
	name := c.Flags().String("name", "", "show the runs whose names contain `text`")
	page := pageFlags(c)
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		which, err := page(e.Clock.Now())
		if err != nil {
			return err
		}
		if *name != "" && len(args) > 0 {
			return usage(c, "--name chooses among all runs: leave it out, or RUN")
		}
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		s := statusView{Env: e, service: api.New(in.Ports, in.Deployment, in.Profile), json: *asJSON, page: which,
			name: *name, watching: *watch, location: in.Location, path: in.Path}
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
		"2026-03-01T12:00:00Z, yesterday) or within a duration (90m, 2d)")
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

// statusView shows all runs of an installation, or one of them.
type statusView struct {
	*Env
	service  *api.Service
	only     identity.RunID // "" shows all
	page     status.Page    // of the ended runs
	name     string         // shows the runs whose names contain it; "" shows all
	watching bool
	json     bool
	location installation.Location
	path     func(key string) string // where an object of the bucket is
}

// overview returns the current state of what is shown.
func (s *statusView) overview(ctx context.Context) (api.Overview, error) {
	switch {
	case s.only != "":
		return s.one(ctx)
	case s.name == "":
		return s.service.Overview(ctx, s.page)
	}
	page := s.page
	if !s.watching { // else all ended runs would be read at every look
		page.Limit = 0
	}
	o, err := s.service.Overview(ctx, page)
	return s.named(o), err
}

// one returns the overview of one run, with the trials that it has in flight.
func (s *statusView) one(ctx context.Context) (api.Overview, error) {
	o, err := s.service.RunOverview(ctx, s.only)
	if err != nil || o.Runs[0].Kind != config.KindTrials || o.Runs[0].Phase.Ended() || o.Runs[0].Items.Total == 0 {
		return o, err
	}
	inFlight, err := s.service.ActiveTrials(ctx, s.only, 0)
	o.Trials = &inFlight
	return o, err
}

// named leaves in the overview the runs whose names contain s.name, and of the ended ones those that ended last.
func (s *statusView) named(o api.Overview) api.Overview {
	o.Uploads, o.More = nil, 0
	lower := strings.ToLower(s.name)
	o.Runs = slices.DeleteFunc(o.Runs, func(r status.Status) bool {
		return !strings.Contains(strings.ToLower(r.Name), lower)
	})
	var ended []status.Status
	for _, r := range o.Runs {
		if r.Phase.Ended() {
			ended = append(ended, r)
		}
	}
	if s.page.Limit == 0 || len(ended) <= s.page.Limit {
		return o
	}
	slices.SortStableFunc(ended, func(a, b status.Status) int { return b.Ended().Compare(a.Ended()) })
	left := map[identity.RunID]bool{}
	for _, r := range ended[s.page.Limit:] {
		left[r.Run] = true
	}
	o.More = len(left)
	o.Runs = slices.DeleteFunc(o.Runs, func(r status.Status) bool { return left[r.Run] })
	return o
}

// once shows the current state: the tables, then notes.
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
	text := sc.body()
	for i, note := range sc.notes() {
		if i == 0 {
			text += "\n"
		}
		text += strings.Join(sc.sentence(note), "\n") + "\n"
	}
	_, err = io.WriteString(s.Out, text)
	return err
}

// screen returns the overview, prepared for the terminal; paces are those of watched runs.
func (s *statusView) screen(o api.Overview, paces map[identity.RunID]progress.Pace) screen {
	columns, _, ok := terminal.Size(s.Out)
	if !ok {
		columns = 0 // unlimited
	}
	return screen{
		Overview: o, one: s.only != "", name: s.name, paces: paces, now: s.Clock.Now(), columns: columns, path: s.path,
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
