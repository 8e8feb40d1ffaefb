package compare_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/scripts/rollout/compare"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

const (
	runA identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVA"
	runB identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVB"
)

// item is an item of a run: "id=answer", "id!class" for a failed one, and "=answer" or
// "!class" for a line without an id.
type item string

func (i item) row(n int) (row []byte, failed bool) {
	id, answer, answered := strings.Cut(string(i), "=")
	line := `{"prompt":"p"}`
	if !answered {
		id, answer, _ = strings.Cut(string(i), "!")
	}
	if id != "" {
		line = fmt.Sprintf(`{"id":%q,"prompt":"p"}`, id)
	}
	it, err := dialect.Parse(dialect.Plain, []byte(line))
	if err != nil {
		panic(err)
	}
	m := dialect.NewModel("m", identity.Model("m", ""), config.Run{})
	own := it.RowID(it.ItemID(m, uint64(n)))
	if !answered {
		return dialect.AppendError(nil, dialect.Plain, it.Failure(own, dialect.Place{Item: uint64(n), Line: 1},
			fault.Class(answer), "no")), true
	}
	return dialect.AppendOutput(nil, it, m, dialect.Result{ID: own, Answers: []dialect.Answer{{Text: answer,
		FinishReason: "stop", Usage: dialect.Usage{PromptTokens: 2, CompletionTokens: int64(len(answer))}}}}), false
}

// run stores a run of the items, of that version of its input.
func run(t *testing.T, p host.Ports, id identity.RunID, version string, items ...item) compare.Run {
	t.Helper()
	r := compare.Run{Summary: record.Summary{Run: id, Items: uint64(len(items))}, Manifest: record.Manifest{Run: id,
		Name: "x", Kind: config.KindBatch, Dialect: string(dialect.Plain),
		Inputs: []record.Input{{Key: "prompts/x.jsonl", Version: version}}}}
	var outputs, errs []byte
	for n, i := range items {
		if row, failed := i.row(n); failed {
			errs = append(errs, row...)
		} else {
			outputs = append(outputs, row...)
		}
	}
	hosttest.Put(t, p, record.OutputKey(id, record.CompletionsFile), string(outputs))
	hosttest.Put(t, p, record.OutputKey(id, record.ErrorsFile), string(errs))
	return r
}

// pairs are the pairs of a comparison, as texts such as "a: 1 2" and "a: 1 -".
func pairs(t *testing.T, p host.Ports, a, b compare.Run, by compare.How) (out []string, how compare.How, err error) {
	t.Helper()
	text := func(r *compare.Row) string {
		switch {
		case r == nil:
			return "-"
		case r.Class != "":
			return "!" + string(r.Class)
		}
		return r.Answers[0]
	}
	folder := t.TempDir()
	o := compare.Options{By: by, Folder: folder}
	how, err = compare.Compare(t.Context(), p.Blobs, a, b, o, func(p compare.Pair) error {
		id := p.ID
		if len(id) == 64 {
			id = "?"
		}
		same := ""
		if p.Same {
			same = " same"
		}
		out = append(out, fmt.Sprintf("%s: %s %s%s", id, text(p.A), text(p.B), same))
		return nil
	})
	if left, readErr := os.ReadDir(folder); readErr != nil || len(left) > 0 {
		t.Errorf("temporary files are left: %v, %v", left, readErr)
	}
	return out, how, err
}

func TestItemsAreMatched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b     []item
		versionB string // "1" is that of the first run
		by       compare.How
		how      compare.How
		want     []string
	}{
		"the same input": {[]item{"a=1", "b=2"}, []item{"a=1", "b=3"}, "1", "", compare.ByIndex,
			[]string{"a: 1 1 same", "b: 2 3"}},
		"failed items shift nothing": {[]item{"a=1", "b!timeout", "c=3"}, []item{"a!refused", "b=2", "c=3"}, "1", "",
			compare.ByIndex, []string{"a: 1 !refused", "b: !timeout 2", "c: 3 3 same"}},
		"both failed": {[]item{"a!timeout"}, []item{"a!timeout"}, "1", "", compare.ByIndex,
			[]string{"a: !timeout !timeout same"}},
		"lines without ids": {[]item{"=1", "=2"}, []item{"=1", "=3"}, "2", "", compare.ByIndex,
			[]string{"?: 1 1 same", "?: 2 3"}},
		"no items": {nil, nil, "1", "", compare.ByIndex, nil},
		"another input in the same order": {[]item{"a=1", "b=2"}, []item{"a=1", "b=3"}, "2", "", compare.ByID,
			[]string{"a: 1 1 same", "b: 2 3"}},
		"a line is missing": {[]item{"a=1", "b=2", "c=3"}, []item{"a=1", "c=3"}, "2", "", compare.ByID,
			[]string{"a: 1 1 same", "b: 2 -", "c: 3 3 same"}},
		"a line is new": {[]item{"a=1", "c=3"}, []item{"a=1", "b=2", "c=3"}, "2", "", compare.ByID,
			[]string{"a: 1 1 same", "c: 3 3 same", "b: - 2"}},
		"another order": {[]item{"a=1", "b=2", "c=3"}, []item{"c=3", "a=1", "b=4"}, "2", "", compare.ByID,
			[]string{"a: 1 1 same", "b: 2 4", "c: 3 3 same"}},
		"a repeated id has no match": {[]item{"a=1", "a!duplicate_id", "b=2"},
			[]item{"a=1", "b=2", "a!duplicate_id"}, "2", "", compare.ByID,
			[]string{"a: 1 1 same", "a: !duplicate_id -", "b: 2 2 same", "a: - !duplicate_id"}},
		"some lines without ids": {[]item{"a=1", "=2"}, []item{"a=1", "=2"}, "2", "", compare.ByID,
			[]string{"a: 1 1 same", "?: 2 -", "?: - 2"}},
		"by id although the input is the same": {[]item{"a=1", "b=2"}, []item{"a=1", "b=2"}, "1", compare.ByID, compare.ByID,
			[]string{"a: 1 1 same", "b: 2 2 same"}},
	} {
		p := hosttest.New()
		got, how, err := pairs(t, p, run(t, p, runA, "1", c.a...), run(t, p, runB, c.versionB, c.b...), c.by)
		if err != nil || how != c.how {
			t.Errorf("%s: matched by %s, %v", name, how, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: pairs (-want +got):\n%s", name, diff)
		}
	}
}

// Runs in any order, with lines that only one has, are matched as by a map in memory.
func TestItemsInAnyOrderAreMatchedAsByAMap(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		p, r := hosttest.New(), rand.New(rand.NewPCG(seed, 1))
		draw := func() (items []item, byID map[string]string) {
			byID = map[string]string{}
			for _, n := range r.Perm(300) {
				id, answer := fmt.Sprintf("id-%d", n), fmt.Sprint(r.IntN(3))
				switch r.IntN(8) {
				case 0:
				case 1:
					items, byID[id] = append(items, item(id+"!timeout")), "!timeout"
				default:
					items, byID[id] = append(items, item(id+"="+answer)), answer
				}
			}
			return items, byID
		}
		as, a := draw()
		bs, b := draw()
		got, _, err := pairs(t, p, run(t, p, runA, "1", as...), run(t, p, runB, "2", bs...), "")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for id, answer := range a {
			text := fmt.Sprintf("%s: %s -", id, answer)
			if other, ok := b[id]; ok {
				text = fmt.Sprintf("%s: %s %s", id, answer, other)
				if answer == other {
					text += " same"
				}
			}
			want = append(want, text)
		}
		for id, answer := range b {
			if _, ok := a[id]; !ok {
				want = append(want, fmt.Sprintf("%s: - %s", id, answer))
			}
		}
		order := slices.Clone(got[:len(as)])
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: pairs (-want +got):\n%s", seed, diff)
		}
		for n, text := range order {
			id, _, _ := strings.Cut(text, ":")
			if a := string(as[n]); !strings.HasPrefix(a, id+"=") && !strings.HasPrefix(a, id+"!") {
				t.Fatalf("seed %d: pair %d is %s, and item %d of the first run is %s", seed, n, text, n, as[n])
			}
		}
	}
}

func TestWhatCannotBeMatchedIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b     []item
		versionB string
		by       compare.How
		kind     string // of the first run
		harm     func(host.Ports)
		want     fault.Kind
		says     string
	}{
		"other numbers of lines without ids": {a: []item{"=1"}, b: []item{"=1", "=2"}, versionB: "2", want: fault.Invalid,
			says: "1 and 2 items"},
		"other ids at an index": {a: []item{"a=1"}, b: []item{"b=1"}, versionB: "2", by: compare.ByIndex, want: fault.Invalid,
			says: "match them with --by id"},
		"another way": {by: "name", versionB: "1", want: fault.Invalid, says: "use index or id"},
		"a training":  {kind: config.KindTrain, versionB: "1", want: fault.Invalid, says: "training"},
		"a rollout":   {kind: config.KindRollout, versionB: "1", want: fault.Invalid, says: "rollout report"},
		"a row is missing": {a: []item{"a=1", "b=2"}, b: []item{"a=1", "b=2"}, versionB: "1", want: fault.Corrupt,
			harm: func(p host.Ports) { hosttest.Put(t, p, record.OutputKey(runA, record.CompletionsFile), "") },
			says: "one row of each"},
	} {
		p := hosttest.New()
		a, b := run(t, p, runA, "1", c.a...), run(t, p, runB, c.versionB, c.b...)
		if c.kind != "" {
			a.Manifest.Kind = c.kind
		}
		if c.harm != nil {
			c.harm(p)
		}
		_, _, err := pairs(t, p, a, b, c.by)
		if !fault.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTotalsSumUpAComparison(t *testing.T) {
	t.Parallel()
	p := hosttest.New()
	a := run(t, p, runA, "1", "a=same", "b=short", "c=x", "d!timeout", "e!timeout")
	b := run(t, p, runB, "1", "a=same", "b=longer", "c!engine", "d=y", "e!refused")
	totals, err := compare.NewTotals(a, b)
	if err != nil {
		t.Fatal(err)
	}
	how, err := compare.Compare(t.Context(), p.Blobs, a, b, compare.Options{}, func(p compare.Pair) error {
		totals.Add(p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	totals.End(how)
	if totals.Items != 5 || totals.Same != 1 || totals.Differ != 1 || totals.BothFail != 1 || *totals.Agreement != 0.5 ||
		totals.A.AnsweredOnly != 1 || totals.B.AnsweredOnly != 1 || totals.A.Answered != 3 || totals.A.Failed != 2 ||
		*totals.A.Characters != 10.0/3 || *totals.B.Tokens != 11.0/3 || totals.A.Score != nil {
		t.Errorf("%+v", totals)
	}
}
