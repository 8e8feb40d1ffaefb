package command

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/identity"
	"rollout/shared/installation"
)

func statusCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show progress, speed, workers and problems of all runs or of one run",
		Long: "Shows all runs, newest first, or one run, and the workers.\n\n" +
			"With --watch, it updates the display until RUN (without RUN: every run) has ended, and exits with 1 if a\n" +
			"run that it watched did not succeed. Ctrl-C ends only the display.\n\n" + runHelp,
		Args: arguments(1, "RUN"),
	}
	location := locationFlags(c)
	asJSON := c.Flags().Bool("json", false, "print one JSON object for each run; with --watch, one for each change")
	watch := c.Flags().Bool("watch", false, "update the display until the run has ended")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		in, err := e.open(c, *location)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		s := statusView{Env: e, service: api.New(in.Ports, in.Deployment, in.Profile), json: *asJSON,
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

// statusView shows all runs of an installation, or one of them.
type statusView struct {
	*Env
	service  *api.Service
	only     identity.RunID // "" shows all
	json     bool
	location installation.Location
	path     func(key string) string // where an object of the bucket is
}

// overview returns the current state of what is shown.
func (s *statusView) overview(ctx context.Context) (api.Overview, error) {
	if s.only == "" {
		return s.service.Overview(ctx)
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
