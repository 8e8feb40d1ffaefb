package scaling

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// start is when tests begin.
var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// source parses "g2 present/pending" with the kind and minute of a problem, if it has one:
// "g2 1/2 quota@3".
func source(t *testing.T, text string) (s Source) {
	t.Helper()
	counts, problem, _ := strings.Cut(text, "!")
	if _, err := fmt.Sscanf(counts, "%s %d/%d", &s.Name, &s.Present, &s.Pending); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if kind, at, ok := strings.Cut(problem, "@"); ok {
		var minute int
		if _, err := fmt.Sscan(at, &minute); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		s.Problem = Problem{ProblemKind(kind), start.Add(time.Duration(minute) * time.Minute)}
	}
	return s
}

// line is the orders as text: "-g2" withdraws, "g2+3" adds.
func line(orders []Order) string {
	var all []string
	for _, o := range orders {
		if o.Withdraw {
			all = append(all, "-"+o.Source)
		} else {
			all = append(all, fmt.Sprintf("%s+%d", o.Source, o.Add))
		}
	}
	return strings.Join(all, " ")
}

func TestSpread(t *testing.T) {
	t.Parallel()
	type step struct {
		minute int
		want   int
		seen   string // sources, separated by commas
		orders string
	}
	for name, steps := range map[string][]step{
		"machines come": {
			{0, 3, "g2 0/0", "g2+3"},
			{1, 3, "g2 0/3", ""},
			{2, 3, "g2 2/1", ""},
			{3, 3, "g2 3/0", ""},
			{4, 5, "g2 3/0", "g2+2"},
			{5, 2, "g2 3/2", ""}, // never fewer
		},
		"one series is dry": {
			{0, 3, "g2 0/0, a2 0/0", "g2+3"},
			{1, 3, "g2 1/2 !stockout@1, a2 0/0", ""}, // it may look in other zones
			{2, 3, "g2 1/2 !stockout@1, a2 0/0", "-g2 a2+2"},
			{3, 3, "g2 1/0 !stockout@1, a2 2/0", ""},
		},
		"a stockout everywhere": {
			{0, 1, "g2 0/0, a2 0/0", "g2+1"},
			{2, 1, "g2 0/1 !stockout@1, a2 0/0", "-g2 a2+1"},
			{4, 1, "g2 0/0 !stockout@1, a2 0/1 !stockout@3", "-a2 g2+1"},
			{6, 1, "g2 0/1 !stockout@5, a2 0/0 !stockout@3", "-g2 a2+1"},
			{8, 1, "g2 0/0 !stockout@5, a2 0/1 !stockout@7", "-a2 g2+1"},
			{10, 1, "g2 0/1 !stockout@9, a2 0/0 !stockout@7", "-g2 a2+1"},
			{11, 1, "g2 0/0 !stockout@9, a2 1/0 !stockout@7", ""},
		},
		"no quota": {
			{0, 2, "g2 0/0", "g2+2"},
			{1, 2, "g2 0/2 !quota@0", "-g2"}, // at once: it is the same in each zone
			{2, 2, "g2 0/0 !quota@0", "g2+2"},
			{3, 2, "g2 0/2 !quota@2", "-g2"},
			{4, 2, "g2 0/0 !quota@2", ""},
			{5, 2, "g2 0/0 !quota@2", "g2+2"},
			{6, 2, "g2 0/2 !quota@5", "-g2"},
			{9, 2, "g2 0/0 !quota@5", ""},
			{10, 2, "g2 0/0 !quota@5", "g2+2"},
			{11, 2, "g2 2/0 !quota@5", ""}, // granted
			{12, 3, "g2 2/0 !quota@5", "g2+1"},
			{13, 3, "g2 2/1 !quota@12", "-g2"}, // the first failure again
			{14, 3, "g2 2/0 !quota@12", "g2+1"},
		},
		"an old problem": {
			{0, 1, "g2 0/0 !quota@-5", "g2+1"},
			{1, 1, "g2 0/1 !quota@-5", ""},
		},
		"requests that somebody else made": {
			{0, 2, "g2 0/2 !quota@-1", "-g2"},
			{1, 2, "g2 0/0 !quota@-1", "g2+2"},
		},
		"failures of yesterday": {
			{0, 1, "g2 0/1 !refused@0", "-g2"},
			{1, 1, "g2 0/1 !refused@1", "-g2"},
			{100, 1, "g2 0/0", "g2+1"},
			{101, 1, "g2 0/1 !refused@101", "-g2"},
			{102, 1, "g2 0/0", "g2+1"}, // a pause of a minute
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var memory map[string]Memory
			for _, s := range steps {
				var seen []Source
				for _, text := range strings.Split(s.seen, ", ") {
					seen = append(seen, source(t, text))
				}
				var orders []Order
				orders, memory = Spread(s.want, seen, memory, start.Add(time.Duration(s.minute)*time.Minute))
				if got := line(orders); got != s.orders {
					t.Fatalf("minute %d: %q, want %q", s.minute, got, s.orders)
				}
			}
		})
	}
}

func TestPausesGrowToAQuarterOfAnHour(t *testing.T) {
	t.Parallel()
	for kind, want := range map[ProblemKind]time.Duration{Quota: 15 * time.Minute, Stockout: 5 * time.Minute} {
		m, now := Memory{}, start
		for range 100 {
			m = m.Pause(kind, now)
			now = m.RetryAt
		}
		if got := m.Pause(kind, now).RetryAt.Sub(now); got != want {
			t.Errorf("%s: the pause is %s, want %s", kind, got, want)
		}
	}
}

// Whatever sources do, no more machines are asked for than are wanted, a pausing source
// is not asked, and a source without a problem keeps its requests.
func TestSpreadNeverAsksForTooMuch(t *testing.T) {
	t.Parallel()
	kinds := []ProblemKind{"", "", Stockout, Quota, Refused, Unfit, Unknown}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		sources := []Source{{Name: "g2"}, {Name: "a2"}, {Name: "g4"}}
		memory, now := map[string]Memory{}, start
		for step := range 60 {
			now = now.Add(time.Duration(rng.IntN(200)) * time.Second)
			for i := range sources {
				s := &sources[i]
				came, gone := rng.IntN(s.Pending+1), rng.IntN(s.Present+1)/2
				s.Present, s.Pending = s.Present+came-gone, s.Pending-came
				if k := kinds[rng.IntN(len(kinds))]; k != "" {
					s.Problem = Problem{k, now}
				}
			}
			want := rng.IntN(9)
			before := map[string]Memory{}
			for name, m := range memory {
				before[name] = m
			}
			total := 0
			for _, s := range sources {
				total += s.Present + s.Pending
			}
			var orders []Order
			orders, memory = Spread(want, sources, memory, now)
			for _, o := range orders {
				for i := range sources {
					s := &sources[i]
					switch {
					case s.Name != o.Source:
					case o.Withdraw:
						if s.Pending == 0 || s.Problem.Kind == "" {
							t.Fatalf("seed %d, step %d: withdrew from %+v", seed, step, s)
						}
						total -= s.Pending
						s.Pending = 0
					default:
						if now.Before(memory[s.Name].RetryAt) {
							t.Fatalf("seed %d, step %d: asked %s, which pauses", seed, step, s.Name)
						}
						s.Pending += o.Add
						if total += o.Add; total > want {
							t.Fatalf("seed %d, step %d: %d machines, want %d at most", seed, step, total, want)
						}
					}
				}
			}
		}
	}
}
