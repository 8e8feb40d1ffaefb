package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestSettingsAreRead(t *testing.T) {
	t.Parallel()
	r, err := ParseRun("x.toml", []byte(`schema_version = 1
[request]
endpoint = "/v2/rerank"
omit = ["seed"]
body_model = "override"
max_tokens_field = "max_completion_tokens"
system = "be brief"
[request.extra]
user = "me"
nested = { a = [1, 2.5, true] }
[request.query]
api-version = "1"
`))
	want := &Request{Endpoint: "/v2/rerank", Omit: []string{"seed"}, BodyModel: map[string]string{"*": ""},
		MaxTokensField: "max_completion_tokens", System: "be brief", Query: map[string]string{"api-version": "1"},
		Extra: map[string]any{"user": "me", "nested": map[string]any{"a": []any{int64(1), 2.5, true}}}}
	if diff := cmp.Diff(want, r.Request); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	const canonical = `{"endpoint":"/v2/rerank","extra":{"nested":{"a":[1,2.5,true]},"user":"me"},"omit":["seed"],` +
		`"max_tokens_field":"max_completion_tokens","system":"be brief","body_model":{"*":""}}`
	if got := string(r.Request.Canonical()); got != canonical {
		t.Errorf("canonical is %s", got)
	}
	d, err := ParseDeployment("rollout.toml", []byte(`schema_version = 1
secrets = ["azure"]
[engine]
url = "http://h/v1"
headers = { api-key = "secret:azure", X-Team = "a" }
body_model = { "org/m" = "m" }
[defaults.request]
body_model = "override"
`))
	if err != nil || d.Engine.Headers["api-key"] != "secret:azure" || d.Engine.BodyModel["org/m"] != "m" ||
		d.Defaults.Request.BodyModel["*"] != "" || d.Engine.URL != "http://h/v1" {
		t.Errorf("%+v, %v", d.Engine, err)
	}
	if DefaultRun().Request.Canonical() != nil || (&Request{}).Canonical() != nil {
		t.Error("a run without settings has some")
	}
}

func TestBadRequestSettingsAreReported(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		`endpoint = "chats"`: `"chats" is not an endpoint: use one of chat, completions`,
		`omit = ["model"]`:   `"model" can't be left out`,
		`system = "s"` + "\n" + `endpoint = "embeddings"`:            "has no system message",
		`body_model = "any"`:                                         `must be "override"`,
		`max_tokens_field = "seed"`:                                  "not a name for the longest answer",
		"[request.extra]\nmodel = \"x\"":                             "set model.uri",
		"[request.extra]\nstream = false":                            "request.omit",
		"[request.extra]\nat = 2026-01-01":                           "not a JSON value",
		"[request.extra]\nx = nan":                                   "not a JSON value",
		"[request.headers]\nHost = \"x\"":                            "set by rollout",
		"[request.headers]\n\"a b\" = \"x\"":                         "not a header's name",
		"[request.headers]\na = \"x\\ny\"":                           "control characters",
		"[request.headers]\na = \"secret:key\"":                      "only a deployment's config names secrets",
		"[request.headers]\na = 1":                                   "must be a string",
		"[request.extra]\nx = \"" + strings.Repeat("a", 9000) + "\"": "at most 8192",
		"endpont = \"chat\"":                                         "did you mean endpoint",
	} {
		_, err := ParseRun("x.toml", []byte("schema_version = 1\n[request]\n"+file+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", file, err, want)
		}
	}
	_, err := ParseDeployment("rollout.toml", []byte("schema_version = 1\n[engine]\nbody_model = \"override\"\n"))
	if err == nil || !strings.Contains(err.Error(), "rollout.toml:3: engine.body_model: must be a table of the server's") {
		t.Errorf("an engine accepts rows of all models: %v", err)
	}
	_, err = ParseDeployment("rollout.toml", []byte("schema_version = 1\n[engine]\nheaders = { a = \"secret:key\" }\n"))
	if err == nil || !strings.Contains(err.Error(), "not in the allowlist") {
		t.Errorf("a secret that is not allowed: %v", err)
	}
	_, err = ParseRun("x.toml", []byte("schema_version = 1\nkind = \"train\"\n[request]\nsystem = \"x\"\n"))
	if err == nil || !strings.Contains(err.Error(), "applies only to prompts") {
		t.Errorf("a training: %v", err)
	}
}

func TestRunsSettingsCountOverTheEngines(t *testing.T) {
	t.Parallel()
	base := Request{Endpoint: "chat", Extra: map[string]any{"a": 1, "b": 2}, Omit: []string{"x"}, System: "s",
		Headers: map[string]string{"h": "1"}, BodyModel: map[string]string{"m": "n"}}
	got := (&Request{Endpoint: "responses", Extra: map[string]any{"b": 3}, Omit: []string{"y"}}).Over(base)
	want := Request{Endpoint: "responses", Extra: map[string]any{"a": 1, "b": 3}, Omit: []string{"x", "y"}, System: "s",
		Headers: map[string]string{"h": "1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if base.Extra["b"] != 2 {
		t.Error("the engine's settings changed")
	}
	var none *Request
	if got := none.Over(base); got.Endpoint != "chat" || got.BodyModel != nil {
		t.Errorf("%+v", got)
	}
}
