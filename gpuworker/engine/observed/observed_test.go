package observed_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/observed"
	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// scripted is an engine whose every call ends with the next error.
type scripted struct {
	engine.Engine
	errs []error
}

func (s *scripted) next() error {
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

func (s *scripted) Answer(context.Context, engine.Request, func()) (engine.Answer, error) {
	return engine.Answer{Text: "a"}, s.next()
}
func (s *scripted) Ready(context.Context) (string, error) { return "m", s.next() }

func died(server, start string) error {
	return fault.WithKind(fault.Unavailable, &engine.CrashError{Server: server, Start: start}, "post")
}

func TestADeathIsToldOnceAndSoIsEveryStart(t *testing.T) {
	t.Parallel()
	away := fault.New(fault.Unavailable, "connection refused")
	for name, c := range map[string]struct {
		calls string // r asks whether it is ready, a for an answer
		errs  []error
		want  []string
	}{
		"it is up":                        {"rra", []error{nil, nil, nil}, []string{"engine_started"}},
		"it comes up late":                {"rrr", []error{away, away, nil}, []string{"engine_started"}},
		"it goes away and comes back":     {"rrr", []error{nil, away, nil}, []string{"engine_started", "engine_started"}},
		"three requests die with it":      {"raaar", []error{nil, died("s", "1"), died("s", "1"), died("s", "1"), nil}, []string{"engine_started", "engine_died 1", "engine_started"}},
		"it dies again":                   {"raa", []error{nil, died("s", "1"), died("s", "2")}, []string{"engine_started", "engine_died 1", "engine_died 2"}},
		"a late request names the old":    {"raraa", []error{nil, died("s", "1"), nil, died("s", "1"), nil}, []string{"engine_started", "engine_died 1", "engine_started"}},
		"it does not name its starts":     {"raarar", []error{nil, died("s", ""), died("s", ""), nil, died("s", ""), nil}, []string{"engine_started", "engine_died ", "engine_started", "engine_died ", "engine_started"}},
		"two servers die":                 {"raa", []error{nil, died("s", "1"), died("t", "1")}, []string{"engine_started", "engine_died 1", "engine_died 1"}},
		"a broken connection is no death": {"ra", []error{nil, away}, []string{"engine_started"}},
	} {
		var out bytes.Buffer
		log := slog.New(slog.DiscardHandler)
		p := host.Ports{Log: log, Watch: observe.Observer{Events: observe.NewEmitter(&out, clock.System{}, log)}}
		e := observed.New(&scripted{errs: c.errs}, "http://me:s3cr3t@host/v1", p)
		for i, call := range c.calls {
			want, got := c.errs[i], error(nil)
			if call == 'r' {
				_, got = e.Ready(t.Context())
			} else {
				_, got = e.Answer(t.Context(), engine.Request{}, func() {})
			}
			if got != want {
				t.Errorf("%s: call %d ends with %v, want %v", name, i, got, want)
			}
		}
		if got := told(t, &out); !cmp.Equal(got, c.want) {
			t.Errorf("%s: told %q, want %q", name, got, c.want)
		}
	}
}

func told(t *testing.T, out *bytes.Buffer) (names []string) {
	t.Helper()
	if strings.Contains(out.String(), "s3cr3t") {
		t.Errorf("a password is told:\n%s", out)
	}
	for line := range strings.Lines(out.String()) {
		var e struct {
			Event string
			Start *string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Start != nil {
			e.Event += " " + *e.Start
		}
		names = append(names, e.Event)
	}
	return names
}
