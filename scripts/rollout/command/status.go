package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/scripts/rollout/progress"
	"rollout/shared/embedded/local"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
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
		s := statusView{Env: e, service: api.New(l.Ports, l.Deployment), json: *asJSON, path: progress.Under(local.BucketDir(*dir)),
			meters: map[identity.RunID]*progress.Meter{}, drawn: map[identity.RunID]string{}}
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
		if _, err = io.WriteString(e.Out, s.render(runs, false)); err != nil || *asJSON {
			return err
		}
		return s.warn(c.Context(), runs, *dir)
	}
	return c
}

// warn says if runs that should be under way have nobody to work on them.
func (s *statusView) warn(ctx context.Context, runs []api.Status, dir string) error {
	alive, err := poolsAlive(ctx, s.service)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if r.Phase != run.Planning && r.Phase != run.Running || alive[r.Pool] {
			continue
		}
		return s.sayNobody(r.Pool, dir)
	}
	return nil
}

// poolsAlive are the pools that have a living worker.
func poolsAlive(ctx context.Context, service *api.Service) (map[string]bool, error) {
	workers, err := service.Workers(ctx)
	alive := map[string]bool{}
	for _, w := range workers {
		alive[w.Pool] = alive[w.Pool] || w.Alive
	}
	return alive, err
}

func (e *Env) sayNobody(pool, dir string) error {
	_, err := fmt.Fprintf(e.Err, "no worker of pool %s is alive: start `rollout up --dir %s`\n", pool, dir)
	return err
}

// statusView shows runs once or again and again.
type statusView struct {
	*Env
	service *api.Service
	only    identity.RunID // "" shows all
	json    bool
	path    func(key string) string            // where an object of the bucket is
	meters  map[identity.RunID]*progress.Meter // of runs that are watched
	drawn   map[identity.RunID]string          // the facts of each as last written
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
		return details(list[0], now, colours, s.path)
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
// On a terminal each drawing replaces the one before; elsewhere only runs that
// changed are written.
func (s *statusView) watch(ctx context.Context) error {
	live := progress.IsTerminal(s.Out) && !s.json
	if live {
		if _, err := io.WriteString(s.Out, clearScreen); err != nil {
			return err
		}
	}
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
		if err := s.draw(runs, live); err != nil {
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

// What makes a terminal draw over what it shows, without flicker.
const (
	clearScreen = "\x1b[2J"
	goHome      = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

func (s *statusView) draw(runs []api.Status, live bool) error {
	if live {
		text := strings.ReplaceAll(s.render(runs, true), "\n", clearLine+"\n")
		_, err := io.WriteString(s.Out, goHome+text+clearBelow)
		return err
	}
	if runs = s.changed(runs); len(runs) == 0 {
		return nil
	}
	_, err := io.WriteString(s.Out, s.render(runs, true))
	return err
}

// changed returns the runs of which there is more to say than that time has
// passed.
func (s *statusView) changed(runs []api.Status) []api.Status {
	var out []api.Status
	for _, r := range runs {
		facts := r
		facts.Rate, facts.ETASeconds = nil, nil
		if text := jsonLines([]api.Status{facts}); s.drawn[r.Run] != text {
			s.drawn[r.Run] = text
			out = append(out, r)
		}
	}
	return out
}
