package gcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"rollout/shared/capacity"
	"rollout/shared/fault"
)

// computer is a machine with one GPU and without notices.
type computer struct{}

func (computer) Inventory(context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: make([]capacity.GPU, 1)}, nil
}

func (computer) Notices(context.Context) <-chan capacity.Notice { return nil }

// metadataAt sends requests of the metadata to a server of the test.
type metadataAt string

func (host metadataAt) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(host)
	return http.DefaultTransport.RoundTrip(r)
}

func TestInspectDescribesTheMachineOnAndOffComputeEngine(t *testing.T) {
	t.Parallel()
	const id, preempted, maintenance = "instance/id", "instance/preempted", "instance/maintenance-event"
	for name, c := range map[string]struct {
		metadata  map[string]string // by path; "!" is a failure
		want, err string
	}{
		"off Compute Engine": {nil, "1 GPUs, not on a Compute Engine instance", ""},
		"with something else there": {
			map[string]string{id: "<html>"}, "1 GPUs, not on a Compute Engine instance", "",
		},
		"on an instance": {
			map[string]string{id: "4520031799277581759\n", preempted: "FALSE", maintenance: "NONE"},
			"1 GPUs, 4520031799277581759", "",
		},
		"with a spot notice": {
			map[string]string{id: "17", preempted: "TRUE"}, "1 GPUs, 17, goes away: spot", "",
		},
		"with maintenance": {
			map[string]string{id: "17", maintenance: "TERMINATE_ON_HOST_MAINTENANCE"},
			"1 GPUs, 17, goes away: maintenance", "",
		},
		"with a migration":     {map[string]string{id: "17", maintenance: "MIGRATE_ON_HOST_MAINTENANCE"}, "1 GPUs, 17", ""},
		"with refused notices": {map[string]string{id: "17", preempted: "!"}, "", "ask for a notice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, ok := c.metadata[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")]
				switch {
				case text == "!":
					w.WriteHeader(http.StatusForbidden)
				case !ok:
					w.WriteHeader(http.StatusNotFound)
				default:
					_, _ = w.Write([]byte(text)) // the test sees what is missing
				}
			}))
			t.Cleanup(at.Close)
			host := strings.TrimPrefix(at.URL, "http://")
			instance := NewInstance(computer{}, InstanceOptions{Client: &http.Client{Transport: metadataAt(host)}})
			got, err := inspect(instance)(t.Context())
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, c.want, c.err)
			}
		})
	}
}

// An address may have a password.
func TestReachReportsTheEndpointWithoutItsPassword(t *testing.T) {
	t.Parallel()
	at := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(at.Close)
	found, err := reach(t.Context(), strings.Replace(at.URL, "//", "//user:s3cr3t@", 1))
	if want := strings.Replace(at.URL, "//", "//user:xxxxx@", 1); found != want || err != nil {
		t.Errorf("%q, %v; want %q", found, err, want)
	}
}

// A remedy about roles would mislead where the account or the project is the problem.
func TestRemediesAboutRolesAreForMissingRoles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool // the error has the better remedy
	}{
		"missing role":        {httpError(403, "forbidden"), false},
		"denied, no reason":   {httpError(403, ""), false},
		"expired credentials": {httpError(401, "authError"), true},
		"API not enabled":     {httpError(403, "accessNotConfigured"), true},
		"no billing":          {httpError(403, "accountDisabled"), true},
		"missing object":      {httpError(404, "notFound"), false},
	} {
		if got := explainsItself(translate(t.Context(), c.err, "try")); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}

func TestOnlyErrorsOfCallsAreServiceErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"of a call":          {fault.Wrap(translate(t.Context(), httpError(500, ""), "try"), "run"), true},
		"of an own check":    {fault.New(fault.Invalid, "no"), false},
		"of another service": {httpError(500, ""), false},
	} {
		if got := (Provider{}).IsServiceError(c.err); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
