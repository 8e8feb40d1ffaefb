package report

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSeriesKeepEverySum compares a series with a map: whatever the numbers and their order, each is in the sums of its
// bin, and the bins are bounded.
func TestSeriesKeepEverySum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s series
		want := map[int]int{}
		for _, n := range rapid.SliceOf(rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 1_000_000))).Draw(t, "numbers") {
			s.at(n).Tickets++
			want[n]++
		}
		if len(s.bins) > maxBins {
			t.Fatalf("%d bins", len(s.bins))
		}
		for bin, b := range s.bins {
			from, to := s.span(bin)
			n := 0
			for number, count := range want {
				if from <= number && number <= to {
					n += count
				}
			}
			if b.Tickets != n {
				t.Fatalf("bin %d, %d to %d, has %d, want %d", bin, from, to, b.Tickets, n)
			}
		}
	})
}

// TestPointsStayWithinThePlot draws scores of any size.
func TestPointsStayWithinThePlot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s series
		for n, score := range rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 300).Draw(t, "scores") {
			*s.at(n) = sums{Scored: 1, Score: score, Labelled: 2, Right: 1}
		}
		d := plotOf(s, "step", "a mission", 0).draw()
		for _, l := range d.Lines {
			for at := range strings.FieldsSeq(l.Points) {
				x, y, _ := strings.Cut(at, ",")
				px, errX := strconv.ParseFloat(x, 64)
				py, errY := strconv.ParseFloat(y, 64)
				if errX != nil || errY != nil || px < float64(d.Left)-.1 || px > float64(d.Right)+.1 ||
					py < float64(d.Top)-.1 || py > float64(d.Bottom)+.1 {
					t.Fatalf("%s: the point %s is outside", l.Name, at)
				}
			}
		}
	})
}
