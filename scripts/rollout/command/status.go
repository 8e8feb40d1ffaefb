package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/identity"
	"rollout/shared/installation"
)

func statusCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show the runs, or one of them: how far, how fast, who works, what holds them up",
		Long: "Shows every run, the newest first, or one of them, and the workers.\n\n" +
			"RUN is a run's id, an unambiguous beginning of it, or a name: then the newest run of that name.\n\n" +
			"With --watch it goes on showing until RUN (without one: every run) has ended, and ends with 1 if one\n" +
			"that it watched did not end well. Ctrl-C ends it before that; the run goes on.",
		Args: arguments(1, "RUN"),
	}
	place := placeFlags(c)
	asJSON := c.Flags().Bool("json", false, "print one JSON object a run; with --watch, one at every change")
	watch := c.Flags().Bool("watch", false, "go on showing until the run has ended")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		in, err := e.open(c, *place)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, in.Close()) }()
		s := statusView{Env: e, service: api.New(in.Ports, in.Deployment, in.Profile), json: *asJSON, place: in.Location, path: in.Path}
		if len(args) > 0 {
			var r status.Status
			if *watch {
				r, err = e.await(c.Context(), in, s.service, args[0])
			} else {
				r, err = findRun(c.Context(), s.service, args[0])
			}
			if err != nil {
				return err
			}
			s.only = r.Run
		}
		if *watch {
			return newWatcher(&s).watch(c.Context(), max(watchEvery, in.Poll))
		}
		return s.once(c.Context())
	}
	return c
}

// statusView shows an installation, or one run of it.
type statusView struct {
	*Env
	service *api.Service
	only    identity.RunID // "" shows all
	json    bool
	place   installation.Location
	path    func(key string) string // where an object of the bucket is
}

func (s *statusView) ask(ctx context.Context) (api.Overview, error) {
	if s.only == "" {
		return s.service.Overview(ctx)
	}
	return s.service.RunOverview(ctx, s.only)
}

// once shows what is there now. Tables go to Out, what people are to know
// besides to Err.
func (s *statusView) once(ctx context.Context) error {
	o, err := s.ask(ctx)
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
		if _, err := fmt.Fprintln(s.Err, note); err != nil {
			return err
		}
	}
	return nil
}

// screen is the overview on this terminal; paces are of runs that are watched.
func (s *statusView) screen(o api.Overview, paces map[identity.RunID]progress.Pace) screen {
	columns, _, ok := progress.TerminalSize(s.Out)
	if !ok {
		columns = 0 // as wide as it takes
	}
	return screen{Overview: o, one: s.only != "", paces: paces, now: s.Clock.Now(), columns: columns, path: s.path,
		colours: palette(progress.SupportsANSI(s.Out) && s.Getenv("NO_COLOR") == ""), here: func(text string) string { return withLocationFlags(text, s.place) }}
}

// placed are commands that need not be told where they are about.
var placed = regexp.MustCompile(`--(dir|cloud|provider|help)\b`)

// withLocationFlags makes the commands that a text names ready to be copied: `rollout up`
// becomes `rollout up --dir D`. Those that say where, or what else they are
// about, are as they are.
func withLocationFlags(text string, p installation.Location) string {
	if p == (installation.Location{}) {
		return text
	}
	parts := strings.Split(text, "`")
	for i := 1; i < len(parts)-1; i += 2 { // between two backquotes
		if strings.HasPrefix(parts[i], "rollout ") && !placed.MatchString(parts[i]) {
			parts[i] += " " + p.Flags()
		}
	}
	return strings.Join(parts, "`")
}
