package finalize_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"rollout/functions/finalize"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

// ask returns a line with that prompt, and with an id and a tag of the item.
func ask(item, prompt int) string {
	return fmt.Sprintf(`{"id":"i%d","prompt":"%d%s","tag":%d}`, item, prompt, strings.Repeat(" and on", 40), item)
}

// dedupeRun is a run that asks identical requests once: originals[i] is the first
// item with the prompt of item i, which may be i itself.
type dedupeRun struct {
	host.Ports
	originals []int
	perShard  int
}

func newDedupeRun(tb testing.TB, perShard int, originals []int) dedupeRun {
	a := dedupeRun{originals: originals, perShard: perShard, Ports: hosttest.New()}
	var lines strings.Builder
	var copies []shardtable.Repeat
	for i, of := range originals {
		lines.WriteString(ask(i, of) + "\n")
		if of != i {
			first := shardtable.Place{Item: uint32(of), Line: uint32(of)}
			copies = append(copies, shardtable.Repeat{Item: uint32(i), First: first})
		}
	}
	m := inputtest.Manifest(perShard)
	m.Config.Dedupe = config.Dedupe{Enabled: true, Sampled: true}
	inputtest.Plan(tb, a.Ports, m, lines.String())
	if len(copies) > 0 {
		inputtest.Repeats(tb, a.Ports, 0, record.HashRequests, copies...)
		var e record.IndexEntry
		if err := json.Unmarshal([]byte(hosttest.Object(tb, a.Ports, record.IndexKey(id, 0))), &e); err != nil {
			tb.Fatal(err)
		}
		e.Copies = len(copies)
		hosttest.Put(tb, a.Ports, record.IndexKey(id, 0), string(record.Encode(e)))
	}
	return a
}

func (a dedupeRun) shards() int { return (len(a.originals) + a.perShard - 1) / a.perShard }

// row returns the row that a worker writes for an item. Items that refuse selects fail.
func (a dedupeRun) row(tb testing.TB, item int, refuse func(int) bool) result.Row {
	r := result.Row{Item: item % a.perShard}
	if of := a.originals[item]; of != item {
		r.Bytes, r.Copy = []byte(ask(item, of)+"\n"), &result.Copied{Original: uint64(of), Line: uint64(item + 1)}
		return r
	}
	it, err := dialect.Parse(dialect.Plain, []byte(ask(item, item)))
	if err != nil {
		tb.Fatal(err)
	}
	if refuse(item) {
		r.Class = fault.Refused
		r.Bytes = dialect.AppendError(nil, dialect.Plain,
			it.Failure("", dialect.Place{Item: uint64(item)}, r.Class, "no"))
		return r
	}
	usage := dialect.Usage{PromptTokens: 1, CompletionTokens: 2}
	r.Bytes = dialect.AppendOutput(nil, it, dialect.Model{}, dialect.Result{ID: it.ID, GeneratedAt: time.Unix(0, 0),
		Answers: []dialect.Answer{{Text: fmt.Sprintf("answer %d", item), Usage: usage}}})
	return r
}

func (a dedupeRun) commit(tb testing.TB, n int, refuse func(int) bool) {
	var rows []result.Row
	for i := n * a.perShard; i < min((n+1)*a.perShard, len(a.originals)); i++ {
		rows = append(rows, a.row(tb, i, refuse))
	}
	b, out := result.AppendIndexed(nil, rows)
	d := shard.Doc{Schema: 1, Run: id, Shard: n, State: shard.Done, Items: len(rows), OutputLen: out, Counts: counts(rows)}
	a.save(tb, d, b, func(d *shard.Doc, r *shard.Ref) { d.Result = r })
}

// seal seals a shard with the rows that keep selects.
func (a dedupeRun) seal(tb testing.TB, n int, keep func(int) bool) {
	var rows []result.Row
	items := min((n+1)*a.perShard, len(a.originals)) - n*a.perShard
	for i := range items {
		if item := n*a.perShard + i; keep(item) && a.originals[item] == item {
			rows = append(rows, a.row(tb, item, func(int) bool { return false }))
		}
	}
	b, err := result.AppendCheckpoint(nil, rows)
	if err != nil {
		tb.Fatal(err)
	}
	d := shard.New(id, n)
	d.Counts = counts(rows)
	d, err = d.Seal(fault.CanceledItem, items)
	if err != nil {
		tb.Fatal(err)
	}
	a.save(tb, d, b, func(d *shard.Doc, r *shard.Ref) { d.Checkpoint = r })
}

func (a dedupeRun) save(tb testing.TB, d shard.Doc, object []byte, name func(*shard.Doc, *shard.Ref)) {
	key := record.ShardObjectKey(id, d.Shard, 1, "object")
	hosttest.Put(tb, a.Ports, key, string(object))
	name(&d, &shard.Ref{Key: key, Length: int64(len(object)), Digest: identity.Content(object).String()})
	hosttest.Save(tb, a.Ports, identity.ShardKey(id, d.Shard), d)
}

// state is the state of the run in Finalizing, after the first shards were sent.
func (a dedupeRun) state(why run.Reason, sent int) run.State {
	s := run.New(id)
	s.Phase, s.Reason, s.Complete = run.Finalizing, why, true
	s.Shards, s.Items, s.NextShard, s.FrozenFrontier = a.shards(), uint64(len(a.originals)), sent, sent
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: sent})
	return s
}

func (a dedupeRun) follow(tb testing.TB, s run.State) error {
	f := finalize.New(a.Ports, input.NewIndex(a.Blobs, a.Docs), finalize.Options{})
	return f.Follow(tb.Context(), s, nil)
}

// finalize writes the files of the run in one stream, and returns its summary.
func (a dedupeRun) finalize(tb testing.TB, why run.Reason, sent int) record.Summary {
	if err := a.follow(tb, a.state(why, sent)); err != nil {
		tb.Fatal(err)
	}
	var sum record.Summary
	text := hosttest.Object(tb, a.Ports, record.OutputKey(id, record.SummaryFile))
	if err := json.Unmarshal([]byte(text), &sum); err != nil {
		tb.Fatal(err)
	}
	return sum
}

// outcome returns the outcome of each item: "answer 3", or its class and error.
func (a dedupeRun) outcome(tb testing.TB) []string {
	out := make([]string, len(a.originals))
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile} {
		for l := range bytes.Lines([]byte(hosttest.Object(tb, a.Ports, record.OutputKey(id, name)))) {
			var r struct {
				ID, Completion, Class, Error string
				Tag, Item                    int
				Usage                        map[string]int
			}
			if err := json.Unmarshal(l, &r); err != nil {
				tb.Fatal(err)
			}
			item := r.Tag + r.Item // an answer has the one, an error the other
			if r.ID != fmt.Sprintf("i%d", item) || out[item] != "" {
				tb.Errorf("item %d has the rows %q and %s", item, out[item], l)
			}
			out[item] = strings.TrimSpace(r.Completion + " " + r.Class + " " + r.Error)
			copied := a.originals[item] != item
			if name == record.CompletionsFile && copied != (r.Usage["completion_tokens"] == 0) {
				tb.Errorf("item %d has the usage %v", item, r.Usage)
			}
		}
	}
	return out
}

// In shards of two items, the originals are answered, failed, in the checkpoint of
// a sealed shard, without a row in a sealed shard, and never sent.
func TestCopiesGetTheOutcomeOfTheirOriginal(t *testing.T) {
	t.Parallel()
	a := newDedupeRun(t, 2, []int{0, 1, 0, 3, 4, 5, 4, 5, 8, 0, 1, 3, 4, 5, 8})
	a.commit(t, 0, func(int) bool { return false })    // 0 and 1
	a.commit(t, 1, func(i int) bool { return i == 3 }) // a copy of 0; 3 fails
	a.seal(t, 2, func(i int) bool { return i == 4 })   // 4 is kept, 5 is lost
	a.seal(t, 3, func(int) bool { return false })      // copies of 4 and 5
	sum := a.finalize(t, run.ReasonStopped, 4)         // 8 is never sent, its copies neither
	const (
		gone   = "canceled the run ended first (stopped)"
		failed = "refused item 3 asks the same, was asked for both, and failed"
	)
	want := []string{"answer 0", "answer 1", "answer 0", "refused no", "answer 4", gone, "answer 4", gone, gone,
		"answer 0", "answer 1", failed, "answer 4", gone, gone}
	for i, got := range a.outcome(t) {
		if got != want[i] {
			t.Errorf("item %d: %s, want %s", i, got, want[i])
		}
	}
	if sum.Items != 15 || sum.Completed != 8 || sum.Failed != 7 || sum.Copies != 9 ||
		sum.FailedByClass["refused"] != 2 || sum.FailedByClass["canceled"] != 5 {
		t.Errorf("the summary is %+v", sum)
	}
}

// The run has more originals than fit into the cache.
func TestCopiesFindOriginalsThatWereEvicted(t *testing.T) {
	t.Parallel()
	const n = 3000
	originals := make([]int, 2*n)
	for i := range n {
		originals[i], originals[n+i] = i, (i*7919)%n
	}
	a := newDedupeRun(t, 100, originals)
	for k := range a.shards() {
		a.commit(t, k, func(i int) bool { return i%10 == 3 })
	}
	sum := a.finalize(t, run.ReasonDone, a.shards())
	for i, got := range a.outcome(t) {
		switch of := originals[i]; {
		case of%10 != 3 && got != fmt.Sprintf("answer %d", of), of%10 == 3 && !strings.HasPrefix(got, "refused"):
			t.Fatalf("item %d of original %d: %s", i, of, got)
		}
	}
	if sum.Completed != 2*n*9/10 || sum.Failed != 2*n/10 || sum.Copies != n {
		t.Errorf("the summary is %+v", sum)
	}
}

// BenchmarkCopies finalizes runs in which every second item is a copy: of an
// item nearby, or of any before it. An op is an item.
func BenchmarkCopies(b *testing.B) {
	for name, pick := range map[string]func(d *rand.Rand, i int) int{
		"none": func(_ *rand.Rand, i int) int { return i },
		"near": func(d *rand.Rand, i int) int { return max(0, i-1-2*d.IntN(200)) },
		"far":  func(d *rand.Rand, i int) int { return 2 * d.IntN(i/2+1) },
	} {
		b.Run(name, func(b *testing.B) {
			dice := rand.New(rand.NewPCG(1, 2))
			originals := make([]int, max(b.N, 2))
			for i := range originals {
				originals[i] = i
				if i%2 == 1 {
					originals[i] = pick(dice, i)
				}
			}
			a := newDedupeRun(b, 256, originals)
			for k := range a.shards() {
				a.commit(b, k, func(int) bool { return false })
			}
			b.ResetTimer()
			a.finalize(b, run.ReasonDone, a.shards())
		})
	}
}
