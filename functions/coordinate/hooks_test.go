package coordinate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/input"
)

// Machines are wanted for the shards that are open then, whenever some are
// sent, and for nothing else that happens to a run.
func TestWhoeverRaisesFleetsHearsOfWorkThatWasSent(t *testing.T) {
	t.Parallel()
	d := newFixture(t, 3, 2)
	var told []string
	c := coordinate.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), host.Timings(config.DefaultDeployment().Health), 10*time.Second,
		coordinate.Hooks{OnSent: func(pool string, open int) { told = append(told, fmt.Sprint(pool, " ", open)) }})
	for _, step := range []struct {
		happens events.Payload
		want    []string
	}{
		{look, []string{"default 3"}},
		{look, nil},
		{done(1, 2), nil},
		{events.ShardLost{Run: string(id), Shard: 0, Worker: "w1"}, []string{"default 2"}},
		{done(0, 2), nil},
		{done(2, 2), nil},
	} {
		told = nil
		d.tell(c, step.happens)
		if !slices.Equal(told, step.want) {
			t.Errorf("%+v: told of %v, want %v", step.happens, told, step.want)
		}
	}
}
