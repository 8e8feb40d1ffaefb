package api_test

import (
	"testing"

	"rollout/functions/openai"
	"rollout/shared/config"
	"rollout/shared/secret"
)

func TestMountsDoNotConflict(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	files := openai.New(d.ports, config.DefaultDeployment(), d.Service).Mount()
	h := d.Handler(secret.Value{}, d.probes(), files, d.Uploads(), d.Stream(t.Context()))
	d.uploaded("file-1", "x.jsonl", "{\"prompt\":\"a\"}\n")
	if w := ask(t, h, request{method: "POST", path: "/v1/files/file-1/check"}); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(t, h, request{method: "GET", path: "/v1/files"}); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
