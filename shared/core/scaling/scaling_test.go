package scaling

import (
	"testing"

	"pgregory.net/rapid"
)

func TestDesiredMachines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		need Demand
		want int
	}{
		"no work":                              {Demand{}, 0},
		"one shard":                            {Demand{1, 1, 0, 0}, 1},
		"as many shards as justify one":        {Demand{4, 4, 0, 0}, 1},
		"one shard more":                       {Demand{5, 5, 0, 0}, 2},
		"many shards":                          {Demand{10000, 10000, 0, 0}, 8},
		"all shards are claimed":               {Demand{9, 0, 1, 0}, 0},
		"one unclaimed shard, machine is busy": {Demand{16, 1, 1, 0}, 2},
		"one unclaimed shard, idle machines":   {Demand{1, 1, 3, 0}, 1},
	} {
		if got := (Rules{ShardsPerMachine: 4, MaxMachines: 8}).DesiredMachines(c.need); got != c.want {
			t.Errorf("%s: %d machines, want %d", name, got, c.want)
		}
	}
}

// TestUnclaimedShardsGetMachinesAndMachinesGetShards checks the bounds: an
// unclaimed shard gets a machine, and every machine has a shard to claim.
func TestUnclaimedShardsGetMachinesAndMachinesGetShards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := Demand{LiveMachines: rapid.IntRange(0, 20).Draw(t, "living"),
			UnclaimedShards: rapid.IntRange(0, 500).Draw(t, "waiting")}
		n.OpenShards = n.UnclaimedShards + rapid.IntRange(0, 500).Draw(t, "held")
		r := Rules{ShardsPerMachine: rapid.IntRange(0, 50).Draw(t, "per"),
			MaxMachines: rapid.IntRange(1, 30).Draw(t, "most")}
		got := r.DesiredMachines(n)
		switch {
		case n.UnclaimedShards > 0 && got < 1:
			t.Fatalf("%+v of %+v: %d machines, and shards wait", r, n, got)
		case got > r.MaxMachines, got > n.LiveMachines+n.UnclaimedShards, n.UnclaimedShards == 0 && got != 0:
			t.Fatalf("%+v of %+v: %d machines are too many", r, n, got)
		}
		if more := r.DesiredMachines(n.And(Demand{OpenShards: 1, UnclaimedShards: 1})); more < got {
			t.Fatalf("%+v of %+v: %d machines, and %d for more work", r, n, got, more)
		}
	})
}
