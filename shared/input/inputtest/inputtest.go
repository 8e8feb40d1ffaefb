// Package inputtest plans small runs for tests of the functions and workers that
// run after planning.
//
// One call of Plan writes the inputs, the manifest, the shard tables, the index and
// the plan, as the functions submit and plan do. Each input must have one range and
// no duplicate ids. Only tests import the package.
package inputtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/jsonl"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// RunID is the run that Manifest describes.
const RunID identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVE"

// Manifest returns the manifest of a batch run of the model mock in the pool
// default, with at most that many items in a shard.
func Manifest(items int) record.Manifest {
	cfg := config.DefaultRun()
	cfg.Shard.Items = items
	return record.Manifest{
		Schema: record.Schema, Run: RunID, Name: "test", Kind: "batch",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Dialect: "plain", Config: cfg,
		ModelURI: "mock", ModelID: identity.Model("mock", "").String(), Pool: "default",
	}
}

// WithJudge adds the role judge to the manifest: role 1, which the model "wise"
// serves in the pool judges.
func WithJudge(m record.Manifest) record.Manifest {
	m.Roles = []record.Role{{Name: "judge", Pool: "judges", ModelURI: "wise",
		ModelID: identity.Model("wise", "").String()}}
	return m
}

// InParts are limits by which more inputs than inline are listed in parts of so many.
func InParts(inline, part int) record.InputLimits {
	l := record.DefaultInputLimits()
	l.Inline, l.Part, l.Head = inline, part, 1
	return l
}

// Prompts returns a file of n plain rows whose prompts are the numbers from first.
func Prompts(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\":\"%d\"}\n", first+i)
	}
	return b.String()
}

// Plan writes the files as inputs, and plans the manifest's run over them. It returns
// the manifest with its inputs. File i has the role i, or the last one that the
// manifest has.
func Plan(t testing.TB, p host.Ports, m record.Manifest, files ...string) record.Manifest {
	t.Helper()
	doc := record.Plan{Schema: record.Schema}
	for i, content := range files {
		key := fmt.Sprintf("%s%d.jsonl", record.PromptsPrefix, i)
		version := hosttest.Put(t, p, key, content)
		m.Inputs = append(m.Inputs, record.Input{Key: key, Version: version, Size: int64(len(content))})
		size := int64(len(content))
		src := record.Ranges{Key: key, Version: version, Size: size, Count: record.RangeCount(size),
			Role: uint32(min(i, len(m.Roles)))}
		doc.Ranges = append(doc.Ranges, src)
		doc.Total += src.Count
		if src.Count > 0 {
			doc = plan(t, p, m, doc, i, content)
		}
	}
	hosttest.Save(t, p, record.ManifestKey(m.Run), m)
	hosttest.Save(t, p, record.PlanKey(m.Run), doc)
	return m
}

// plan writes the shard table and the index entry of input i. It returns doc with
// the range merged.
func plan(t testing.TB, p host.Ports, m record.Manifest, doc record.Plan, i int, content string) record.Plan {
	t.Helper()
	opts := shardtable.CutOptions{Input: uint32(i), MaxItems: m.Config.Shard.Items, Role: doc.Ranges[i].Role}
	c := shardtable.NewCutter(opts)
	var table bytes.Buffer
	w := shardtable.NewWriter(&table, shardtable.Header{
		Input: opts.Input, End: uint64(len(content)), MaxItems: uint32(opts.MaxItems)})
	keep := func(r shardtable.Row, ok bool) {
		if ok {
			check(t, w.Append(r))
		}
	}
	lines := c.Scanner(strings.NewReader(content), jsonl.Options{Limit: int64(len(content))})
	for {
		l, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		keep(c.Add(l))
	}
	keep(c.Flush())
	check(t, w.Flush())
	n := c.Totals()
	e := record.IndexEntry{Range: doc.Merged, Input: i, FirstShard: doc.Shards, Shards: int(n.Rows),
		FirstItem: doc.Items, Items: n.Items, Lines: n.Lines}
	hosttest.Put(t, p, record.ShardTableKey(m.Run, doc.Merged), table.String())
	hosttest.Put(t, p, record.IndexKey(m.Run, doc.Merged), string(record.Encode(e)))
	doc.Lines = 0
	doc.AddRange(opts.Role, record.RangeResult{Shards: int(n.Rows), Items: n.Items, Lines: n.Lines})
	return doc
}

// Repeats writes the repeats of a range of RunID. The range's index entry must count
// them.
func Repeats(t testing.TB, p host.Ports, rng int, of record.HashKind, repeats ...shardtable.Repeat) {
	t.Helper()
	var b bytes.Buffer
	w := shardtable.NewRepeatWriter(&b)
	for _, r := range repeats {
		check(t, w.Append(r))
	}
	check(t, w.Flush())
	hosttest.Put(t, p, record.RepeatsKey(RunID, rng, of), b.String())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
