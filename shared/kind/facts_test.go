package kind_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// The facts of a rollout say which member an item is, by its line.
func TestFactsOfARolloutNameItsMembers(t *testing.T) {
	t.Parallel()
	k, err := kind.Table{}.Of(config.KindRollout)
	if err != nil {
		t.Fatal(err)
	}
	number := func(n int64) kind.Value { return kind.Value{Integer: &n} }
	name := func(s string) kind.Value { return kind.Value{Text: &s} }
	for line, want := range map[string][]kind.Value{
		`{"id":"t7.e1.d2.s3","messages":[],"ticket_number":7,"ticket":{"group_id":"g","mission":"spam","label":"yes"},` +
			`"epoch":1,"batch":4,"step":5,"decode":2,"sample":3,"seed":1}`: {name("spam"), name("g"), number(7), number(1),
			number(4), number(5), number(2), number(3)},
		`{"id":"t0.e0.d0.s0","ticket_number":0,"ticket":{"group_id":"g"},"epoch":0,"batch":0,` +
			`"step":0,"decode":0,"sample":0}`: {
			{}, name("g"), number(0), number(0), number(0), number(0), number(0), number(0)},
	} {
		got, err := k.Facts.ValuesOf(record.Manifest{}, []byte(line))
		if err != nil || len(got) != len(k.Facts.Columns) {
			t.Fatalf("%d values of %d columns, %v", len(got), len(k.Facts.Columns), err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", line, d)
		}
		for n, v := range got {
			if c := k.Facts.Columns[n]; v.Text != nil && c.Integer || v.Integer != nil && !c.Integer {
				t.Errorf("%s has a value of another type", c.Name)
			}
		}
	}
	for _, line := range []string{``, `{}`, `{"ticket_number":"x"}`} {
		if _, err := k.Facts.ValuesOf(record.Manifest{}, []byte(line)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%q: %v, want Corrupt", line, err)
		}
	}
}

func TestFactsOfTrialsNameThem(t *testing.T) {
	t.Parallel()
	k, err := kind.Table{}.Of(config.KindTrials)
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.Facts.ValuesOf(record.Manifest{}, []byte(`{"id":"x","prompt":"p",`+
		`"trial":{"schedule_idx":9,"slot":4,"trial_id":"t1.a.r2",`+
		`"task":"add","variant":"a","replication":2}}`))
	if err != nil || len(got) != len(k.Facts.Columns) {
		t.Fatalf("%d values of %d columns, %v", len(got), len(k.Facts.Columns), err)
	}
	want := []kind.Value{{Text: new("add")}, {Text: new("a")}, {Integer: new(int64(2))}, {Integer: new(int64(9))},
		{Integer: new(int64(4))}, {Text: new("t1.a.r2")}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if _, err := k.Facts.ValuesOf(record.Manifest{}, []byte(`{"id":"x"}`)); !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want Corrupt", err)
	}
}
