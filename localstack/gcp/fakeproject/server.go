// Package fakeproject answers what the doctor asks about a project, in this process: which
// APIs are enabled, quotas of Compute Engine and Cloud Run, machine types by zone, policies
// of the organisation, and who may use topics, subscriptions, accounts and the project. It
// changes nothing and computes nothing: a test says what the project has.
//
// Programs reach it through package gateway, by Google's hosts.
package fakeproject

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Hosts are the hosts that the server answers for.
var Hosts = []string{"serviceusage.googleapis.com", "cloudquotas.googleapis.com", "compute.googleapis.com",
	"orgpolicy.googleapis.com", "cloudresourcemanager.googleapis.com", "pubsub.googleapis.com", "iam.googleapis.com"}

// Project is what the server tells. It must not be changed while the server answers.
type Project struct {
	ID, Number, Region string
	// Disabled are APIs that are not enabled. Example: "run.googleapis.com"
	Disabled []string
	// AllGPUs and AllCPUs are quotas of Compute Engine in all regions, and Quotas those of the
	// region. An AllCPUs of 0 is not listed.
	AllGPUs, AllCPUs float64
	Quotas           map[string]float64
	// CloudRunGPUs is the quota of GPUs of Cloud Run in the region.
	CloudRunGPUs int
	// MachineTypes are the types by zone.
	MachineTypes map[string][]string
	// Policies are the rules of constraints that are set, as JSON.
	Policies map[string]string
	// Grants are the members that have a role on a resource, which is named by the end of
	// its path: "topics/rollout-objects".
	Grants map[string]map[string][]string
	// Denied are hosts whose services the caller may not ask.
	Denied []string
}

// Start serves the project over TLS on a port of the loopback interface until end is
// called. certificate returns the TLS configuration of a host.
func Start(p *Project, certificate func(host string) (*tls.Config, error)) (address string, end func(), err error) {
	var mu sync.Mutex
	configs := map[string]*tls.Config{}
	byHost := func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if configs[hello.ServerName] == nil {
			c, err := certificate(hello.ServerName)
			if err != nil {
				return nil, err
			}
			configs[hello.ServerName] = c
		}
		return configs[hello.ServerName], nil
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetConfigForClient: byHost})
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: p}
	go func() { _ = server.Serve(listener) }() // it ends with Close
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}

// ServeHTTP answers a request; see http.Handler.
func (p *Project) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ") {
		refuse(w, http.StatusUnauthorized, "UNAUTHENTICATED", "CREDENTIALS_MISSING", "Request is missing credentials.")
		return
	}
	switch {
	case slices.Contains(p.Disabled, host):
		refuse(w, http.StatusForbidden, "PERMISSION_DENIED", "SERVICE_DISABLED",
			host+" has not been used in project "+p.Number+" before or it is disabled.")
		return
	case slices.Contains(p.Denied, host):
		refuse(w, http.StatusForbidden, "PERMISSION_DENIED", "IAM_PERMISSION_DENIED", "The caller does not have permission")
		return
	}
	answer, ok := p.answer(host, r)
	if !ok {
		refuse(w, http.StatusNotFound, "NOT_FOUND", "", "Not found: "+r.Method+" "+host+r.URL.Path)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // to a client that may have gone
}

// refuse answers with an error as Google's services do.
func refuse(w http.ResponseWriter, status int, code, reason, message string) {
	e := map[string]any{"code": status, "status": code, "message": message}
	if reason != "" {
		e["details"] = []map[string]any{{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason,
			"domain": "googleapis.com"}}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": e}) // to a client that may have gone
}

// answer returns the answer to a request; ok is false if there is no such resource.
func (p *Project) answer(host string, r *http.Request) (out any, ok bool) {
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, ":getIamPolicy"):
		needsPost := host == "cloudresourcemanager.googleapis.com" || host == "iam.googleapis.com"
		return p.policy(strings.TrimSuffix(path, ":getIamPolicy")), (r.Method == http.MethodPost) == needsPost
	case r.Method != http.MethodGet:
		return nil, false
	case path == "/v1/projects/"+p.ID+"/services:batchGet":
		return p.services(r.URL.Query()["names"]), true
	case path == "/v1/projects/"+p.ID && host == "cloudresourcemanager.googleapis.com":
		return map[string]any{"projectId": p.ID, "projectNumber": p.Number}, true
	case path == "/compute/v1/projects/"+p.ID:
		everywhere := map[string]float64{"GPUS_ALL_REGIONS": p.AllGPUs, "SNAPSHOTS": 1000}
		if p.AllCPUs > 0 {
			everywhere["CPUS_ALL_REGIONS"] = p.AllCPUs
		}
		return quotas(everywhere), true
	case path == "/compute/v1/projects/"+p.ID+"/regions/"+p.Region:
		return quotas(p.Quotas), true
	case path == "/compute/v1/projects/"+p.ID+"/aggregated/machineTypes":
		return p.machineTypes(r.URL.Query().Get("filter")), true
	case strings.HasSuffix(path, "/services/run.googleapis.com/quotaInfos/"+
		"NvidiaL4GpuAllocNoZonalRedundancyPerProjectRegion"):
		return map[string]any{"dimensionsInfos": []any{
			map[string]any{"dimensions": map[string]string{"region": "asia-south1"}, "details": map[string]string{"value": "0"}},
			map[string]any{"dimensions": map[string]string{"region": p.Region},
				"details": map[string]string{"value": fmt.Sprint(p.CloudRunGPUs)}, "applicableLocations": []string{p.Region}},
		}}, true
	case strings.HasSuffix(path, ":getEffectivePolicy"):
		constraint := strings.TrimSuffix(path[strings.LastIndex(path, "/")+1:], ":getEffectivePolicy")
		rules := p.Policies[constraint]
		if rules == "" {
			rules = "[]"
		}
		return map[string]any{"name": path, "spec": map[string]any{"rules": json.RawMessage(rules)}}, true
	}
	return nil, false
}

func (p *Project) services(names []string) any {
	var out []any
	for _, name := range names {
		state := "ENABLED"
		if slices.Contains(p.Disabled, name[strings.LastIndex(name, "/")+1:]) {
			state = "DISABLED"
		}
		// The answer names the project by its number.
		out = append(out, map[string]string{"name": strings.Replace(name, p.ID, p.Number, 1), "state": state})
	}
	return map[string]any{"services": out}
}

func quotas(limits map[string]float64) any {
	out := []any{}
	for metric, limit := range limits {
		out = append(out, map[string]any{"metric": metric, "limit": limit, "usage": 0})
	}
	return map[string]any{"quotas": out}
}

// machineTypes returns the types that the filter names, by zone. Zones without one have a
// warning instead, as in Compute Engine.
func (p *Project) machineTypes(filter string) any {
	items := map[string]any{}
	for zone, types := range p.MachineTypes {
		var found []any
		for _, t := range types {
			if strings.Contains(filter, "(name = "+t+")") {
				found = append(found, map[string]string{"name": t})
			}
		}
		if found == nil {
			items["zones/"+zone] = map[string]any{"warning": map[string]string{"code": "NO_RESULTS_ON_PAGE"}}
			continue
		}
		items["zones/"+zone] = map[string]any{"machineTypes": found}
	}
	return map[string]any{"items": items}
}

func (p *Project) policy(path string) any {
	bindings := []any{}
	for resource, roles := range p.Grants {
		if !strings.HasSuffix(path, "/"+resource) {
			continue
		}
		for role, members := range roles {
			bindings = append(bindings, map[string]any{"role": role, "members": members})
		}
	}
	return map[string]any{"bindings": bindings, "version": 1}
}
