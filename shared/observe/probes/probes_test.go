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

func TestLivingAndBeingReadyAreTwoThings(t *testing.T) {
	t.Parallel()
	ok := func(context.Context) error { return nil }
	broken := func(context.Context) error { return errors.New("open /home/ann/state: permission denied") }
	waits := observe.NewLiveness(clock.System{}, time.Minute, 1)
	for name, c := range map[string]struct {
		v             probes.Probes
		alive, ready  int
		say, mustHide string
	}{
		"all is well":            {probes.Probes{Ping: ok}, 200, 200, `{"alive":true,"ready":true,"why":[]}`, ""},
		"its worker waits":       {probes.Probes{Ping: ok, Liveness: waits}, 200, 503, `{"alive":true,"ready":false,"why":["0 of 1 workers are registered"]}`, ""},
		"the store is away":      {probes.Probes{Ping: broken}, 503, 503, `"why":["the document store does not answer"]`, "ann"},
		"and so is its worker":   {probes.Probes{Ping: broken, Liveness: waits}, 503, 503, `"why":["0 of 1`, "ann"},
		"metrics are not served": {probes.Probes{Ping: ok}, 200, 200, "", ""},
	} {
		for path, want := range map[string]int{"/healthz": c.alive, "/readyz": c.ready, "/metrics": 404, "/other": 404} {
			w := httptest.NewRecorder()
			c.v.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			body := w.Body.String()
			if w.Code != want || want != 404 && !strings.Contains(body, c.say) || c.mustHide != "" && strings.Contains(body, c.mustHide) {
				t.Errorf("%s: %s answers %d %s, want %d %s", name, path, w.Code, body, want, c.say)
			}
		}
	}
}
