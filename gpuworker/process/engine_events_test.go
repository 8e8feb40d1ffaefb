package process

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/gpuworker/engine"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// scriptedEngine is an engine whose calls return the next error each.
type scriptedEngine struct {
	engine.Engine
	errs []error
}

func (s *scriptedEngine) next() error {
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

func (s *scriptedEngine) Answer(context.Context, engine.Request, func()) (engine.Answer, error) {
	return engine.Answer{Text: "a"}, s.next()
}
func (s *scriptedEngine) Ready(context.Context) (string, error) { return "m", s.next() }

func crash(server, start string) error {
	return fault.WithKind(fault.Unavailable, &engine.CrashError{Server: server, Start: start}, "post")
}

func TestEngineEventsReportEachStartAndCrashOnce(t *testing.T) {
	t.Parallel()
	down := fault.New(fault.Unavailable, "connection refused")
	for name, c := range map[string]struct {
		calls string // r is a call of Ready, a of Answer
		errs  []error
		want  []string
	}{
		"ready":                  {"rra", []error{nil, nil, nil}, []string{"engine_started"}},
		"ready late":             {"rrr", []error{down, down, nil}, []string{"engine_started"}},
		"down, then ready again": {"rrr", []error{nil, down, nil}, []string{"engine_started", "engine_started"}},
		"crash with three requests": {"raaar", []error{nil, crash("s", "1"), crash("s", "1"), crash("s", "1"), nil},
			[]string{"engine_started", "engine_died 1", "engine_started"}},
		"two crashes": {"raa", []error{nil, crash("s", "1"), crash("s", "2")},
			[]string{"engine_started", "engine_died 1", "engine_died 2"}},
		"late error of the old start": {"raraa", []error{nil, crash("s", "1"), nil, crash("s", "1"), nil},
			[]string{"engine_started", "engine_died 1", "engine_started"}},
		"server names no starts": {"raarar", []error{nil, crash("s", ""), crash("s", ""), nil, crash("s", ""), nil},
			[]string{"engine_started", "engine_died ", "engine_started", "engine_died ", "engine_started"}},
		"two servers crash": {"raa", []error{nil, crash("s", "1"), crash("t", "1")},
			[]string{"engine_started", "engine_died 1", "engine_died 1"}},
		"broken connection": {"ra", []error{nil, down}, []string{"engine_started"}},
	} {
		var out bytes.Buffer
		log := slog.New(slog.DiscardHandler)
		p := host.Ports{Log: log, Watch: observe.Observer{Events: observe.NewEmitter(&out, clock.System{}, log)}}
		notice := newModelNotice(nil, config.Deployment{}, "", log)
		e := observeEngine(&scriptedEngine{errs: c.errs}, "http://me:s3cr3t@host/v1", p, notice)
		for i, call := range c.calls {
			want, got := c.errs[i], error(nil)
			if call == 'r' {
				_, got = e.Ready(t.Context())
			} else {
				_, got = e.Answer(t.Context(), engine.Request{}, func() {})
			}
			if got != want {
				t.Errorf("%s: call %d returns %v, want %v", name, i, got, want)
			}
		}
		if got := eventNames(t, &out); !cmp.Equal(got, c.want) {
			t.Errorf("%s: events %q, want %q", name, got, c.want)
		}
	}
}

func eventNames(t *testing.T, out *bytes.Buffer) (names []string) {
	t.Helper()
	if strings.Contains(out.String(), "s3cr3t") {
		t.Errorf("the events contain the password:\n%s", out)
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
