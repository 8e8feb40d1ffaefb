package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/scripts/rollout/progress"
	"rollout/shared/engine/identity"
)

func statusCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "status [RUN]",
		Short: "Show the runs, or one of them",
		Long: "Shows every run, the newest first, or one of them.\n\n" +
			"RUN is a run's id, an unambiguous beginning of it, or a name: then the newest run of that name.",
		Args: arguments(1, "RUN"),
	}
	dir := dirFlag(c)
	asJSON := c.Flags().Bool("json", false, "print one JSON object a run")
	watch := c.Flags().Bool("watch", false, "go on showing until the run has ended (or, without RUN, until interrupted)")
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		l, closeAll, err := e.open(c, *dir)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeAll()) }()
		s := statusView{Env: e, service: api.New(l.Ports, l.Deployment), json: *asJSON, meters: map[identity.RunID]*progress.Meter{}}
		runs, err := s.service.List(c.Context())
		if err != nil {
			return err
		}
		if len(args) > 0 {
			r, err := choose(runs, args[0])
			if err != nil {
				return err
			}
			s.only, runs = r.Run, []api.Status{r}
		}
		if *watch {
			return s.watch(c.Context())
		}
		_, err = io.WriteString(e.Out, s.render(runs, false))
		return err
	}
	return c
}

// statusView shows runs once or again and again.
type statusView struct {
	*Env
	service *api.Service
	only    identity.RunID // "" shows all
	json    bool
	meters  map[identity.RunID]*progress.Meter // of runs that are watched
}

// render returns what to print. measured says to take the pace from what was
// watched rather than from the start.
func (s *statusView) render(runs []api.Status, measured bool) string {
	if s.json {
		return jsonLines(runs)
	}
	now := s.Clock.Now()
	var list []shown
	for _, r := range runs {
		view := at(r)
		if measured {
			view.Pace = s.meter(r.Run).Add(r, now)
		}
		list = append(list, view)
	}
	colours := palette(progress.IsTerminal(s.Out) && s.Getenv("NO_COLOR") == "")
	switch {
	case len(list) == 0:
		return "no runs yet: `rollout submit FILE` makes one\n"
	case s.only != "":
		return details(list[0], now, colours)
	}
	return table(list, now, colours)
}

func (s *statusView) meter(id identity.RunID) *progress.Meter {
	m := s.meters[id]
	if m == nil {
		m = &progress.Meter{}
		s.meters[id] = m
	}
	return m
}

func jsonLines(runs []api.Status) string {
	var b strings.Builder
	for _, r := range runs {
		line, err := json.Marshal(r)
		if err != nil { // statuses hold nothing that JSON can't
			continue
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// watchEvery is how often a watched view is drawn.
const watchEvery = time.Second

// watch draws until the only run has ended or ctx ends, which is no error.
func (s *statusView) watch(ctx context.Context) error {
	out := screen{w: s.Out, live: progress.IsTerminal(s.Out) && !s.json}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		runs, err := s.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.draw(s.render(runs, true)); err != nil {
			return err
		}
		if s.only != "" && runs[0].Phase.Ended() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *statusView) ask(ctx context.Context) ([]api.Status, error) {
	if s.only == "" {
		return s.service.List(ctx)
	}
	r, err := s.service.Show(ctx, s.only)
	return []api.Status{r}, err
}

// screen draws a text over the one before; elsewhere than on a terminal it
// writes those lines that were not in the text before.
type screen struct {
	w    io.Writer
	live bool
	last string
}

func (s *screen) draw(text string) error {
	var b bytes.Buffer
	switch {
	case !s.live:
		before := map[string]bool{}
		for line := range strings.Lines(s.last) {
			before[line] = true
		}
		for line := range strings.Lines(text) {
			if !before[line] {
				b.WriteString(line)
			}
		}
	default:
		if s.last == "" {
			b.WriteString("\x1b[2J")
		}
		b.WriteString("\x1b[H")
		b.WriteString(strings.ReplaceAll(text, "\n", "\x1b[K\n"))
		b.WriteString("\x1b[J")
	}
	s.last = text
	_, err := s.w.Write(b.Bytes())
	return err
}
