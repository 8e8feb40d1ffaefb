package process

import (
	"math"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
)

func TestFixedInFlightMustFitOpenFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		inFlight int
		limit    uint64
		want     []string // of the error; none if it fits
	}{
		{64, 1024, nil},
		{192, 256, nil},
		{193, 256,
			[]string{"in_flight = 193", "257 open files", "may have 256", "ulimit -n 257", "in_flight of [worker] to 192"}},
		{64, 64, []string{"in_flight = 64", "128 open files", "may have 64", "ulimit -n 128"}},
		{4096, math.MaxUint64, nil}, // no limit
	} {
		err := fitFiles(c.inFlight, c.limit)
		if len(c.want) == 0 && err != nil || len(c.want) > 0 && !fault.Is(err, fault.Invalid) {
			t.Errorf("%d in flight under a limit of %d: %v", c.inFlight, c.limit, err)
		}
		for _, text := range c.want {
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%d in flight under a limit of %d: %v, want %q", c.inFlight, c.limit, err, text)
			}
		}
	}
}

func TestMaxInFlightIsBoundedByOpenFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		servers int
		limit   uint64
		want    int // 0: not even MinInFlight fits
	}{
		{1, 1 << 20, 512}, {1, 256, 192}, {4, 1024, 240}, {1, 68, 4}, {2, 68, 0}, {1, math.MaxUint64, 512},
	} {
		w, err := boundFiles(config.DefaultWorker(), c.servers, c.limit)
		if (err == nil) != (c.want > 0) || err == nil && w.MaxInFlight != c.want {
			t.Errorf("%d servers under a limit of %d: %d, %v", c.servers, c.limit, w.MaxInFlight, err)
		}
	}
}
