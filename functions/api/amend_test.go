package api

import (
	"encoding/json"
	"testing"

	"rollout/shared/config"
)

func TestNewVariantsHaveDefaultLimits(t *testing.T) {
	t.Parallel()
	some := config.DefaultAgentLimits()
	some.Seconds, some.Requests = 5, 0
	for body, want := range map[string]*config.AgentLimits{
		`{"name":"v","limits":{"seconds":5,"requests":0}}`: &some,
		`{"name":"v"}`:               nil,
		`{"name":"v","limits":null}`: nil,
	} {
		var v newVariant
		err := json.Unmarshal([]byte(body), &v)
		if err != nil || (v.Limits == nil) != (want == nil) || want != nil && *v.Limits != *want || v.Name != "v" {
			t.Errorf("%s: %+v, %v, want %+v", body, v, err, want)
		}
	}
	if err := json.Unmarshal([]byte(`{"name":"v","nam":1}`), new(newVariant)); err == nil {
		t.Error("an unknown member is taken")
	}
}
