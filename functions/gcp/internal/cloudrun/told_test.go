package cloudrun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"

	"rollout/shared/observe"
)

// taker is a destination that takes events, or refuses them.
type taker struct{ err error }

func (taker) Name() string                            { return "taker" }
func (t taker) Deliver(context.Context, []byte) error { return t.err }

// The alert policy reads members of the event: it is no text in the line.
func TestEventIsLoggedOnceItIsDelivered(t *testing.T) {
	t.Parallel()
	const event = `{"type":"rollout.run.paused.v1","subject":"01JD","data":{"name":"nightly","reason":"no quota"}}`
	for name, refusal := range map[string]error{"taken": nil, "refused": errors.New("no")} {
		var out bytes.Buffer
		to := Logged(taker{refusal}, observe.NewLogger(&out, observe.JSON, slog.LevelInfo))
		if err := to.Deliver(t.Context(), []byte(event)); !errors.Is(err, refusal) || to.Name() != "taker" {
			t.Errorf("%s: %v, by %s", name, err, to.Name())
		}
		if refusal != nil {
			if out.Len() > 0 {
				t.Errorf("an event that was refused is logged: %s", &out)
			}
			continue
		}
		var line struct {
			Msg   string `json:"msg"`
			Event struct {
				Type string `json:"type"`
				Data struct {
					Reason string `json:"reason"`
				} `json:"data"`
			} `json:"event"`
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Msg != Told ||
			line.Event.Type != "rollout.run.paused.v1" || line.Event.Data.Reason != "no quota" {
			t.Errorf("%v: the line is %s", err, &out)
		}
	}
}
