package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/installation"
	"rollout/shared/record"
)

// matchRun returns the run that text names among runs, which must be sorted newest first: the run with that id, else
// the newest run with that name, else the run whose id has that unique prefix. Ids match in upper and lower case. It is
// NotFound if no run matches, and Invalid if a prefix is ambiguous.
func matchRun(runs []status.Status, text string) (status.Status, error) {
	id := strings.ToUpper(text)
	for _, r := range runs {
		if string(r.Run) == id {
			return r, nil
		}
	}
	for _, r := range runs {
		if r.Name == text {
			return r, nil
		}
	}
	var matches []status.Status
	for _, r := range runs {
		if text != "" && strings.HasPrefix(string(r.Run), id) {
			matches = append(matches, r)
		}
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return status.Status{}, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no run %.64q", text),
			Remedy: "`rollout status` lists the runs"}
	}
	var ids []string
	for _, r := range matches[:min(len(matches), 4)] {
		ids = append(ids, fmt.Sprintf("%s (%s)", r.Run, progress.SanitizeLine(r.Name, nameColumns)))
	}
	if len(matches) > len(ids) {
		ids = append(ids, "…")
	}
	count := figures.Of(len(matches), "run")
	if len(matches) >= api.MaxMatches {
		count = "many runs"
	}
	return status.Status{}, &fault.Error{Kind: fault.Invalid,
		Err:    fmt.Errorf("%s start with %q: %s", count, text, strings.Join(ids, ", ")),
		Remedy: "type more of the id"}
}

// findRun returns the run that text names, as matchRun does, with few requests however many runs there are.
func findRun(ctx context.Context, service *api.Service, text string) (status.Status, error) {
	found, err := service.Find(ctx, text)
	if err != nil {
		return status.Status{}, err
	}
	r, err := matchRun(found, text)
	if !fault.Is(err, fault.NotFound) {
		return r, err
	}
	if similar := similarNames(ctx, service, text); similar != nil {
		return r, similar
	}
	expired, countErr := service.Expired(ctx)
	if countErr != nil || expired == 0 {
		return r, errors.Join(err, countErr)
	}
	return r, &fault.Error{Kind: fault.NotFound, Err: err,
		Remedy: figures.Of(expired, "older run") + " expired: name such a run by its id, as its folder in runs/"}
}

// Bounds of similarNames.
const (
	similarLooked = 500 // ended runs, the last to end
	similarShown  = 5
)

// similarNames returns an error that names runs with the text in their names; nil if it finds none.
func similarNames(ctx context.Context, service *api.Service, text string) error {
	runs, err := service.Runs(ctx, status.Page{Limit: similarLooked})
	if err != nil {
		return err
	}
	part := strings.ToLower(strings.Trim(text, "*"))
	var names []string
	for _, r := range runs.Runs {
		name := progress.SanitizeLine(r.Name, nameColumns)
		if strings.Contains(strings.ToLower(r.Name), part) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if part == "" || len(names) == 0 {
		return nil
	}
	more := ""
	if len(names) > similarShown {
		names, more = names[:similarShown], ", …"
	}
	return &fault.Error{Kind: fault.NotFound,
		Err: fmt.Errorf("there is no run %.64q; runs with that in their names: %s%s",
			text, strings.Join(names, ", "), more),
		Remedy: "name one of them; `rollout status --name TEXT` lists such runs"}
}

// awaitRun returns the run that text names, as findRun does, but waits up to eventPatience for a complete id in a
// cloud: the run of a new upload exists only after the bucket's event has arrived.
func (e *Env) awaitRun(
	ctx context.Context, in *installation.Installation, service *api.Service, text string,
) (status.Status, error) {
	id := identity.RunID(strings.ToUpper(text))
	if in.Cloud == "" || !id.Valid() {
		return findRun(ctx, service, text)
	}
	tick := time.NewTicker(in.Poll)
	defer tick.Stop()
	for until := e.Clock.Now().Add(eventPatience); ; {
		r, err := service.Show(ctx, id)
		if !fault.Is(err, fault.NotFound) || host.IsExpired(err) {
			return r, err
		}
		if !e.Clock.Now().Before(until) {
			return findRun(ctx, service, text)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// selectedRun is a run and its open installation.
type selectedRun struct {
	*installation.Installation
	service *api.Service
	run     status.Status
	expired bool // run is what its summary says
}

// openRun opens the installation and finds the run that text names. The caller must close it.
func (e *Env) openRun(c *cobra.Command, p installation.Location, text string) (*selectedRun, error) {
	in, err := e.open(c, p)
	if err != nil {
		return nil, err
	}
	service := api.New(in.Ports, in.Deployment, in.Profile)
	r, err := findRun(c.Context(), service, text)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &selectedRun{Installation: in, service: service, run: r}, nil
}

// openExpired opens the installation of a run that has expired, by the error that says so. The run is what its summary
// says; without a summary, openExpired returns that error.
func (e *Env) openExpired(c *cobra.Command, p installation.Location, expired error) (*selectedRun, error) {
	var x *host.ExpiredError
	errors.As(expired, &x)
	in, err := e.open(c, p)
	if err != nil {
		return nil, err
	}
	var s record.Summary
	switch err = input.ReadJSON(c.Context(), in.Ports.Blobs, record.OutputKey(x.Run, record.SummaryFile), &s); {
	case fault.Is(err, fault.NotFound):
		return nil, errors.Join(expired, in.Close())
	case err != nil:
		return nil, errors.Join(err, in.Close())
	}
	r := status.Status{Run: x.Run, Name: x.Name, Phase: run.Phase(x.Phase), Message: s.Message,
		Items:         status.Items{Total: s.Items, Done: s.Completed, Failed: s.Failed, Planned: true},
		FailedByClass: s.FailedByClass, Rollout: s.Rollout, Errors: record.OutputKey(x.Run, record.ErrorsFile)}
	for class, n := range s.FailedByClass {
		if status.Unanswered(fault.Class(class)) {
			r.Items.Unanswered += uint64(max(0, n))
		}
	}
	return &selectedRun{in, api.New(in.Ports, in.Deployment, in.Profile), r, true}, nil
}
