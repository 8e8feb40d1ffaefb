package api

import (
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

// RouteMethods returns the methods of each path that answers with JSON.
func (s *Service) RouteMethods() map[string][]string {
	out := map[string][]string{}
	for path, m := range s.routes() {
		out[path] = slices.Sorted(maps.Keys(m))
	}
	return out
}

// described is an endpoint of the description: what it answers, and what it is asked with.
type described struct {
	summary string
	code    string
	answer  any // of the type that is answered; nil for any JSON object
	body    any // of the type of the request's body; nil without one
	query   []string
}

// Types that stand for raw JSON in answers.
type (
	runsAnswer struct {
		Runs    []status.Status `json:"runs"`
		More    int             `json:"more,omitempty"`
		Expired int             `json:"expired,omitempty"`
		Next    *identity.RunID `json:"next"`
		Ended   int             `json:"ended"`
	}
	overviewAnswer struct {
		runsAnswer
		Workers     []status.WorkerStatus `json:"workers"`
		MoreWorkers int                   `json:"more_workers"`
		Queues      []status.QueueStatus  `json:"queues"`
		Uploads     []Upload              `json:"uploads"`
		MoreUploads int                   `json:"more_uploads"`
	}
	workersAnswer struct {
		Workers []status.WorkerStatus `json:"workers"`
		More    int                   `json:"more"`
	}
	historyAnswer struct {
		Start  *time.Time     `json:"start"`
		Points []HistoryPoint `json:"points"`
	}
	errorsAnswer struct {
		Classes []diagnosis.FailedClass `json:"classes"`
		Finish  map[string]int          `json:"finish_reasons"`
	}
	itemsAnswer struct {
		Items   []diagnosis.ListedItem `json:"items"`
		Next    *string                `json:"next"`
		Scanned uint64                 `json:"scanned"`
		Unread  uint64                 `json:"unread"`
		Of      uint64                 `json:"of"`
	}
	itemDetailAnswer struct {
		Item      uint64                    `json:"index"`
		ID        string                    `json:"id"`
		State     diagnosis.ListedState     `json:"state"`
		Request   *diagnosis.ShownRequest   `json:"request"`
		Answer    *itemAnswer               `json:"answer"`
		Error     *itemError                `json:"error"`
		Score     *float64                  `json:"score"`
		Scores    map[string]grade.RowScore `json:"scores"`
		Attempts  uint64                    `json:"attempts"`
		Timings   itemTimings               `json:"timings"`
		Where     diagnosis.ItemReport      `json:"where"`
		Truncated []string                  `json:"truncated"`
	}
	rolloutAnswer struct {
		Steps    []RolloutStep      `json:"steps"`
		Guidance []GuidanceRevision `json:"guidance"`
	}
	errorAnswer struct {
		Error struct {
			Kind    string `json:"kind"`
			Message string `json:"message"`
		} `json:"error"`
	}
	reasonBody struct {
		Reason string `json:"reason,omitempty"`
	}
	submitBody struct {
		Key string `json:"key"`
	}
	retryBody struct {
		Only          []string `json:"only,omitempty"`
		FinishReasons []string `json:"finish_reasons,omitempty"`
		Trials        []string `json:"trials,omitempty"`
		Set           []string `json:"set,omitempty"`
	}
	amendBody struct {
		Replications int              `json:"replications,omitempty"`
		Variants     []config.Variant `json:"variants,omitempty"`
		Set          []string         `json:"set,omitempty"`
		DryRun       bool             `json:"dry_run,omitempty"`
	}
)

// endpoints are the endpoints of the description, by method and path.
var endpoints = map[string]described{
	"GET /v1/runs": {"Open runs first, then the ended ones", "200", runsAnswer{}, nil,
		[]string{"limit", "since", "after", "phase"}},
	"POST /v1/runs":     {"Announce an object that is in the bucket", "202", Submission{}, submitBody{}, nil},
	"GET /v1/runs/{id}": {"The status of a run", "200", status.Status{}, nil, nil},
	"GET /v1/runs/{id}/explain": {"Why a run is slow or stuck", "200", diagnosis.Explanation{}, nil,
		[]string{"item"}},
	"GET /v1/runs/{id}/history":       {"How a run went on", "200", historyAnswer{}, nil, nil},
	"GET /v1/runs/{id}/errors":        {"The classes of failed items", "200", errorsAnswer{}, nil, nil},
	"GET /v1/runs/{id}/items/{index}": {"One item", "200", itemDetailAnswer{}, nil, nil},
	"GET /v1/runs/{id}/items": {"Items in the order of the input", "200", itemsAnswer{}, nil,
		[]string{"limit", "after", "class", "finish_reason", "min_score", "max_score", "q"}},
	"GET /v1/runs/{id}/rollout":  {"Batches and guidance of a rollout", "200", rolloutAnswer{}, nil, nil},
	"GET /v1/runs/{id}/training": {"Losses and snapshots of a training", "200", TrainingDetail{}, nil, nil},
	"GET /v1/runs/{id}/trials/active": {"The trials that workers hold, and how far the run is", "200",
		diagnosis.TrialsInFlight{}, nil, []string{"after"}},
	"GET /v1/runs/{id}/trials": {"What the trials of a run have come to, by task", "200", diagnosis.TrialGrid{}, nil,
		[]string{"after"}},
	"POST /v1/runs/{id}/pause":  {"Pause a run", "202", status.Status{}, reasonBody{}, nil},
	"POST /v1/runs/{id}/resume": {"Resume a run", "202", status.Status{}, reasonBody{}, nil},
	"POST /v1/runs/{id}/stop":   {"Stop a run", "202", status.Status{}, reasonBody{}, nil},
	"POST /v1/runs/{id}/retry":  {"Ask items of an ended run again", "202", Retry{}, retryBody{}, nil},
	"POST /v1/runs/{id}/amend":  {"Add trials to those of an ended run", "202", Amended{}, amendBody{}, nil},
	"GET /v1/workers":           {"The workers, the living first", "200", workersAnswer{}, nil, nil},
	"GET /v1/overview": {"Runs, workers, queues and uploads", "200", overviewAnswer{}, nil,
		[]string{"limit", "since", "after", "phase"}},
	"GET /v1/openapi.json": {"This description", "200", nil, nil, nil},
}

type object = map[string]any

// Describe returns the description of the endpoints, as openapi.json has it.
func Describe() ([]byte, error) {
	d := describer{schemas: object{}, of: map[reflect.Type]string{}}
	paths := object{}
	failure := object{"description": "An error", "content": object{"application/json": object{
		"schema": d.schema(reflect.TypeFor[errorAnswer]())}}}
	for _, at := range slices.Sorted(maps.Keys(endpoints)) {
		e := endpoints[at]
		method, path, _ := strings.Cut(at, " ")
		answer := object{"type": "object"}
		if e.answer != nil {
			answer = d.schema(reflect.TypeOf(e.answer))
		}
		operation := object{"summary": e.summary, "responses": object{
			e.code:    object{"description": e.summary, "content": object{"application/json": object{"schema": answer}}},
			"default": failure}}
		var parameters []any
		for part := range strings.SplitSeq(path, "/") {
			if name, ok := strings.CutPrefix(part, "{"); ok {
				parameters = append(parameters, object{"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true,
					"schema": object{"type": "string"}})
			}
		}
		for _, name := range e.query {
			parameters = append(parameters, object{"name": name, "in": "query", "schema": object{"type": "string"}})
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if e.body != nil {
			operation["requestBody"] = object{"content": object{"application/json": object{
				"schema": d.schema(reflect.TypeOf(e.body))}}}
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = operation
	}
	b, err := json.MarshalIndent(object{"openapi": "3.1.0", "info": object{"title": "rollout", "version": "1",
		"description": "Answers have at most 64 KiB. One that had to be shortened has \"shortened\": true. " +
			"Fields are added and never renamed."},
		"paths": paths, "security": []any{object{"token": []any{}}, object{}},
		"components": object{"schemas": d.schemas, "securitySchemes": object{
			"token": object{"type": "http", "scheme": "bearer"}}}}, "", " ")
	return append(b, '\n'), err
}

// describer makes schemas of types.
type describer struct {
	schemas object
	of      map[reflect.Type]string // the names of those that have one
}

// asText are types whose JSON is not that of their structure.
var asText = map[reflect.Type]object{
	reflect.TypeFor[time.Time]():       {"type": "string", "format": "date-time"},
	reflect.TypeFor[json.RawMessage](): {},
	reflect.TypeFor[fault.Class]():     {"type": "string"},
}

// schema returns the schema of a type. Structures with a name stand in schemas.
func (d describer) schema(t reflect.Type) object {
	if s, ok := asText[t]; ok {
		return maps.Clone(s)
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := d.schema(t.Elem())
		if kind, ok := s["type"].(string); ok {
			s["type"] = []any{kind, "null"}
			return s
		}
		return object{"anyOf": []any{s, object{"type": "null"}}}
	case reflect.Slice, reflect.Array:
		return object{"type": []any{"array", "null"}, "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": []any{"object", "null"}, "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		return d.structure(t)
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Interface:
		return object{}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	}
	return object{"type": "integer"}
}

func capitalized(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

func (d describer) structure(t reflect.Type) object {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) && t != reflect.TypeFor[status.Items]() {
		return object{}
	}
	if name, ok := d.of[t]; ok {
		return object{"$ref": "#/components/schemas/" + name}
	}
	name := strings.TrimSuffix(capitalized(t.Name()), "Answer")
	if _, taken := d.schemas[name]; taken {
		name = capitalized(path.Base(t.PkgPath())) + name
	}
	s := object{"type": "object"}
	if t.Name() != "" {
		d.of[t], d.schemas[name] = name, s
	}
	properties, required := object{"shortened": object{"type": "boolean"}}, []any{}
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && tag == "" || !f.IsExported() || tag == "-" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		if _, shadowed := properties[tag]; shadowed {
			continue
		}
		properties[tag] = d.schema(f.Type)
		if !strings.Contains(options, "omit") {
			required = append(required, tag)
		}
	}
	if t == reflect.TypeFor[status.Items]() {
		properties["at_fault"] = object{"type": "integer", "minimum": 0}
	}
	s["properties"] = properties
	if len(required) > 0 {
		s["required"] = required
	}
	if t.Name() == "" {
		return s
	}
	return object{"$ref": "#/components/schemas/" + name}
}
