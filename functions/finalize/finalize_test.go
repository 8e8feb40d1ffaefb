package finalize_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
	"rollout/shared/result"
)

const id = inputtest.RunID

// fixture is a set of stores with a stopped run of 6 shards of 2 items. Shard 0
// has a result, shard 1 a result with an error row. Shard 2 is sealed with a
// checkpoint of its second item, shard 3 without one. Shards 4 and 5 were never
// sent.
type fixture struct {
	host.Ports
	t *testing.T
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	var lines strings.Builder
	for n := range 12 {
		fmt.Fprintf(&lines, "{\"id\":\"id-%d\",\"prompt\":\"%d\"}\n", n, n)
	}
	inputtest.Plan(t, d.Ports, inputtest.Manifest(2), lines.String())
	d.commit(0, []result.Row{{Item: 0, Bytes: []byte("a0\n")}, {Item: 1, Bytes: []byte("a1\n")}})
	d.commit(1, []result.Row{{Item: 0, Class: fault.Refused, Bytes: []byte("e2\n")}, {Item: 1, Bytes: []byte("a3\n")}})
	d.seal(2, []result.Row{{Item: 1, Bytes: []byte("a5\n")}})
	d.seal(3, nil)
	d.save(run.Finalizing, 4)
	return d
}

func (d fixture) put(n int, what string, b []byte) shard.Ref {
	key := record.ShardObjectKey(id, n, 1, what)
	hosttest.Put(d.t, d.Ports, key, string(b))
	return shard.Ref{Key: key, Length: int64(len(b)), Digest: identity.Content(b).String()}
}

func counts(rows []result.Row) (c shard.Counts) {
	for _, r := range rows {
		if r.Class == "" {
			c.OK++
			if string(r.Bytes) == "a3\n" { // of a sealed shard
				c.AddFinish("length")
				c.UsageUnknown++
			}
			continue
		}
		c.Failed++
		c.ByClass = map[string]int{string(r.Class): c.Failed}
	}
	return c
}

func (d fixture) commit(n int, rows []result.Row) {
	b, out := result.Append(nil, rows)
	ref := d.put(n, "result", b)
	d.doc(shard.Doc{Schema: 1, Run: id, Shard: n, State: shard.Done, Worker: "w1", Items: 2,
		Result: &ref, OutputLen: out, Counts: counts(rows)})
}

func (d fixture) seal(n int, rows []result.Row) {
	doc := shard.New(id, n)
	if rows != nil {
		b, err := result.AppendCheckpoint(nil, rows)
		if err != nil {
			d.t.Fatal(err)
		}
		ref := d.put(n, "checkpoint", b)
		doc.Checkpoint, doc.Counts = &ref, counts(rows)
	}
	doc, err := doc.Seal(fault.CanceledItem, 2)
	if err != nil {
		d.t.Fatal(err)
	}
	d.doc(doc)
}

func (d fixture) doc(doc shard.Doc) {
	hosttest.Save(d.t, d.Ports, identity.ShardKey(id, doc.Shard), doc)
}

// state is the run's state in that phase, with the shards below frontier done.
func state(p run.Phase, frontier int) run.State {
	s := run.New(id)
	s.Phase, s.Reason, s.Message = p, run.ReasonStopped, "enough"
	s.Shards, s.Items, s.Complete, s.NextShard, s.FrozenFrontier = 6, 12, true, 4, 4
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: frontier})
	return s
}

func (d fixture) save(p run.Phase, frontier int) {
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(id), state(p, frontier))
}

func (d fixture) finalizer() *finalize.Finalizer {
	return finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), finalize.Options{})
}

func (d fixture) finalize() error {
	return d.finalizer().Finalize(d.t.Context(), events.Finalize{Run: string(id)})
}

func (d fixture) file(name string) string {
	return hosttest.Object(d.t, d.Ports, record.OutputKey(id, name))
}

// exists reports whether one of the run's files exists.
func (d fixture) exists(name string) bool {
	_, err := d.Blobs.Stat(d.t.Context(), record.OutputKey(id, name), "")
	if err != nil && !fault.Is(err, fault.NotFound) {
		d.t.Error(err)
	}
	return err == nil
}

const outputs = "a0\na1\na3\na5\n"

func TestI1I4EachItemHasOneRowInOrder(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	if got := d.file(record.CompletionsFile); got != outputs {
		t.Errorf("completions are %q", got)
	}
	errs := strings.Split(strings.TrimSpace(d.file(record.ErrorsFile)), "\n")
	if len(errs) != 8 || errs[0] != "e2" {
		t.Fatalf("errors are %q", errs)
	}
	for i, n := range []int{4, 6, 7, 8, 9, 10, 11} {
		for _, want := range []string{
			fmt.Sprintf(`"id":"id-%d"`, n), fmt.Sprintf(`"item":%d`, n), fmt.Sprintf(`"line":%d`, n+1),
			`"class":"canceled"`, "enough",
		} {
			if !strings.Contains(errs[i+1], want) {
				t.Errorf("the error of item %d is %s, want %s in it", n, errs[i+1], want)
			}
		}
	}
	sum := record.Summary{}
	if err := input.ReadJSON(t.Context(), d.Blobs, record.OutputKey(id, record.SummaryFile), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.Items != 12 || sum.Completed != 4 || sum.Failed != 8 || sum.FailedByClass["canceled"] != 7 ||
		sum.FailedByClass["refused"] != 1 || sum.Phase != "stopped" || len(sum.Workers) != 1 {
		t.Errorf("the summary is %+v", sum)
	}
	if sum.FinishReasons["stop"] != 3 || sum.FinishReasons["length"] != 1 || sum.UsageUnknown != 1 {
		t.Errorf("the summary counts the finish reasons %v and %d without usage", sum.FinishReasons, sum.UsageUnknown)
	}
	if n, _, _ := d.Queues.(*memory.Queues).Depth(t.Context(), host.CoordinateQueue); n != 1 {
		t.Errorf("%d events sent", n)
	}
}

func TestFilesAreTheSameHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	plain := newFixture(t)
	if err := plain.finalize(); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(fixture) error{
		"two calls at once": func(d fixture) error {
			var all sync.WaitGroup
			errs := make([]error, 2)
			for i := range errs {
				all.Go(func() { errs[i] = d.finalize() })
			}
			all.Wait()
			return errors.Join(errs...)
		},
		"twice": func(d fixture) error { return errors.Join(d.finalize(), d.finalize()) },
		"behind the commit frontier": func(d fixture) error {
			states := []run.State{
				state(run.Running, 1), state(run.Running, 1), state(run.Ending, 3), state(run.Finalizing, 4),
			}
			return d.finalizer().Follow(d.t.Context(), state(run.Running, 0), func(context.Context) (run.State, error) {
				next := states[0]
				states = states[1:]
				return next, nil
			})
		},
	} {
		d := newFixture(t)
		if err := write(d); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, f := range []string{record.CompletionsFile, record.ErrorsFile} {
			if got, want := d.file(f), plain.file(f); got != want {
				t.Errorf("%s: %s is %q, want %q", name, f, got, want)
			}
		}
	}
}

func TestErrorRowsLackIDsWhenTheInputIsGoneOrChanged(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(fixture){
		"gone":    func(d fixture) { _ = d.Blobs.Delete(t.Context(), "prompts/0.jsonl", "") },
		"changed": func(d fixture) { hosttest.Put(t, d.Ports, "prompts/0.jsonl", "{}\n") },
	} {
		d := newFixture(t)
		harm(d)
		if err := d.finalize(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		errs := strings.Split(strings.TrimSpace(d.file(record.ErrorsFile)), "\n")
		if got := d.file(record.CompletionsFile); got != outputs || len(errs) != 8 {
			t.Errorf("%s: completions %q, %d errors", name, got, len(errs))
		}
		if last := errs[len(errs)-1]; !strings.Contains(last, `"item":11`) || strings.Contains(last, "id-11") {
			t.Errorf("%s: the last error is %s", name, last)
		}
	}
}

func TestOutputLongerThanItsResultIsCorrupt(t *testing.T) {
	t.Parallel()
	for _, length := range []int64{-1, 1 << 40} {
		for name, f := range map[string]func(fixture) *finalize.Finalizer{
			"in one stream": fixture.finalizer,
			"read ahead": func(d fixture) *finalize.Finalizer {
				return inSegments(d.Ports, finalize.SegmentOptions{})
			},
		} {
			d := newFixture(t)
			doc := hosttest.Load[shard.Doc](t, d.Ports, identity.ShardKey(id, 0))
			doc.OutputLen = length
			d.doc(doc)
			if err := f(d).Finalize(t.Context(), events.Finalize{Run: string(id)}); !fault.Is(err, fault.Corrupt) {
				t.Errorf("%s, %d: %v", name, length, err)
			}
		}
	}
}

func TestRunThatIsNotFinalizingIsIgnored(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.save(run.Ending, 3)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	if d.exists(record.CompletionsFile) {
		t.Error("completions.jsonl exists")
	}
}

func TestFollowEndsWhenAnotherProcessFinalizes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		err := d.finalizer().Follow(t.Context(), state(run.Running, 1), func(context.Context) (run.State, error) {
			<-time.After(time.Second)
			return state(run.Stopped, 4), nil
		})
		if !errors.Is(err, finalize.ErrAlreadyFinalized) {
			t.Errorf("%v", err)
		}
		if d.exists(record.CompletionsFile) {
			t.Error("an incomplete completions.jsonl exists")
		}
	})
}
