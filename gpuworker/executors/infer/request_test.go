package infer_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/executors/infer"
	"rollout/shared/config"
	"rollout/shared/input/inputtest"
)

// The requests of a run have what its config and the engine's say, and rows that the
// endpoint can't take fail alone.
func TestRequestsHaveTheSettingsOfRunAndEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := inputtest.Manifest(0)
		m.Config.Request = &config.Request{Endpoint: "chat", System: "be brief", Extra: map[string]any{"x": int64(1)}}
		d := newFixture(t, m, `{"prompt":"a","temperature":0}`+"\n"+`{"query":"q","documents":["b"]}`+"\n", nil)
		d.work(time.Minute, func(c *infer.Config) { c.Request = config.Request{Omit: []string{"seed"}} })
		want := `"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"a"}],"temperature":0,"x":1}`
		if len(d.engine.requests) != 1 || !strings.HasSuffix(d.engine.requests[0].body, want) {
			t.Errorf("requests %+v, want one that ends in %s", d.engine.requests, want)
		}
		if c := d.shard().Counts; c.OK != 1 || c.ByClass["refused"] != 1 {
			t.Errorf("counts %+v", c)
		}
	})
}
