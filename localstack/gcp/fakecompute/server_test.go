package fakecompute

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask sends a request about the group g, and returns the status and the answer.
func ask(t *testing.T, s *Server, method, verb, body string) (status int, answer map[string]any) {
	t.Helper()
	const group = "/compute/v1/projects/p/regions/r/instanceGroupManagers/g"
	r := httptest.NewRequest(method, group+verb, strings.NewReader(body))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, answer
}

// newServer returns a server with the group g, and the machines that began and ended.
func newServer() (s *Server, booted, ended *[]Instance) {
	booted, ended = &[]Instance{}, &[]Instance{}
	s = New(Options{Project: "p", Region: "r", Now: func() time.Time { return time.Unix(0, 0) },
		Booted: func(i Instance) { *booted = append(*booted, i) }, Ended: func(i Instance) { *ended = append(*ended, i) }})
	s.MakeGroup("g", "r-a", "r-b")
	return s, booted, ended
}

func TestMachinesExistAfterAStep(t *testing.T) {
	t.Parallel()
	s, booted, ended := newServer()
	ask(t, s, http.MethodPost, "/resize?size=2", "")
	if _, g := ask(t, s, http.MethodGet, "", ""); g["targetSize"] != 2.0 || len(*booted) > 0 {
		t.Errorf("the group is %v, %v booted", g, *booted)
	}
	_, list := ask(t, s, http.MethodPost, "/listManagedInstances", "")
	first := list["managedInstances"].([]any)[0].(map[string]any)
	if first["currentAction"] != "CREATING" || first["id"] != nil || first["instance"] == nil {
		t.Errorf("before the step: %v", first)
	}
	s.Step()
	if len(*booted) != 2 || (*booted)[0].Zone == (*booted)[1].Zone || (*booted)[0].ID == (*booted)[1].ID {
		t.Errorf("booted %v", *booted)
	}
	old := s.Machines()[0]
	if !s.Preempt(old.ID) || s.Preempt(old.ID) {
		t.Error("a machine is preempted once")
	}
	s.Step()
	same := func(i Instance) bool { return i.Name == old.Name && i.ID != old.ID }
	if !slices.ContainsFunc(s.Machines(), same) {
		t.Errorf("%v came back as %v", old, s.Machines())
	}
	if len(*ended) != 1 {
		t.Errorf("ended %v", *ended)
	}
}

func TestLowerSizeEndsMachines(t *testing.T) {
	t.Parallel()
	s, _, ended := newServer()
	ask(t, s, http.MethodPost, "/resize?size=3", "")
	s.Step()
	ask(t, s, http.MethodPost, "/resize?size=1", "")
	s.Step()
	if len(s.Machines()) != 1 || len(*ended) != 2 || len(s.Lowered()) != 2 {
		t.Errorf("%v are left, %v ended, of them %v by the size", s.Machines(), *ended, s.Lowered())
	}
}

func TestDeletionLowersTheSizeByWhatItDeletes(t *testing.T) {
	t.Parallel()
	s, _, _ := newServer()
	ask(t, s, http.MethodPost, "/resize?size=2", "")
	s.Step()
	all := s.Machines()
	url := "zones/" + all[1].Zone + "/instances/" + all[1].Name
	status, _ := ask(t, s, http.MethodPost, "/deleteInstances", `{"instances":["zones/r-a/instances/x"]}`)
	if status != 400 {
		t.Errorf("an unknown instance: %d, want 400", status)
	}
	for range 2 {
		if status, _ := ask(t, s, http.MethodPost, "/deleteInstances",
			`{"instances":["`+url+`"],"skipInstancesOnValidationError":true}`); status != 200 {
			t.Errorf("answered %d", status)
		}
	}
	s.Step()
	if got := s.Machines(); len(got) != 1 || got[0] != all[0] || s.Size("g") != 1 || len(s.Lowered()) > 0 {
		t.Errorf("%v are left of %v, the size is %d", got, all, s.Size("g"))
	}
}

func TestObstaclesAreErrorsOfTheGroup(t *testing.T) {
	t.Parallel()
	for code, set := range map[string]func(*Server){
		"QUOTA_EXCEEDED":               func(s *Server) { s.SetQuota(1) },
		"ZONE_RESOURCE_POOL_EXHAUSTED": func(s *Server) { s.SetStock("g", 1) },
		"RESOURCE_NOT_FOUND":           func(s *Server) { s.SetImage("g", false) },
		"CONDITION_NOT_MET":            func(s *Server) { s.Refuse(true) },
	} {
		s, booted, _ := newServer()
		set(s)
		ask(t, s, http.MethodPost, "/resize?size=2", "")
		s.Step()
		_, list := ask(t, s, http.MethodGet, "/listErrors", "")
		items, _ := list["items"].([]any)
		if len(items) == 0 || len(items)+len(*booted) != 2 {
			t.Fatalf("%s: %v, booted %v", code, items, *booted)
		}
		first := items[0].(map[string]any)
		if got := first["error"].(map[string]any)["code"]; got != code || first["timestamp"] != "1970-01-01T00:00:00Z" {
			t.Errorf("%s: %v", code, first)
		}
	}
	s, _, _ := newServer()
	s.DeleteGroup("g")
	if status, _ := ask(t, s, http.MethodGet, "", ""); status != 404 {
		t.Errorf("a deleted group: %d, want 404", status)
	}
}
