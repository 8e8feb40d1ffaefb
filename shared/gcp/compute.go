package gcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rollout/shared/fault"
	"rollout/shared/retry"
)

// managers is a client of the regional managed instance groups of a project and region.
type managers struct {
	rest *rest
	base string // the address of all groups
}

const (
	// computeTimeout is the time limit of one request.
	computeTimeout = 20 * time.Second
	// maxPages bounds the pages of a list. A group lists all its instances in one page,
	// unless somebody changed that.
	maxPages = 20
)

// managers returns a client of the stack's groups.
func (s *Stack) managers() *managers {
	c := s.Deployment.Cloud
	return &managers{s.rest, computeProjects + c.Project + "/regions/" + c.Region + "/instanceGroupManagers/"}
}

// managedInstance is an instance of a group: one that exists, or that the group tries to
// create.
type managedInstance struct {
	URL    string `json:"instance"`
	ID     string `json:"id"`             // empty until it exists
	Status string `json:"instanceStatus"` // empty until it exists. Example: "RUNNING"
	Action string `json:"currentAction"`  // what the group does with it. Example: "CREATING"
}

// leaving reports whether the group ends the instance, and has lowered its size for it.
func (m managedInstance) leaving() bool { return m.Action == "DELETING" || m.Action == "ABANDONING" }

// present reports whether the instance boots or works.
func (m managedInstance) present() bool {
	switch m.Status {
	case "PENDING", "PROVISIONING", "STAGING", "RUNNING", "REPAIRING":
		return !m.leaving()
	}
	return false
}

// absent reports whether there is no machine, also none that is about to end.
func (m managedInstance) absent() bool {
	return m.Status == "" || m.Status == "TERMINATED" || m.Status == "STOPPED"
}

// managedError is why a group failed to do something with an instance.
type managedError struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Details struct {
		Action string `json:"action"`
	} `json:"instanceActionDetails"`
	At time.Time `json:"timestamp"`
}

// size returns the size that a group shall have. An absent group is NotFound.
func (m *managers) size(ctx context.Context, group string) (int, error) {
	var out struct {
		Size int `json:"targetSize"`
	}
	err := m.do(ctx, http.MethodGet, group, nil, nil, &out)
	return out.Size, fault.Wrap(err, "read the size of the group %s", group)
}

// instances returns the instances of a group.
func (m *managers) instances(ctx context.Context, group string) (all []managedInstance, err error) {
	err = m.pages(ctx, http.MethodPost, group+"/listManagedInstances", func(answer []byte) error {
		var page struct {
			Instances []managedInstance `json:"managedInstances"`
		}
		err := json.Unmarshal(answer, &page)
		all = append(all, page.Instances...)
		return err
	})
	return all, fault.Wrap(err, "list the instances of the group %s", group)
}

// errors returns the recent errors of a group.
func (m *managers) errors(ctx context.Context, group string) (all []managedError, err error) {
	err = m.pages(ctx, http.MethodGet, group+"/listErrors", func(answer []byte) error {
		var page struct {
			Items []managedError `json:"items"`
		}
		err := json.Unmarshal(answer, &page)
		all = append(all, page.Items...)
		return err
	})
	return all, fault.Wrap(err, "list the errors of the group %s", group)
}

// resize sets the size of a group. A size below the present one ends instances that
// Compute Engine picks.
func (m *managers) resize(ctx context.Context, group string, size int) error {
	err := m.do(ctx, http.MethodPost, group+"/resize", url.Values{"size": {strconv.Itoa(size)}}, nil, nil)
	return fault.Wrap(err, "resize the group %s to %d", group, size)
}

// remove deletes instances of a group, and lowers its size by as many. Instances that
// have left the group already are no error.
func (m *managers) remove(ctx context.Context, group string, instances []string) error {
	body := map[string]any{"instances": instances, "skipInstancesOnValidationError": true}
	err := m.do(ctx, http.MethodPost, group+"/deleteInstances", nil, body, nil)
	return fault.Wrap(err, "delete instances of the group %s", group)
}

// pages requests all pages of a list, and lets add take each.
func (m *managers) pages(ctx context.Context, method, path string, add func(answer []byte) error) error {
	query := url.Values{}
	for range maxPages {
		var answer json.RawMessage
		if err := m.do(ctx, method, path, query, nil, &answer); err != nil {
			return err
		}
		var page struct {
			Next string `json:"nextPageToken"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fault.WithKind(fault.Unavailable, err, "read the answer")
		}
		if err := add(answer); err != nil {
			return fault.WithKind(fault.Unavailable, err, "read the answer")
		}
		if page.Next == "" {
			return nil
		}
		query.Set("pageToken", page.Next)
	}
	return fault.New(fault.Exhausted, "the list has more than %d pages", maxPages)
}

// do sends a request, again if it fails for the moment, and decodes the answer into out,
// which may be nil. All requests of this client may be repeated.
func (m *managers) do(ctx context.Context, method, path string, query url.Values, body, out any) error {
	return retry.Policy{Tries: 3, Base: 500 * time.Millisecond}.Do(ctx, func(int) error {
		limited, cancel := context.WithTimeout(ctx, computeTimeout)
		defer cancel()
		err := m.rest.call(limited, method, m.base+path+"?"+query.Encode(), body, out, "request Compute Engine")
		if err != nil && limited.Err() != nil && ctx.Err() == nil {
			return fault.WithKind(fault.Unavailable, err, "wait %s", computeTimeout)
		}
		return err
	})
}
