package host_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/shard"
	"rollout/shared/host"
)

// TestCountsOfEventsAreThoseOfShards fails if one of the two types has a field that the
// conversions leave out.
func TestCountsOfEventsAreThoseOfShards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.Make[shard.Counts]().Draw(t, "counts")
		got := host.ShardCounts(host.EventCounts(want))
		if len(want.Machines) == 0 {
			got.Machines, want.Machines = nil, nil
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}
