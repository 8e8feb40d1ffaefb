package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"rollout/functions/api"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/rollout"
	"rollout/shared/secret"
)

const openAPIFile = "openapi.json"

func TestDescriptionIsThatOfTheTypes(t *testing.T) {
	t.Parallel()
	want, err := api.Describe()
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(openAPIFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(openAPIFile)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from the types (%v): run go test ./functions/api -run Description -rewrite", openAPIFile, err)
	}
}

// description is what tests read of the description.
type description struct {
	OpenAPI string
	Paths   map[string]map[string]struct{ Responses map[string]any }
}

func described(t *testing.T) (d description, raw any) {
	t.Helper()
	b, err := os.ReadFile(openAPIFile)
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err == nil {
		raw, err = jsonschema.UnmarshalJSON(bytes.NewReader(b))
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, raw
}

func TestDescriptionHasEachEndpointAndNoOther(t *testing.T) {
	t.Parallel()
	d, _ := described(t)
	routes := newFixture(t).RouteMethods()
	for path, methods := range routes {
		for _, m := range methods {
			if _, ok := d.Paths[path][strings.ToLower(m)]; !ok {
				t.Errorf("%s %s is not described", m, path)
			}
		}
	}
	for path, operations := range d.Paths {
		for m := range operations {
			if !slices.Contains(routes[path], strings.ToUpper(m)) {
				t.Errorf("%s %s is described and does not exist", m, path)
			}
		}
	}
}

// closed forbids fields that are not described.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["properties"]; ok && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, member := range v {
			closed(member)
		}
	case []any:
		for _, member := range v {
			closed(member)
		}
	}
}

func TestAnswersAreAsDescribed(t *testing.T) {
	t.Parallel()
	d, raw := described(t)
	closed(raw.(map[string]any)["components"])
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", raw); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	f.submitted(runA, run.Running)
	f.beat("w", "default")
	f.ofKind(runB, config.KindRollout, run.Running, "refunds")
	f.step(runB, 0, "Be kind.")
	f.stage(runB, rollout.Stage{Input: 1, Kind: rollout.Answering, Guidance: map[string]int{"refunds": 0}})
	f.stage(runB, rollout.Stage{Input: 2, Kind: rollout.Ending, Guidance: map[string]int{"refunds": 0}})
	train := endedID(1)
	f.ofKind(train, config.KindTrain, run.Running)
	compared := endedID(2)
	f.ofKind(compared, config.KindTrials, run.Running)
	f.endedRuns(1)
	f.put("prompts/x.jsonl", []byte("{}\n"))
	f.put("prompts/bad.csv", []byte("{}\n"))
	h := f.Handler(secret.Value{}, f.probes())
	asked := map[string]bool{}
	for _, q := range []struct {
		method, path, route, body string
		code                      int
	}{
		{"GET", "/v1/runs", "/v1/runs", "", 200},
		{"POST", "/v1/runs", "/v1/runs", `{"key":"prompts/x.jsonl"}`, 202},
		{"POST", "/v1/runs", "/v1/runs", `{"key":"prompts/none.jsonl"}`, 404},
		{"GET", "/v1/runs/A", "/v1/runs/{id}", "", 200},
		{"GET", "/v1/runs/B", "/v1/runs/{id}", "", 200},
		{"GET", "/v1/runs/T", "/v1/runs/{id}", "", 200},
		{"GET", "/v1/runs/A/explain", "/v1/runs/{id}/explain", "", 200},
		{"GET", "/v1/runs/A/history", "/v1/runs/{id}/history", "", 200},
		{"GET", "/v1/runs/A/errors", "/v1/runs/{id}/errors", "", 200},
		{"GET", "/v1/runs/A/items", "/v1/runs/{id}/items", "", 200},
		{"GET", "/v1/runs/A/items/7", "/v1/runs/{id}/items/{index}", "", 404},
		{"GET", "/v1/runs/B/rollout", "/v1/runs/{id}/rollout", "", 200},
		{"GET", "/v1/runs/A/rollout", "/v1/runs/{id}/rollout", "", 404},
		{"GET", "/v1/runs/T/training", "/v1/runs/{id}/training", "", 200},
		{"GET", "/v1/runs/C/trials", "/v1/runs/{id}/trials", "", 200},
		{"GET", "/v1/runs/C/trials/active", "/v1/runs/{id}/trials/active", "", 200},
		{"GET", "/v1/runs/A/trials", "/v1/runs/{id}/trials", "", 404},
		{"POST", "/v1/runs/A/pause", "/v1/runs/{id}/pause", `{"reason":"lunch"}`, 202},
		{"POST", "/v1/runs/A/resume", "/v1/runs/{id}/resume", "", 202},
		{"POST", "/v1/runs/A/stop", "/v1/runs/{id}/stop", "", 202},
		{"POST", "/v1/runs/A/retry", "/v1/runs/{id}/retry", "", 409},
		{"POST", "/v1/runs/A/amend", "/v1/runs/{id}/amend", `{"replications":5}`, 400},
		{"GET", "/v1/workers", "/v1/workers", "", 200},
		{"GET", "/v1/overview", "/v1/overview", "", 200},
		{"GET", "/v1/openapi.json", "/v1/openapi.json", "", 200},
	} {
		for short, id := range map[string]string{"/A": string(runA), "/B": string(runB), "/T": string(train),
			"/C": string(compared)} {
			q.path = strings.Replace(q.path, short, "/"+id, 1)
		}
		asked[q.method+" "+q.route] = true
		w := ask(t, h, request{method: q.method, path: q.path, body: q.body})
		if w.Code != q.code || w.Body.Len() > maxBody {
			t.Errorf("%s %s: %d, %d bytes: %.200s", q.method, q.path, w.Code, w.Body.Len(), w.Body)
		}
		method, code := strings.ToLower(q.method), strconv.Itoa(w.Code)
		if _, ok := d.Paths[q.route][method].Responses[code]; !ok {
			code = "default"
		}
		at := "openapi.json#/paths/" + strings.ReplaceAll(strings.ReplaceAll(q.route, "~", "~0"), "/", "~1") + "/" + method +
			"/responses/" + code + "/content/application~1json/schema"
		s, err := c.Compile(strings.NewReplacer("{", "%7B", "}", "%7D").Replace(at))
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(w.Body)
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("%s %s: %v", q.method, q.path, err)
		}
	}
	for path, operations := range d.Paths {
		for m := range operations {
			if !asked[strings.ToUpper(m)+" "+path] {
				t.Errorf("no answer of %s %s is compared", m, path)
			}
		}
	}
}

func TestDescriptionNeedsNoToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.Handler(secret.NewValue("s3cr3t"), f.probes())
	if w := ask(t, h, request{method: http.MethodGet, path: "/v1/openapi.json"}); w.Code != http.StatusOK ||
		strings.Contains(w.Body.String(), "s3cr3t") {
		t.Errorf("%d %.100s", w.Code, w.Body)
	}
	if w := ask(t, h, request{method: http.MethodGet, path: "/v1/runs"}); w.Code != http.StatusUnauthorized {
		t.Errorf("runs answer %d", w.Code)
	}
}
