package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
)

// matchRun returns the run that a user means, of runs with the newest first: by
// its id, else the newest of that name, else by an unambiguous beginning of
// its id, in either case.
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
	var begin []status.Status
	for _, r := range runs {
		if text != "" && strings.HasPrefix(string(r.Run), id) {
			begin = append(begin, r)
		}
	}
	switch len(begin) {
	case 1:
		return begin[0], nil
	case 0:
		return status.Status{}, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no run %.64q", text),
			Remedy: "`rollout status` lists the runs"}
	}
	var ids []string
	for _, r := range begin[:min(len(begin), 4)] {
		ids = append(ids, string(r.Run))
	}
	return status.Status{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%d runs begin with %q: %s", len(begin), text, strings.Join(ids, ", ")),
		Remedy: "give more of the id"}
}

// findRun returns the run that a user means, as choose does. A whole id is asked
// for alone: a cloud sends a bill for every run that is listed.
func findRun(ctx context.Context, service *api.Service, text string) (status.Status, error) {
	if id := identity.RunID(strings.ToUpper(text)); id.Valid() {
		r, err := service.Show(ctx, id)
		if !fault.Is(err, fault.NotFound) {
			return r, err
		}
	}
	runs, err := service.List(ctx)
	if err != nil {
		return status.Status{}, err
	}
	return matchRun(runs, text)
}

// await is find for who goes on looking: a cloud's bucket tells of an object a
// moment after it was submitted, and until then there is no run of that id.
func (e *Env) await(ctx context.Context, in *installation.Installation, service *api.Service, text string) (status.Status, error) {
	id := identity.RunID(strings.ToUpper(text))
	if in.Cloud == "" || !id.Valid() {
		return findRun(ctx, service, text)
	}
	again := time.NewTicker(in.Poll)
	defer again.Stop()
	for until := e.Clock.Now().Add(eventPatience); ; {
		r, err := service.Show(ctx, id)
		if !fault.Is(err, fault.NotFound) {
			return r, err
		}
		if !e.Clock.Now().Before(until) {
			return findRun(ctx, service, text)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return r, ctx.Err()
		}
	}
}

// chosen is an open installation, and the run of it that a command is about.
type chosen struct {
	*installation.Installation
	service *api.Service
	run     status.Status
}

// openRun opens an installation for a command about the run of that name.
func (e *Env) openRun(c *cobra.Command, p installation.Location, name string) (*chosen, error) {
	in, err := e.open(c, p)
	if err != nil {
		return nil, err
	}
	service := api.New(in.Ports, in.Deployment, in.Profile)
	r, err := findRun(c.Context(), service, name)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &chosen{in, service, r}, nil
}
