package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Settings of the trials that are measured: a tenth of the samples, each a shard of its own.
const (
	trialsPerTask = 4 * 10 // variants × replications
	trialsConfig  = `schema_version = 1
kind = "trials"
[design]
replications = 10
[[variant]]
name = "a"
[[variant]]
name = "b"
system = "Be brief."
[[variant]]
name = "c"
system = "Be exact."
[[variant]]
name = "d"
prompt = "Answer: {prompt}"
[[grade]]
name = "right"
kind = "regex"
pattern = "[0-9]"
`
)

// trialRuns measures trials of prompts with the mock engine over the stores of a folder: the time
// of the processor, from the plan to the report's files, and the memory of the only process.
func trialRuns(ctx context.Context, l *runner) error {
	tasks := max(1, l.n/10/trialsPerTask)
	in, err := l.newFolder(tasks*trialsPerTask, func(path string) error { return writeTasks(path, tasks) })
	if err != nil {
		return err
	}
	config := filepath.Join(filepath.Dir(in.hidden), "p.toml")
	if err := os.WriteFile(config, []byte(trialsConfig), 0o644); err != nil {
		return err
	}
	u, err := l.runOnce(ctx, in, "--engine", "mock")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("Trials/n=%d", in.lines)
	l.report.add(name, "trials/s", float64(in.lines)/u.wall.Seconds())
	l.report.add("Trials", "cpu-µs/trial", perSample(u.cpu, in.lines))
	l.report.add("Trials", "peak-MiB", u.peakMiB)
	return in.remove()
}

// writeTasks writes a file of tasks.
func writeTasks(path string, n int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"id":"task-%d","prompt":"What is %d + %d?","answer":"%d"}`+"\n", i, i, i, 2*i)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
