package command

import (
	"fmt"
	"strings"

	"rollout/functions/api"
	"rollout/shared/fault"
)

// choose returns the run that a user means, of runs with the newest first: by
// its id, else the newest of that name, else by an unambiguous beginning of
// its id, in either case.
func choose(runs []api.Status, text string) (api.Status, error) {
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
	var begin []api.Status
	for _, r := range runs {
		if text != "" && strings.HasPrefix(string(r.Run), id) {
			begin = append(begin, r)
		}
	}
	switch len(begin) {
	case 1:
		return begin[0], nil
	case 0:
		return api.Status{}, &fault.Error{Kind: fault.NotFound, Err: fmt.Errorf("there is no run %.64q", text),
			Remedy: "`rollout status` lists the runs"}
	}
	var ids []string
	for _, r := range begin[:min(len(begin), 4)] {
		ids = append(ids, string(r.Run))
	}
	return api.Status{}, &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%d runs begin with %q: %s", len(begin), text, strings.Join(ids, ", ")),
		Remedy: "give more of the id"}
}
