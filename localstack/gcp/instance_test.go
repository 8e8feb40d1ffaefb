package emulators

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"rollout/localstack/gcp/fakemetadata"
	"rollout/shared/capacity"
	"rollout/shared/capacity/capacitytest"
	"rollout/shared/gcp"
)

// emptyMachine is a machine without GPUs and notices.
type emptyMachine struct{}

func (emptyMachine) Inventory(ctx context.Context) (capacity.Inventory, error) {
	return capacity.Inventory{CPUs: 1, MemoryBytes: 1 << 30, GPUs: []capacity.GPU{}}, ctx.Err()
}

func (emptyMachine) Notices(ctx context.Context) <-chan capacity.Notice {
	none := make(chan capacity.Notice)
	context.AfterFunc(ctx, func() { close(none) })
	return none
}

// machine is the instance that the tests' metadata servers describe.
var machine = fakemetadata.Instance{ID: "4520031799277581759", Name: "rollout-small-x1c2", Zone: "europe-west4-a",
	Project: "test-project", Number: "123456789012", Account: "worker@test-project.iam.gserviceaccount.com"}

// to sends all requests to one host.
type to string

func (host to) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = string(host)
	return http.DefaultTransport.RoundTrip(r)
}

// startMetadata starts a metadata server, and returns it with the instance that asks it.
func startMetadata(t testing.TB) (*fakemetadata.Server, *gcp.Instance) {
	t.Helper()
	return startLogged(t, nil)
}

// startLogged is startMetadata with a log of the instance.
func startLogged(t testing.TB, log *slog.Logger) (*fakemetadata.Server, *gcp.Instance) {
	t.Helper()
	server, host, end, err := fakemetadata.Start(machine, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	return server, gcp.NewInstance(emptyMachine{},
		gcp.InstanceOptions{Retry: time.Millisecond, Logger: log, Client: &http.Client{Transport: to(host)}})
}

func instances(t *testing.T) {
	capacitytest.Run(t, func(t *testing.T) capacitytest.Machine {
		server, instance := startMetadata(t)
		notify := func(*testing.T, capacity.Notice) { server.Preempt() }
		return capacitytest.Machine{Source: instance, Notify: notify, Lead: 30 * time.Second}
	})
}

// A machine that was preempted comes back under the same name.
func TestInstanceIsItsNumericID(t *testing.T) {
	t.Parallel()
	_, instance := startMetadata(t)
	if got, err := instance.Inventory(t.Context()); err != nil || got.Instance != machine.ID || got.CPUs != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestInstanceWithoutMetadataHasNoID(t *testing.T) {
	t.Parallel()
	server, instance := startMetadata(t)
	server.Remove("instance/id")
	if got, err := instance.Inventory(t.Context()); err != nil || got.Instance != "" || got.CPUs != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMaintenanceThatEndsTheMachineIsANotice(t *testing.T) {
	t.Parallel()
	server, instance := startMetadata(t)
	if n, found, err := instance.Notice(t.Context()); found || err != nil {
		t.Errorf("%+v, %v, want none", n, err)
	}
	notices := instance.Notices(t.Context())
	server.Maintain("MIGRATE_ON_HOST_MAINTENANCE") // the machine goes on
	server.Maintain("NONE")
	server.Maintain("TERMINATE_ON_HOST_MAINTENANCE")
	want := capacity.Notice{Reason: "maintenance", Lead: time.Minute}
	if got := <-notices; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, found, err := instance.Notice(t.Context()); !found || err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	server.Preempt()
	if got := <-notices; got.Reason != "spot" || got.Lead != 30*time.Second {
		t.Errorf("%+v, want a spot notice", got)
	}
}

// lines is a logger's output as a channel of lines; a full channel drops them.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	select {
	case l <- string(p):
	default:
	}
	return len(p), nil
}

func TestNoticeComesAfterMetadataWasUnreadable(t *testing.T) {
	t.Parallel()
	logged := make(lines, 10)
	server, instance := startLogged(t, slog.New(slog.NewTextHandler(logged, nil)))
	server.Remove("instance/preempted")
	notices := instance.Notices(t.Context())
	if line := <-logged; !strings.Contains(line, "instance/preempted") {
		t.Errorf("log: %s", line)
	}
	server.Preempt()
	if got := <-notices; got.Reason != "spot" {
		t.Errorf("%+v", got)
	}
}
