package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// goal is the bound of a figure: the largest value, or the least if more is true.
type goal struct {
	name, unit string
	bound      float64
	more       bool
}

// goals are the product's goals on two idle cores.
func goals() []goal {
	return []goal{
		{"HTTP/added", "time-%", 2, false},
		{"HTTP/added", "cpu-µs/sample", 50, false},
		{"Run/bytes=300", "samples/s", 60_000, true},
		{"Run/bytes=300", "cpu-µs/sample", 25, false},
		{"Run/bytes=300", "peak-MiB", 128, false},
		{"Run/bytes=300", "×River", 10, true},
		{"Run/bytes=1200", "samples/s", 30_000, true},
		{"Run/bytes=1200", "cpu-µs/sample", 40, false},
		{"Run/bytes=1200", "peak-MiB", 128, false},
		{"Counts", "document-writes/shard", 2.2, false},
		{"Counts", "puts/shard", 1.05, false}, // with those of the plan
		{"Counts", "queue-requests/shard", 3, false},
		{"Counts", "commits/shard", 2, false},
		{"Counts", "document-writes/sample", 0.01, false},
		{"Counts", "puts/sample", 0.005, false},
		{"Counts", "queue-requests/sample", 0.012, false},
		{"Long", "peak-MiB", 128, false},
		{"BigInput", "peak-MiB", 128, false},
		{"BigInput", "first-dispatch-s", 1, false},
		{"Processes=5", "latest-heartbeat-ms", 300, false},
		{"Line/bytes=1200", "cpu-µs/line", 4, false},
		{"Plan/ids", "×bare", 1.6, false}, // 1.2 when ids were only read, and lines not parsed
		{"Dispatch/chains-in-turns", "cpu-µs/shard", 15, false},
		{"Dispatch/chains-in-blocks", "cpu-µs/shard", 15, false},
		{"Dispatch/tasks", "cpu-µs/shard", 15, false},
		{"Dispatch/short-chains", "cpu-µs/shard", 15, false},
		{"Takeover", "s-after-timeout", 2, false},
		{"Shares/normal", "s-over-2×alone", 5, false},
		{"Shares/high", "s-over-1.3×alone", 5, false},
		{"Shares/weights", "requests/s", 300, true},
		{"Shares/weights", "%-off-at-most", 10, false},
		{"Join", "p99-claim×folder", 3, false},
		{"Join/workers=200", "p99-heartbeat-late-ms", 500, false},
		{"Online/full", "×idle-and-a-batch-request", 1.2, false},
		{"Online/full", "%-of-requests-lost", 2, false},
		{"Status/ended=100000", "ms", 100, false},
		{"Status/ended=100000", "×ended=10", 1.5, false},
		{"Idle/up", "%-of-a-core", 0.2, false},
		{"Idle/worker", "%-of-a-core", 0.2, false},
		{"Tiny/streams=1", "×llama.cpp", 0.5, true},
		{"Tiny/training", "tokens/core-s", 4500, true}, // with AVX2
		{"Rollout", "coordinator-cpu-µs/answer", 50, false},
		{"Rollout", "peak-MiB", 256, false},
		{"Trials", "cpu-µs/trial", 600, false},
		{"Trials", "peak-MiB", 256, false},
		{"vLLM/whole", "×streams", 1.3, true},
		{"vLLM/whole", "×loop", 0.95, true},
		{"vLLM/found", "×loop", 0.95, true},
		{"llama.cpp/whole", "×streams", 2.2, true},
		{"llama.cpp/whole", "×loop", 0.95, true},
		{"llama.cpp/found", "×loop", 0.95, true},
	}
}

// goalOf returns the goal of a figure, if it has one.
func goalOf(f Figure) (goal, bool) {
	for _, g := range goals() {
		if g.name == f.Name && g.unit == f.Unit {
			return g, true
		}
	}
	return goal{}, false
}

// met reports whether a value meets the goal.
func (g goal) met(v float64) bool { return g.more && v >= g.bound || !g.more && v <= g.bound }

func (g goal) String() string {
	if g.more {
		return fmt.Sprintf("≥ %.4g", g.bound)
	}
	return fmt.Sprintf("≤ %.4g", g.bound)
}

// table prints the figures with their goals.
func (r *Report) table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s on %d × %s, %s\n\n", r.Commit, r.Cores, r.CPU, r.Go)
	fmt.Fprintln(t, "measure\tvalue\tunit\tgoal\t")
	for _, f := range r.Figures {
		want, mark := "", ""
		if g, ok := goalOf(f); ok {
			want, mark = g.String(), "met"
			if !g.met(f.Value()) {
				mark = "MISSED"
			}
		}
		fmt.Fprintf(t, "%s\t%.4g\t%s\t%s\t%s\n", f.Name, f.Value(), f.Unit, want, mark)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(t, "\nnote: %s\n", n)
	}
	return t.Flush()
}
