package coordinate_test

import (
	"fmt"
	"slices"
	"testing"

	"rollout/events"
	"rollout/functions/coordinate"
)

// OnSent reports the open shards whenever some are sent, and at no other event.
func TestOnSentIsCalledWhenWorkIsSent(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	var calls []string
	c := newCoordinator(d.Ports, coordinate.Options{Hooks: coordinate.Hooks{
		OnSent: func(pool string, open int) { calls = append(calls, fmt.Sprint(pool, " ", open)) },
	}})
	for _, step := range []struct {
		event events.Payload
		want  []string
	}{
		{look, []string{"default 3"}},
		{look, nil},
		{done(1, 2), nil},
		{events.ShardLost{Run: string(id), Shard: 0, Worker: "w1"}, []string{"default 2"}},
		{done(0, 2), nil},
		{done(2, 2), nil},
	} {
		calls = nil
		d.apply(c, step.event)
		if !slices.Equal(calls, step.want) {
			t.Errorf("%+v: called with %v, want %v", step.event, calls, step.want)
		}
	}
}
