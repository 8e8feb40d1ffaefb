package probes_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rollout/shared/clock"
	"rollout/shared/observe"
	"rollout/shared/observe/probes"
)

func TestProbesDistinguishAliveAndReady(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) error { return nil }
	broken := func(context.Context) error { return errors.New("open /home/ann/state: permission denied") }
	unregistered := observe.NewLiveness(clock.System{}, time.Minute, 1)
	for name, c := range map[string]struct {
		v             probes.Probes
		alive, ready  int
		say, mustHide string
	}{
		"alive and ready": {probes.Probes{Ping: ok}, 200, 200, `{"alive":true,"ready":true,"why":[]}`, ""},
		"unregistered worker": {probes.Probes{Ping: ok, Liveness: unregistered}, 200, 503,
			`{"alive":true,"ready":false,"why":["0 of 1 workers are registered"]}`, ""},
		"unreachable store": {probes.Probes{Ping: broken}, 503, 503,
			`"why":["the document store does not answer"]`, "ann"},
		"unreachable store and unregistered worker": {probes.Probes{Ping: broken, Liveness: unregistered}, 503, 503,
			`"why":["0 of 1`, "ann"},
		"no metrics": {probes.Probes{Ping: ok}, 200, 200, "", ""},
	} {
		for path, want := range map[string]int{"/healthz": c.alive, "/readyz": c.ready, "/metrics": 404, "/other": 404} {
			w := httptest.NewRecorder()
			c.v.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			body := w.Body.String()
			leaks := c.mustHide != "" && strings.Contains(body, c.mustHide)
			if w.Code != want || want != 404 && !strings.Contains(body, c.say) || leaks {
				t.Errorf("%s: %s returns %d %s, want %d %s", name, path, w.Code, body, want, c.say)
			}
		}
	}
}
