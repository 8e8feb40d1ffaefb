package process

import (
	"testing"

	"rollout/shared/config"
)

func TestSharedEngineName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		engine config.Engine
		want   string
	}{
		{config.Engine{}, ""},
		{config.Engine{URL: "mock"}, ""},
		{config.Engine{URL: "tiny"}, ""},
		{config.Engine{URL: "http://gpu7:8000/v1"}, "gpu7:8000/v1"},
		{config.Engine{URL: "http://user:secret@gpu7:8000/v1"}, "gpu7:8000/v1"},
		{config.Engine{URL: "http://127.0.0.1:8000/v1"}, "here/127.0.0.1:8000/v1"},
		{config.Engine{URL: "http://localhost:8000"}, "here/localhost:8000"},
		{config.Engine{URL: "http://[::1]:8000"}, "here/[::1]:8000"},
		{config.Engine{URLs: []string{"http://b/v1", "http://a/v1"}}, "a/v1 b/v1"},
	} {
		if got := sharedEngineName(c.engine, "here"); got != c.want {
			t.Errorf("%v is named %q, want %q", c.engine, got, c.want)
		}
	}
}
