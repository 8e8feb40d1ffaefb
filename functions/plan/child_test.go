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
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// parentID is the run that the fixture's run continues.
const parentID identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVD"

// parentRows are the rows of the parent's shards, in order: "" is an answer, and any
// other the class of an error row.
var parentRows = [][]fault.Class{
	{"", ""}, {fault.Refused, ""}, {fault.CanceledItem, fault.CanceledItem}, {"", fault.Expired}, {fault.Refused},
}

// child is a planner of a child run, and what its parent left.
type child struct {
	*fixture
	entries, completions, errors string
}

// newChild returns a planner of a run that asks the selected items of an ended parent
// again.
func newChild(t *testing.T, s record.Selection) *child {
	t.Helper()
	d := &child{fixture: newFixture(t, 2)}
	parent := inputtest.Manifest(2)
	parent.Run = parentID
	parent = inputtest.Plan(t, d.Ports, parent, inputtest.Prompts(0, 9))
	item, table := 0, []byte(nil)
	for _, rows := range parentRows {
		var e shardtable.FileEntry
		for _, class := range rows {
			if class == "" {
				row := fmt.Sprintf("{\"completion\":\"answer %d\",\"finish_reason\":%q}\n", item, endOf(item))
				d.completions, e.OK, e.Outputs = d.completions+row, e.OK+1, e.Outputs+uint64(len(row))
			} else {
				row := string(dialect.AppendError(nil, dialect.Plain, dialect.Failure{Class: class, Message: "no",
					Place: dialect.Place{Item: uint64(item), File: "prompts/0.jsonl", Line: uint64(item + 1)}}))
				d.errors, e.Failed, e.Errors = d.errors+row, e.Failed+1, e.Errors+uint64(len(row))
			}
			item++
		}
		table = e.Append(table)
	}
	d.entries = string(table)
	d.leave()
	d.end(run.CompletedWithErrors)
	d.m = parent
	d.m.Run, d.m.Parent = id, &record.Parent{Run: parentID, Selection: s}
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	return d
}

// endOf is the finish reason of an item's answer: that of item 3 was cut.
func endOf(item int) string {
	if item == 3 {
		return "length"
	}
	return "stop"
}

// leave writes what the parent leaves in the bucket.
func (d *child) leave() {
	for key, content := range d.files() {
		hosttest.Put(d.t, d.Ports, key, content)
	}
}

// files are what the parent leaves in the bucket, by key.
func (d *child) files() map[string]string {
	return map[string]string{record.FileEntriesKey(parentID): d.entries,
		record.OutputKey(parentID, record.CompletionsFile): d.completions,
		record.OutputKey(parentID, record.ErrorsFile):      d.errors}
}

// end sets the parent's phase.
func (d *child) end(p run.Phase) {
	s := run.New(parentID)
	s.Phase = p
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(parentID), s)
}

// editParent changes the parent's plan.
func (d *child) editParent(edit func(*record.Plan)) {
	p := hosttest.Load[record.Plan](d.t, d.Ports, record.PlanKey(parentID))
	edit(&p)
	hosttest.Save(d.t, d.Ports, record.PlanKey(parentID), p)
}

// inherited is the child's table.
func (d *child) inherited() []shardtable.Inherited {
	d.t.Helper()
	rows, err := shardtable.ParseInherited([]byte(hosttest.Object(d.t, d.Ports, record.InheritedKey(id))))
	if err != nil {
		d.t.Fatal(err)
	}
	return rows
}

// items selects items from lo to hi, hi excluded.
func items(lo, hi int) record.Selection {
	return record.Selection{Items: interval.Of(interval.Range{Lo: lo, Hi: hi})}
}

func only(words ...string) record.Selection { return record.Selection{Only: words} }

// A child touches each shard with a selected item, and counts the rows of all others
// as kept.
func TestChildTouchesTheShardsOfItsSelectedItems(t *testing.T) {
	t.Parallel()
	kept := func(ok, failed int, byClass map[string]int) shard.Counts {
		return shard.Counts{OK: ok, Kept: ok, Failed: failed, KeptFailed: failed, ByClass: byClass}
	}
	for name, c := range map[string]struct {
		selection record.Selection
		touched   string // a letter for each shard: t is touched
		kept      shard.Counts
	}{
		"failed":              {only(record.SelectFailed), "-tttt", kept(2, 0, nil)},
		"unanswered":          {only(record.SelectUnanswered), "--tt-", kept(3, 2, map[string]int{"refused": 2})},
		"a class":             {only("refused"), "-t--t", kept(3, 3, map[string]int{"canceled": 2, "expired": 1})},
		"two classes":         {only("expired", "canceled"), "--tt-", kept(3, 2, map[string]int{"refused": 2})},
		"all":                 {only(record.SelectAll), "ttttt", shard.Counts{}},
		"an answered item":    {items(1, 2), "t----", kept(2, 5, map[string]int{"canceled": 2, "expired": 1, "refused": 2})},
		"items of two shards": {items(3, 5), "-tt--", kept(3, 2, map[string]int{"expired": 1, "refused": 1})},
		"the last item":       {items(8, 9), "----t", kept(4, 4, map[string]int{"canceled": 2, "expired": 1, "refused": 1})},
		"items behind the last": {items(9, 99), "-----",
			kept(4, 5, map[string]int{"canceled": 2, "expired": 1, "refused": 2})},
		"answers that were cut": {record.Selection{Finish: []string{"length"}}, "-t---",
			kept(3, 4, map[string]int{"canceled": 2, "expired": 1, "refused": 1})},
		"answers that ended otherwise": {
			record.Selection{Finish: []string{"none", "length"}, Only: []string{"expired"}}, "-t-t-",
			kept(2, 3, map[string]int{"canceled": 2, "refused": 1})},
		"a class and an item": {record.Selection{Only: []string{"expired"}, Items: items(0, 1).Items}, "t--t-",
			kept(1, 4, map[string]int{"canceled": 2, "refused": 2})},
	} {
		d := newChild(t, c.selection)
		d.submitted()
		parent, p := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(parentID)), d.plan()
		if !p.Complete() || p.Inherited == nil || p.Inherited.Plan != parentID {
			t.Fatalf("%s: the plan is %+v", name, p)
		}
		if diff := cmp.Diff(c.kept, p.Inherited.Kept); diff != "" {
			t.Errorf("%s: kept is other than wanted:\n%s", name, diff)
		}
		if p.Inherited = nil; !cmp.Equal(p, parent) {
			t.Errorf("%s: the plan differs from the parent's:\n%s", name, cmp.Diff(parent, p))
		}
		touched := ""
		for _, row := range d.inherited() {
			touched += map[bool]string{true: "t", false: "-"}[row.Touched]
		}
		if touched != c.touched {
			t.Errorf("%s: the touched shards are %s, want %s", name, touched, c.touched)
		}
		if got := d.received(host.CoordinateQueue); len(got) != 1 {
			t.Errorf("%s: coordinate received %v", name, got)
		}
	}
}

// The table says where the rows of each shard are in the parent's files.
func TestChildFindsTheRowsOfEachShard(t *testing.T) {
	t.Parallel()
	d := newChild(t, only(record.SelectFailed))
	d.submitted()
	item := 0
	for n, row := range d.inherited() {
		if row.FirstItem != uint64(item) || row.Items() != len(parentRows[n]) {
			t.Errorf("shard %d has %d items from %d, want %d from %d", n, row.Items(), row.FirstItem, len(parentRows[n]), item)
		}
		completions := d.completions[row.OutputAt : row.OutputAt+row.Outputs]
		errs := d.errors[row.ErrorAt : row.ErrorAt+row.Errors]
		for i, class := range parentRows[n] {
			answer, failure := fmt.Sprintf("answer %d\"", item+i), fmt.Sprintf(`"line":%d,`, item+i+1)
			if strings.Contains(completions, answer) != (class == "") || strings.Contains(errs, failure) != (class != "") {
				t.Errorf("shard %d has the rows\n%s%s", n, completions, errs)
			}
		}
		if strings.Count(completions, "\n") != int(row.OK) || strings.Count(errs, "\n") != int(row.Failed) {
			t.Errorf("shard %d has the rows\n%s%s", n, completions, errs)
		}
		item += len(parentRows[n])
	}
}

// The child of a child uses the plan objects of their oldest ancestor, and reads the
// files of its parent alone.
func TestChildOfAChildUsesThePlanOfTheOldestRun(t *testing.T) {
	t.Parallel()
	const oldest identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVA"
	d := newChild(t, only("refused"))
	d.editParent(func(p *record.Plan) {
		p.Inherited = &record.Inheritance{Plan: oldest, Kept: shard.Counts{OK: 1, Kept: 1}}
	})
	d.submitted()
	if in := d.plan().Inherited; in == nil || in.Plan != oldest || in.Kept.OK != 3 || in.Kept.Failed != 3 {
		t.Errorf("it inherits %+v", in)
	}
}

// Planning a child again changes nothing, also if the call that wrote its table died
// before it wrote the plan.
func TestPlanningAChildAgainChangesNothing(t *testing.T) {
	t.Parallel()
	d := newChild(t, only("canceled"))
	d.submitted()
	table, before := d.inherited(), d.plan()
	doc, err := d.Docs.Get(t.Context(), record.PlanKey(id))
	if err == nil {
		err = d.Docs.Delete(t.Context(), record.PlanKey(id), doc.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.submitted()
		if p := d.plan(); !cmp.Equal(p, before) || !cmp.Equal(d.inherited(), table) {
			t.Errorf("the plan became %+v", p)
		}
	}
}

// A parent that can't be continued is a problem of the child. Once it is solved, a
// resumed child is planned.
func TestProblemOfAParentIsRecordedAndCleared(t *testing.T) {
	t.Parallel()
	entries, errs := record.FileEntriesKey(parentID), record.OutputKey(parentID, record.ErrorsFile)
	completions := record.OutputKey(parentID, record.CompletionsFile)
	put := func(key string, content func(*child) string) func(*child) {
		return func(d *child) { hosttest.Put(d.t, d.Ports, key, content(d)) }
	}
	gone := func(key string) func(*child) {
		return func(d *child) {
			if err := d.Ports.Blobs.Delete(d.t.Context(), key, ""); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	const damaged = "are not those that it wrote"
	for name, c := range map[string]struct {
		harm func(*child)
		want record.ProblemKind
		says string
	}{
		"it still runs": {func(d *child) { d.end(run.Running) }, record.InputBroken, "has not ended"},
		"its plan is incomplete": {func(d *child) { d.editParent(func(p *record.Plan) { p.Total++ }) },
			record.InputMissing, "has no complete plan"},
		"its plan grows": {func(d *child) { d.editParent(func(p *record.Plan) { p.Growing = true }) },
			record.InputMissing, "has no complete plan"},
		"its plan has a problem": {func(d *child) { d.editParent(func(p *record.Plan) { p.Problem = "a problem" }) },
			record.InputMissing, "has no complete plan"},
		"the entries are gone":     {gone(entries), record.InputMissing, entries},
		"the errors are gone":      {gone(errs), record.InputMissing, errs},
		"the completions are gone": {gone(completions), record.InputMissing, ""},
		"an entry is missing": {put(entries, func(d *child) string { return d.entries[shardtable.FileEntrySize:] }),
			record.InputBroken, damaged},
		"an entry is cut": {put(entries, func(d *child) string { return d.entries[1:] }), record.InputBroken, damaged},
		"an entry too many": {put(entries, func(d *child) string { return d.entries + d.entries }),
			record.InputBroken, damaged},
		"an error row is missing": {put(errs, func(d *child) string { return d.errors[:strings.LastIndex(d.errors, "{")] }),
			record.InputBroken, damaged},
		"an error row too many": {put(errs, func(d *child) string { return d.errors + d.errors }),
			record.InputBroken, damaged},
		"an error row is none": {put(errs, func(d *child) string {
			return strings.Replace(d.errors, "class", "clasp", 1)
		}), record.InputBroken, damaged},
		"error rows of other lengths": {put(errs, func(d *child) string {
			return strings.Replace(d.errors, "no", "none", 1)
		}), record.InputBroken, damaged},
		"an answer too many": {put(completions, func(d *child) string { return d.completions + "x\n" }),
			record.InputBroken, damaged},
	} {
		d := newChild(t, only(record.SelectUnanswered))
		before := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(parentID))
		c.harm(d)
		d.submitted()
		p := d.plan()
		if p.ProblemKind != c.want || !strings.Contains(p.Problem, "inherit from run "+string(parentID)) ||
			!strings.Contains(p.Problem, c.says) {
			t.Errorf("%s: the plan is %+v", name, p)
		}
		if got := d.received(host.CoordinateQueue); len(got) != 1 {
			t.Errorf("%s: coordinate received %v", name, got)
		}
		if _, err := d.Ports.Blobs.Stat(t.Context(), record.InheritedKey(id), ""); c.says == damaged && err == nil {
			t.Errorf("%s: it has a table all the same", name)
		}
		d.leave()
		d.end(run.CompletedWithErrors)
		d.editParent(func(p *record.Plan) { *p = before })
		d.submitted()
		if p := d.plan(); p.Problem != "" || p.ProblemKind != "" || !p.Complete() || len(d.inherited()) != len(parentRows) {
			t.Errorf("%s: afterwards the plan is %+v", name, p)
		}
	}
}

// A store that is unavailable is no problem of the parent: the call fails, and is tried
// again.
func TestChildIsPlannedAgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	d := newChild(t, only(record.SelectFailed))
	working := d.Ports
	for key := range d.files() {
		d.Ports.Blobs = unavailableBlobs{working.Blobs, key}
		d.Planner = plan.New(d.Ports, plan.Options{})
		err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)})
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("without %s: %v", key, err)
		}
		if _, err := d.Docs.Get(t.Context(), record.PlanKey(id)); !fault.Is(err, fault.NotFound) {
			t.Errorf("without %s the plan is written, %v", key, err)
		}
	}
	d.Ports, d.Planner = working, plan.New(working, plan.Options{})
	d.submitted()
	if p := d.plan(); !p.Complete() {
		t.Errorf("afterwards the plan is %+v", p)
	}
}

// unavailableBlobs is a store in which one object can't be read or asked for. Reads of
// it begin and break off.
type unavailableBlobs struct {
	blob.Store
	key string
}

var errAway = fault.New(fault.Unavailable, "the store is away")

func (u unavailableBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := u.Store.Get(ctx, key, o)
	if key == u.key && err == nil {
		r.Close()
		return io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{})), info, nil
	}
	return r, info, err
}

func (u unavailableBlobs) Stat(ctx context.Context, key, version string) (blob.Info, error) {
	if key == u.key {
		return blob.Info{}, errAway
	}
	return u.Store.Stat(ctx, key, version)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errAway }
