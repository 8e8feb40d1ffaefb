package deployed

import (
	"net/http"
	"path"
	"strings"
	"testing"

	"rollout/localstack/gcp/fakecompute"
	"rollout/localstack/gcp/iam"
)

// Permissions of Compute Engine's groups: see the REST reference of
// regionInstanceGroupManagers.
const (
	getGroup    = "compute.instanceGroupManagers.get"
	updateGroup = "compute.instanceGroupManagers.update"
)

// startCompute starts Compute Engine with the plan's groups, which are empty.
func (in *Installation) startCompute(t testing.TB) {
	t.Helper()
	groups := in.Plan.Of("google_compute_region_instance_group_manager")
	in.Compute = fakecompute.New(fakecompute.Options{Project: in.project, Region: strings.TrimSuffix(in.zone(), "-a")})
	for _, g := range groups {
		in.Compute.MakeGroup(g.Values.Text("name"), g.Values.Texts("distribution_policy_zones")...)
	}
	in.serve(t, "compute.googleapis.com", http.HandlerFunc(in.guardCompute))
	in.serve(t, "www.googleapis.com", in.signer) // the keys of identity tokens
}

// serve serves a host over TLS until the test ends.
func (in *Installation) serve(t testing.TB, host string, handler http.Handler) {
	t.Helper()
	certificate, err := in.way.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	listener := in.lead(t, host)
	server := &http.Server{Handler: handler, TLSConfig: certificate}
	go func() { _ = server.ServeTLS(listener, "", "") }() // it ends with Close
	t.Cleanup(func() { _ = server.Close() })
}

// guardCompute passes a request on to the emulator of Compute Engine if the caller may
// make it.
func (in *Installation) guardCompute(w http.ResponseWriter, r *http.Request) {
	member, err := in.caller(r.Header.Get("Authorization"))
	if err != nil {
		refuse(w, http.StatusUnauthorized, "authError", err.Error())
		return
	}
	at := iam.Request{Member: member, Permission: getGroup, Resource: strings.TrimPrefix(r.URL.Path, "/compute/v1/")}
	switch path.Base(r.URL.Path) {
	case "resize", "deleteInstances":
		at.Permission = updateGroup
	}
	if in.Policy.Check(at) != nil {
		forbid(w, at)
		return
	}
	in.Compute.ServeHTTP(w, r)
}
