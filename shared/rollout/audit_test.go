package rollout

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/guidance"
	"rollout/shared/record"
)

// TestAuditOfASoundRunHolds reads the audit of a run with all kinds of outcomes.
func TestAuditOfASoundRunHolds(t *testing.T) {
	t.Parallel()
	f := smallRun(t)
	outcomes, _ := f.run(1000, func(_ int, line string) answer { return saysIt(t, line) })
	sum, err := f.ended(f.blobs, len(outcomes)).Publish(t.Context())
	f.check(err)
	var a Audit
	f.check(json.Unmarshal([]byte(f.object(record.OutputKey(testRun, AuditFile))), &a))
	if len(sum.Unsound) > 0 || len(a.Checks) != 4 {
		t.Errorf("unsound: %v; the checks are %+v", sum.Unsound, a.Checks)
	}
	labelled, right := 0, 0
	for _, m := range a.Missions {
		labelled, right = labelled+m.Labelled, right+m.Right
	}
	if got := float64(right) / float64(labelled); *sum.Accuracy != got {
		t.Errorf("the accuracy is %v, and %v in the audit", *sum.Accuracy, got)
	}
}

// TestAuditNamesWhatDoesNotHold has one fault in each run.
func TestAuditNamesWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	c := config.Run{Decodes: []config.Decode{{Samples: 2}, {}}}
	f := newFixture(t, c, ticketLine("a", "yes"), ticketLine("b", "no"))
	outcomes, _ := f.run(1000, func(int, string) answer { return answer{text: "yes"} })
	reader, err := NewReader(f.m.Config)
	f.check(err)
	groups := func() (gs []Group) {
		for n := 0; n < len(outcomes); n += 3 {
			g, err := reader.Read(outcomes[n : n+3])
			f.check(err)
			gs = append(gs, g)
		}
		return gs
	}
	for _, c := range []struct {
		name   string
		damage func(gs []Group) []Group
		want   string
	}{
		{"nothing", func(gs []Group) []Group { return gs }, ""},
		{"a later step", func(gs []Group) []Group { gs[1].members[0].Step = 1; return gs }, checkGuidance},
		{"a ticket twice", func(gs []Group) []Group { return []Group{gs[0], gs[0]} }, checkTickets},
		{"a missing ticket", func(gs []Group) []Group { return gs[:1] }, checkTickets},
		{"a missing answer", func(gs []Group) []Group { gs[0].members = gs[0].members[:2]; return gs }, checkRows},
		{"a sample twice", func(gs []Group) []Group { gs[0].members[1] = gs[0].members[0]; return gs }, checkRows},
		{"another seed", func(gs []Group) []Group { gs[0].members[2].Seed++; return gs }, checkSeeds},
	} {
		a := newAuditor(f.m)
		for _, g := range c.damage(groups()) {
			a.add(g)
		}
		got, err := a.finish(2, func(mission string) (guidance.Guidance, error) {
			return readGuidance(t.Context(), f.blobs, testRun, mission, 0)
		})
		f.check(err)
		for _, check := range got.Checks {
			if check.Holds != (check.Name != c.want) {
				t.Errorf("%s: %+v", c.name, check)
			}
		}
	}
}

func TestAuditNoticesOtherGuidance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, config.Run{}, ticketLine("a", "yes"))
	other, err := guidance.New("spam", "", []string{"Be wrong."})
	f.check(err)
	got, err := newAuditor(f.m).finish(0, func(string) (guidance.Guidance, error) { return other, nil })
	f.check(err)
	if got.Checks[0].Holds || !got.Checks[1].Holds {
		t.Errorf("the checks are %+v", got.Checks)
	}
}

// TestEstimateIsWilsons has values of a published table.
func TestEstimateIsWilsons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		right, n  int
		low, high float64
	}{{8, 10, 0.4902, 0.9433}, {0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {81, 263, 0.2553, 0.3662}} {
		e := estimate(c.right, c.n)
		if math.Abs(e.Low-c.low) > 1e-4 || math.Abs(e.High-c.high) > 1e-4 {
			t.Errorf("%d of %d: %s", c.right, c.n, fmt.Sprint(*e))
		}
	}
	if estimate(0, 0) != nil {
		t.Error("nothing has an estimate")
	}
}
