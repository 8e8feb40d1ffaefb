package fakecompute

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ServeHTTP answers a request; see http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.options.Before != nil {
		s.options.Before(r)
	}
	if s.options.After != nil {
		defer s.options.After(r) // without the lock; the answer waits in the buffer of w
	}
	prefix := "/compute/v1/projects/" + s.options.Project + "/regions/" + s.options.Region + "/instanceGroupManagers/"
	rest, ok := strings.CutPrefix(r.URL.Path, prefix)
	name, verb, _ := strings.Cut(rest, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if !ok || g == nil {
		fail(w, http.StatusNotFound, "notFound", "The resource '"+r.URL.Path+"' was not found")
		return
	}
	switch r.Method + " " + verb {
	case "GET ":
		reply(w, map[string]any{"name": g.name, "targetSize": g.size})
	case "POST listManagedInstances":
		reply(w, map[string]any{"managedInstances": s.listed(g)})
	case "GET listErrors":
		reply(w, map[string]any{"items": s.failures(g)})
	case "POST resize":
		size, err := strconv.Atoi(r.URL.Query().Get("size"))
		if err != nil || size < 0 {
			fail(w, http.StatusBadRequest, "invalid", "Invalid value for field 'size'")
			return
		}
		s.resize(g, size)
		s.operation(w)
	case "POST deleteInstances":
		s.deleteInstances(w, r, g)
	default:
		fail(w, http.StatusNotFound, "notFound", "no such method")
	}
}

// listed returns the members of a group as the API shows them.
func (s *Server) listed(g *group) (all []map[string]any) {
	for _, m := range g.members {
		entry := map[string]any{"instance": s.url(m), "currentAction": m.action}
		if m.status != "" {
			entry["id"], entry["instanceStatus"] = m.ID, m.status
		}
		all = append(all, entry)
	}
	return all
}

// failures returns the errors of a group as the API shows them, the newest first.
func (s *Server) failures(g *group) (all []map[string]any) {
	for _, f := range slices.Backward(g.errors) {
		all = append(all, map[string]any{
			"error":                 map[string]string{"code": f.code, "message": f.message},
			"instanceActionDetails": map[string]string{"action": "CREATING", "instance": f.member},
			"timestamp":             f.at.UTC().Format(time.RFC3339Nano),
		})
	}
	return all
}

// resize sets the size of a group. If it is lower, the oldest machines end.
func (s *Server) resize(g *group, size int) {
	s.resizes++
	for g.size < size {
		m := &member{action: "CREATING"}
		m.Group, m.Name, m.Zone = g.name, fmt.Sprintf("%s-%04x", g.name, g.made), g.zones[g.made%len(g.zones)]
		g.made++
		g.members, g.size = append(g.members, m), g.size+1
	}
	for _, m := range g.members {
		if g.size <= size {
			return
		}
		if m.action == "DELETING" {
			continue
		}
		if m.status == running {
			s.lowered = append(s.lowered, m.ID)
		}
		m.action = "DELETING"
		g.size--
	}
}

// deleteInstances deletes members of a group and lowers its size.
func (s *Server) deleteInstances(w http.ResponseWriter, r *http.Request, g *group) {
	var in struct {
		Instances []string `json:"instances"`
		Skip      bool     `json:"skipInstancesOnValidationError"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&in); err != nil {
		fail(w, http.StatusBadRequest, "parseError", err.Error())
		return
	}
	var found []*member
	for _, url := range in.Instances {
		at := slices.IndexFunc(g.members, func(m *member) bool { return m.Name == path.Base(url) && m.action != "DELETING" })
		switch {
		case at >= 0:
			found = append(found, g.members[at])
		case !in.Skip:
			fail(w, http.StatusBadRequest, "invalid", url+" is not a member of "+g.name)
			return
		}
	}
	for _, m := range found {
		m.action = "DELETING"
		g.size--
	}
	s.operation(w)
}

// operation answers a request that changed something, or loses the answer.
func (s *Server) operation(w http.ResponseWriter) {
	if s.lost > 0 {
		s.lost--
		fail(w, http.StatusServiceUnavailable, "backendError", "the reply is lost")
		return
	}
	s.ops++
	reply(w, map[string]any{"kind": "compute#operation", "name": fmt.Sprint("operation-", s.ops), "status": "RUNNING"})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // to a client that may have gone
}

// fail answers with an error as Google writes them.
func fail(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{ // to a client that may have gone
		"code": status, "message": message, "errors": []map[string]string{{"reason": reason, "message": message}},
	}})
}
