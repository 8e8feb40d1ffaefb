package figures_test

import (
	"math"
	"testing"
	"time"

	"rollout/shared/figures"
)

func TestCountsHaveSeparators(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", -1234567: "-1,234,567",
		math.MaxInt64: "9,223,372,036,854,775,807", math.MinInt64: "-9,223,372,036,854,775,808"} {
		if got := figures.Count(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := figures.Count(uint64(math.MaxUint64)); got != "18,446,744,073,709,551,615" {
		t.Error(got)
	}
}

func TestOneThingIsSingular(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0 shards", 1: "1 shard", 2: "2 shards", 1001: "1,001 shards"} {
		if got := figures.Of(n, "shard"); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{1: "1 item is", 2: "2 items are"} {
		if got := figures.OfMany(n, "item is", "items are"); got != want {
			t.Error(got)
		}
	}
}

func TestNumbersThatRoundToZeroHaveNoSign(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{math.Copysign(0, -1): "0", -0.2: "0", 0: "0", 1234.5: "1,235", -3.7: "-4",
		1e300: "4,611,686,018,427,387,904"} {
		if got := figures.Whole(x); got != want {
			t.Errorf("Whole(%v): %s, want %s", x, got, want)
		}
	}
	for x, want := range map[float64]string{math.Copysign(0, -1): "0", -1e-12: "0", 0.449: "0.45", 0.00012: "0.00012",
		0.999: "1.0", 1: "1.0", 12.34: "12.3", 99.96: "100", 1234.4: "1,234", -0.5: "-0.5"} {
		if got := figures.Short(x); got != want {
			t.Errorf("Short(%v): %s, want %s", x, got, want)
		}
	}
	if a, b := figures.Whole(math.NaN()), figures.Short(math.Inf(1)); a != "-" || b != "-" {
		t.Error(a, b)
	}
}

func TestDollarsAreReadable(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]string{0: "$0.00", 1e-12: "$0.00", 1e-6: "$0.000001", 0.0042: "$0.0042",
		0.099: "$0.099", 0.0996: "$0.10", 0.1: "$0.10", 12.3: "$12.30", 999.99: "$999.99", 999.999: "$1,000",
		1500: "$1,500", math.Inf(1): "$-"} {
		if got := figures.Dollars(x); got != want {
			t.Errorf("%v: %s, want %s", x, got, want)
		}
	}
}

func TestOnlyAllIsHundredPercent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		part, all uint64
		want      string
	}{{0, 0, "-"}, {0, 5, "0%"}, {999, 1000, "99%"}, {5, 5, "100%"}, {9, 5, "100%"}, {1 << 62, 1 << 63, "50%"}} {
		if got := figures.Percent(c.part, c.all); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.part, c.all, got, c.want)
		}
	}
	if got := figures.Share(0.983); got != "98%" {
		t.Error(got)
	}
}

func TestDurationsHaveAtMostTwoUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{-time.Hour: "0s", 0: "0s", 850 * time.Millisecond: "850ms",
		42 * time.Second: "42s", 185 * time.Second: "3m05s", 2*time.Hour + 10*time.Minute: "2h10m", 76 * time.Hour: "3d04h"} {
		if got := figures.Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0.0s", 310 * time.Millisecond: "0.3s",
		9*time.Second + 980*time.Millisecond: "10s", 42 * time.Second: "42s"} {
		if got := figures.Elapsed(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
