package trials

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/memory"
	"rollout/shared/record"
)

const testRun identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

const tasksFile = "prompts/t.jsonl"

// fixture is a run of trials over a bucket in memory.
type fixture struct {
	t     *testing.T
	blobs blob.Store
	m     record.Manifest
	from  record.Ranges
	looks int // that are decided
}

// twoVariants are those of most tests.
func twoVariants() config.Run {
	return config.Run{Kind: config.KindTrials,
		Design:   &config.Design{Replications: 2, Order: config.TrialsInterleaved, Seed: 7},
		Variants: []config.Variant{{Name: "plain"}, {Name: "terse", System: "Be terse.", Prompt: "Q: {prompt}"}}}
}

func newFixture(t *testing.T, c config.Run, text string) *fixture {
	t.Helper()
	f := &fixture{t: t, blobs: memory.NewBucket(clock.System{}), m: record.Manifest{Schema: record.Schema, Run: testRun,
		Kind: config.KindTrials, Dialect: "plain", Config: c, Inputs: []record.Input{{Key: tasksFile}}}}
	f.from = record.Ranges{Key: tasksFile, Version: f.put(tasksFile, text)}
	return f
}

func (f *fixture) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// put writes an object and returns its version.
func (f *fixture) put(key, content string) string {
	f.t.Helper()
	info, err := f.blobs.Put(f.t.Context(), key, strings.NewReader(content), blob.PutOptions{})
	f.check(err)
	return info.Version
}

func (f *fixture) object(key string) string {
	f.t.Helper()
	r, _, err := f.blobs.Get(f.t.Context(), key, blob.GetOptions{})
	f.check(err)
	defer r.Close()
	b, err := io.ReadAll(r)
	f.check(err)
	return string(b)
}

// lines returns the lines of all trials, which become the object that is planned.
func (f *fixture) lines() []string {
	f.t.Helper()
	var b bytes.Buffer
	f.check(Append(f.t.Context(), f.blobs, f.m, f.from, &b))
	f.put(record.AppendedKey(testRun, 1), b.String())
	return slices.Collect(strings.Lines(b.String()))
}

// refusal returns the error of a run with these tasks.
func (f *fixture) refusal() string {
	f.t.Helper()
	err := Append(f.t.Context(), f.blobs, f.m, f.from, io.Discard)
	if !fault.Is(err, fault.Invalid) {
		f.t.Fatalf("refused with %v", err)
	}
	return err.Error()
}

// tasks returns n tasks with a sentinel in what is expected of them.
func tasks(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"task-%d\",\"prompt\":\"What is %d?\",\"answer\":\"sentinel-%d\"}\n", i, i, i)
	}
	return b.String()
}

// answer is what a trial comes to: a score, or the class with which it fails.
type answer struct {
	score float64
	class fault.Class
	cause grade.Cause // why the answer has no score
}

// finish writes the output files of the run, as ask says for each trial, and publishes.
func (f *fixture) finish(ask func(Trial) answer) record.Trials {
	f.t.Helper()
	var rows, failures []byte
	lines := f.lines()
	for n, line := range lines {
		of, err := readTrial([]byte(line))
		f.check(err)
		a := ask(of)
		if a.class != "" {
			failures = dialect.AppendError(failures, dialect.Plain, dialect.Failure{ID: of.ID, Class: a.class,
				Place: dialect.Place{Item: uint64(n), File: "f", Line: uint64(n + 1)}, Message: "it failed"})
			continue
		}
		rows = fmt.Appendf(rows, `{"id":%q,"messages":[],"completion":"yes","finish_reason":"stop",`, of.ID)
		rows = append(rows, `"usage":{"prompt_tokens":3,"completion_tokens":2},`...)
		rows = grade.AppendMembers(rows, f.m.Config.Grades, [][]grade.Score{{{Value: a.score, Cause: a.cause}}})
		trial, err := json.Marshal(of)
		f.check(err)
		rows = fmt.Appendf(rows, ",\"trial\":%s}\n", trial)
	}
	f.put(record.OutputKey(testRun, record.CompletionsFile), string(rows))
	f.put(record.OutputKey(testRun, record.ErrorsFile), string(failures))
	return f.publish(uint64(len(lines)))
}

func (f *fixture) publish(items uint64) record.Trials {
	f.t.Helper()
	out, err := f.ended(items).Publish(f.t.Context())
	f.check(err)
	return out
}

// ended is the run when that many of its trials have a row.
func (f *fixture) ended(items uint64) Ended {
	return Ended{Blobs: f.blobs, Manifest: f.m, Trials: []string{record.AppendedKey(testRun, 1)}, Items: items,
		Looks: f.looks}
}
