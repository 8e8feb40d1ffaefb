package grading

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"rollout/gpuworker/plugin/wire"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
)

// plugins is a plugin that crashes of some answers and refuses others.
type plugins struct {
	mu    sync.Mutex
	sizes []int // of batches
	down  bool
}

// Call implements Plugins: it scores 1 for the answer "right".
func (p *plugins) Call(_ context.Context, _, _ string, payload []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var r request
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, err
	}
	p.sizes = append(p.sizes, len(r.Items))
	scores := []string{}
	for _, it := range r.Items {
		switch {
		case p.down || strings.Contains(it.Answer, "crash"):
			return nil, fault.New(fault.Unavailable, "the plugin's process broke off")
		case strings.Contains(it.Answer, "hang"):
			return nil, fault.WithKind(fault.Unavailable, context.DeadlineExceeded, "the plugin took too long")
		case strings.Contains(it.Answer, "refuse"):
			return nil, &fault.Error{Kind: fault.Invalid, Err: &wire.RefusedError{Reason: "not this"}}
		case strings.Contains(it.Answer, "trap"):
			return nil, fault.New(fault.Invalid, "the module trapped")
		case strings.Contains(it.Answer, "nonsense"):
			return nil, &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("%w: no", wire.ErrMalformed)}
		}
		scores = append(scores, map[bool]string{true: "1", false: "0"}[it.Answer == "right"])
	}
	return []byte(`{"scores":[` + strings.Join(scores, ",") + `]}`), nil
}

// Check implements Plugins.
func (*plugins) Check(pin record.PluginPin) error {
	if pin.Version != "1" {
		return fault.New(fault.Denied, "another version")
	}
	return nil
}

func connectPlugin(t *testing.T, p Plugins) *Services {
	t.Helper()
	s, err := Connect(t.Context(), nil, Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Plugins: p,
		PluginConfigs: map[string]config.Plugin{"words": config.DefaultPlugin()}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An answer that makes the plugin fail costs no other answer of its batch its score.
func TestAnswersThatAPluginFailsOnHaveNoScoreAlone(t *testing.T) {
	t.Parallel()
	for answer, cause := range map[string]grade.Cause{"crash": grade.Unavailable, "hang": grade.TimedOut,
		"refuse": grade.Refused, "trap": grade.Refused, "nonsense": grade.Malformed} {
		synctest.Test(t, func(t *testing.T) {
			p := &plugins{}
			s := connectPlugin(t, p).ofPlugin["words"]
			got := s.Grade(t.Context(), cases("right", "wrong", answer, "right"))
			want := []grade.Score{{Value: 1}, {}, grade.Missing(cause), {Value: 1}}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %v, want %v (batches of %v)", answer, got, want, p.sizes)
			}
		})
	}
}

func TestAPluginThatIsDownGivesNoScores(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := connectPlugin(t, &plugins{down: true}).ofPlugin["words"]
		got := s.Grade(t.Context(), cases("right", "wrong"))
		for _, score := range got {
			if score.Cause != grade.Unavailable {
				t.Errorf("%v", got)
			}
		}
	})
}

func TestPluginsAreGradersOfARun(t *testing.T) {
	t.Parallel()
	grades := []config.Grade{{Name: "a", Kind: config.GradePlugin, Plugin: "words"},
		{Name: "b", Kind: config.GradePlugin, Plugin: "other", Weight: new(float64)}}
	synctest.Test(t, func(t *testing.T) {
		g, err := connectPlugin(t, &plugins{}).Graders(grades)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan []byte, 1)
		g.Grade(t.Context(), []byte(`{"prompt":"x"}`), cases("right"), func(members []byte) { done <- members })
		want := `"score":1,"scores":{"a":{"score":1},"b":{"score":null,"cause":"unconfigured"}}`
		if got := string(<-done); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

func TestRunsArePinnedToTheirPlugins(t *testing.T) {
	t.Parallel()
	s := connectPlugin(t, &plugins{})
	var none *Services
	for version, denied := range map[string]bool{"1": false, "2": true} {
		pins := []record.PluginPin{{Name: "words", Version: version}}
		if err := s.CheckPins(pins); fault.Is(err, fault.Denied) != denied {
			t.Errorf("%s: %v", version, err)
		}
		if err := none.CheckPins(pins); !fault.Is(err, fault.Denied) {
			t.Errorf("a worker without plugins: %v", err)
		}
	}
	if err := none.CheckPins(nil); err != nil {
		t.Error(err)
	}
}
