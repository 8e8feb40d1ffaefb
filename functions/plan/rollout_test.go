package plan_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/rollout"
	"rollout/shared/shardtable"
)

// tickets returns a file of n tickets, with a line between them that is none.
func tickets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"group_id\":\"g%d\",\"content\":\"c\",\"label\":\"a\"}\n", i)
		if i == 0 {
			b.WriteString("no ticket\n")
		}
	}
	return b.String()
}

// newRollout returns a planner of a rollout: batches of three tickets over two shards, and
// two answers a ticket.
func newRollout(t *testing.T, f file) *fixture {
	t.Helper()
	d := newFixture(t, 1, f)
	d.m.Kind, d.m.Config.Kind = config.KindRollout, config.KindRollout
	d.m.Config.Missions = []config.Mission{{Name: "m", Entries: []string{"Be right."}}}
	d.m.Config.Decodes = []config.Decode{{Samples: 2}}
	d.m.Config.Runner = &config.Runner{RolloutBatchSize: 3, Parallelism: 2}
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.Planner = plan.New(d.Ports, plan.Options{})
	return d
}

// shardItems returns how many items each shard of the plan has.
func (d *fixture) shardItems() (out []int) {
	d.t.Helper()
	x := input.NewIndex(d.Ports.Blobs, d.Ports.Docs)
	for n := range d.plan().Shards {
		e, at, err := x.FindShard(d.t.Context(), id, n)
		if err == nil {
			var rows []shardtable.Row
			if rows, err = x.Rows(d.t.Context(), id, e, at, 1); err == nil {
				out = append(out, int(rows[0].Items))
			}
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	return out
}

// commitVerdicts commits the next shard, with the items from first on: each says the label,
// but for one that failed.
func (d *fixture) commitVerdicts(first, items, failed int) {
	d.t.Helper()
	var rows []result.Row
	for n := range items {
		if n == failed {
			rows = append(rows, d.failed(n, uint64(first+n)))
			continue
		}
		rows = append(rows, result.Row{Item: n, Bytes: []byte(`{"completion":"a"}` + "\n")})
	}
	d.commit(rows...)
}

func (d *fixture) stage(number int) rollout.Stage {
	d.t.Helper()
	s, err := rollout.ReadStage(d.t.Context(), d.Blobs, id, number)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

// TestPlanOfARolloutIsItsBatches plans five tickets: no line of the file is an item, and
// the next batch comes when every member of the last one has its row.
func TestPlanOfARolloutIsItsBatches(t *testing.T) {
	t.Parallel()
	d := newRollout(t, file{text: tickets(5)})
	d.submitted()
	if p, got := d.plan(), fmt.Sprint(d.shardItems()); p.Complete() || p.Sources() != 2 || p.Items != 6 || got != "[4 2]" {
		t.Fatalf("the first batch gives %+v with shards of %s", p, got)
	}
	d.commitVerdicts(0, 4, 1)
	d.submitted()
	if p := d.plan(); p.Sources() != 2 {
		t.Fatalf("it grew before a shard of the batch was done: %+v", p)
	}
	d.commitVerdicts(4, 2, -1)
	d.submitted()
	if p, got := d.plan(), fmt.Sprint(d.shardItems()); p.Complete() || p.Sources() != 3 || p.Items != 10 ||
		got != "[4 2 2 2]" {
		t.Fatalf("both batches give %+v with shards of %s", p, got)
	}
	want := rollout.Stage{Schema: record.Schema, Input: 2, Kind: rollout.Answering, Items: 4, Batch: 1, From: 3, To: 5,
		Members: 2, Book: rollout.Book{Tickets: 5, Refused: 1}, Guidance: map[string]int{"m": 0},
		Steps: map[string][]rollout.StepSum{"m": {{Scored: 5, Score: 5}}}, Totals: rollout.Totals{Tickets: 3, Answered: 5,
			Failed: map[string]int{"engine": 1}, Selected: 3, Agreement: 3, Labelled: 3, Right: 3, Scored: 5, Score: 5}}
	if diff := cmp.Diff(want, d.stage(2)); diff != "" {
		t.Errorf("the second batch (-want +got)\n%s", diff)
	}
	d.commitVerdicts(6, 2, -1)
	d.commitVerdicts(8, 2, 0)
	d.submitted()
	if p := d.plan(); !p.Complete() || p.Items != 10 || p.Shards != 4 {
		t.Errorf("the complete plan: %+v", p)
	}
	members := map[string]bool{}
	d.each(func(l input.Line) {
		ticket, _, _ := strings.Cut(string(l.Bytes), `,"messages"`)
		members[ticket] = true
	})
	if len(members) != 10 {
		t.Errorf("its items are %v", members)
	}
}

func TestFileWithoutATicketHasAnEmptyPlan(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"empty": "", "nonsense": "no ticket\n[]\n"} {
		d := newRollout(t, file{text: text})
		d.submitted()
		if p := d.plan(); !p.Complete() || p.Items != 0 || p.Shards != 0 || p.Problem != "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// crashingPuts ends the process at the put of an object whose key ends so.
type crashingPuts struct {
	blob.Store
	suffix string
}

func (c crashingPuts) Put(ctx context.Context, key string, r io.Reader, o blob.PutOptions) (blob.Info, error) {
	if strings.HasSuffix(key, c.suffix) {
		return blob.Info{}, fault.New(fault.Unavailable, "the process ended")
	}
	return c.Store.Put(ctx, key, r, o)
}

// TestPlanOfARolloutGoesOnAfterACrash ends a planner at every object that it writes, and has
// another one go on. The plan must be that of one that never ended.
func TestPlanOfARolloutGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	lines := func(d *fixture) string {
		return hosttest.Object(t, d.Ports, record.AppendedKey(id, 1)) + hosttest.Object(t, d.Ports, record.AppendedKey(id, 2))
	}
	play := func(d *fixture, crash func(do func())) {
		crash(d.submitted)
		d.commitVerdicts(0, 4, 1)
		d.commitVerdicts(4, 2, -1)
		crash(d.submitted)
	}
	whole := newRollout(t, file{text: tickets(5)})
	play(whole, func(do func()) { do() })
	for _, suffix := range []string{"tickets.jsonl", "refused.jsonl", "order", "000001.json", "000002.json",
		record.AppendedKey(id, 1), record.AppendedKey(id, 2)} {
		d, crashed := newRollout(t, file{text: tickets(5)}), 0
		play(d, func(do func()) {
			blobs := d.Ports.Blobs
			d.Ports.Blobs = crashingPuts{blobs, suffix}
			d.Planner = plan.New(d.Ports, plan.Options{})
			if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
				crashed++
			}
			d.Ports.Blobs = blobs
			d.Planner = plan.New(d.Ports, plan.Options{})
			do()
		})
		if crashed != 1 || lines(d) != lines(whole) || d.plan().Shards != whole.plan().Shards ||
			!cmp.Equal(d.stage(2), whole.stage(2)) {
			t.Errorf("after %d crashes at %s the plan is %+v", crashed, suffix, d.plan())
		}
	}
}

// TestMovedTicketsAreReadUnderTheirNewVersion moves the file after it was pinned, before
// its tickets are read.
func TestMovedTicketsAreReadUnderTheirNewVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now  string
		want record.ProblemKind
	}{"the same bytes": {tickets(5), ""}, "other bytes": {tickets(6), record.InputChanged}} {
		d := newRollout(t, file{text: tickets(5)})
		blobs := d.Ports.Blobs
		d.Ports.Blobs = crashingPuts{blobs, "tickets.jsonl"}
		d.Planner = plan.New(d.Ports, plan.Options{})
		if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); !fault.Is(err, fault.Unavailable) {
			t.Fatalf("%s: it did not crash: %v", name, err)
		}
		d.Ports.Blobs = blobs
		d.Planner = plan.New(d.Ports, plan.Options{})
		hosttest.Put(t, d.Ports, "prompts/0.jsonl", c.now)
		d.submitted()
		if p := d.plan(); p.ProblemKind != c.want || (c.want == "") != (p.Items == 6) {
			t.Errorf("%s: the plan is %+v", name, p)
		}
	}
}
