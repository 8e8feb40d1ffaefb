package aws

import (
	"slices"
	"strings"
	"testing"
	"time"

	problems "rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// setClock is a clock that tests set.
type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }

// notingFleet returns the fleet of s, its clock, and what it notes about the pool p.
func notingFleet(t *testing.T, s *scaling) (*Fleet, *setClock, func() record.Fleet) {
	f := s.fleet(t, "")
	docs := memory.NewDocuments()
	at := &setClock{time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	f.options.Docs, f.options.Clock = docs, at
	return f, at, func() (d record.Fleet) {
		t.Helper()
		if _, _, err := host.Load(t.Context(), docs, record.FleetKey("p"), &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// note stands for what interrupt notes.
func note(t *testing.T, f *Fleet, at time.Time, why string) {
	t.Helper()
	if err := f.update(t.Context(), "p", func(d record.Fleet) (record.Fleet, bool) {
		return d.NoteAbsence(at, problems.Quota, why)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestLaunchThatAutoScalingSuspendedIsResumedAndTold(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8, desired: 1, suspended: "administrative suspension"}
	f, at, noted := notingFleet(t, s)
	note(t, f, at.now.Add(-time.Hour), "VcpuLimitExceeded")
	if err := f.ScaleUp(t.Context(), "p", 2); err != nil {
		t.Fatal(err)
	}
	d := noted()
	if s.suspended != "" || s.desired != 2 || d.Problem != problems.Suspended || !d.AbsentAt.Equal(at.now) ||
		d.Desired != 2 || d.Absent != "Auto Scaling had suspended the process Launch of the group rollout-p, as it does "+
		"after a day without a machine (administrative suspension); it is resumed; before that: VcpuLimitExceeded" {
		t.Errorf("suspended %q, desired %d, noted %+v", s.suspended, s.desired, d)
	}
	s.calls = nil
	if err := f.ScaleUp(t.Context(), "p", 2); err != nil || !slices.Equal(s.calls, []string{"DescribeAutoScalingGroups"}) {
		t.Errorf("after it was resumed: %v, %v", s.calls, err)
	}
}

// A user who suspends the process Launch wants no machine.
func TestLaunchThatAUserSuspendedStaysSo(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8, suspended: "User suspended at 2026-11-30T08:00:00Z"}
	f, at, noted := notingFleet(t, s)
	first := at.now
	for range 9 {
		if err := f.ScaleUp(t.Context(), "p", 1); err != nil {
			t.Fatal(err)
		}
		at.now = at.now.Add(time.Minute)
	}
	d := noted()
	if s.suspended == "" || slices.Contains(s.calls, "ResumeProcesses") || !d.AbsentAt.Equal(first) ||
		!strings.Contains(d.Absent, "a user has suspended the process Launch of the group rollout-p (User susp") ||
		!strings.Contains(d.Absent, "aws autoscaling resume-processes") {
		t.Errorf("suspended %q after %v, noted %+v", s.suspended, s.calls, d)
	}
	at.now = at.now.Add(time.Minute)
	if err := f.ScaleUp(t.Context(), "p", 1); err != nil || !noted().AbsentAt.Equal(at.now) {
		t.Errorf("after ten minutes: %v, noted %+v", err, noted())
	}
}

func TestWithdrawLowersTheSizeToTheMachinesThatExist(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		desired   int
		instances []string
		want      int
	}{
		"none came":       {3, nil, 0},
		"some came":       {3, []string{"i-1", "i-2 Pending"}, 2},
		"all came":        {2, []string{"i-1", "i-2"}, 2},
		"one leaves":      {2, []string{"i-1", "i-2 Terminating:Wait"}, 1},
		"more than asked": {1, []string{"i-1", "i-2"}, 1},
	} {
		s := &scaling{name: "rollout-p", maximum: 8}
		f, _, noted := notingFleet(t, s)
		if err := f.ScaleUp(t.Context(), "p", c.desired); err != nil {
			t.Fatal(err)
		}
		s.instances, s.calls = c.instances, nil
		err := f.Withdraw(t.Context(), "p")
		if err != nil || s.desired != c.want || noted().Desired != c.want {
			t.Errorf("%s: desired %d, %v, noted %+v, want %d", name, s.desired, err, noted(), c.want)
		}
		if wrote := slices.Contains(s.calls, "SetDesiredCapacity"); wrote != (c.want < c.desired) {
			t.Errorf("%s: %v", name, s.calls)
		}
		s.calls = nil
		if err := f.Withdraw(t.Context(), "p"); err != nil || c.want == 0 && len(s.calls) > 0 {
			t.Errorf("%s: without machines it asks Auto Scaling: %v, %v", name, s.calls, err)
		}
	}
}

func TestWithdrawOfAMissingGroupIsOver(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8}
	f, _, noted := notingFleet(t, s)
	if err := f.ScaleUp(t.Context(), "p", 1); err != nil {
		t.Fatal(err)
	}
	s.deleted = true
	if err := f.Withdraw(t.Context(), "p"); err != nil || noted().Desired != 0 {
		t.Errorf("%v, noted %+v", err, noted())
	}
	s.deleted, s.refuse, s.desired = false, "AccessDenied", 1
	if err := f.Withdraw(t.Context(), "p"); err != nil {
		t.Errorf("without machines: %v", err)
	}
}

func TestLaunchThatCannotBeResumedIsTold(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8, desired: 1, suspended: "administrative suspension",
		denied: "ResumeProcesses"}
	f, _, noted := notingFleet(t, s)
	if err := f.ScaleUp(t.Context(), "p", 3); !fault.Is(err, fault.Denied) || s.desired != 3 {
		t.Errorf("%v, desired %d", err, s.desired)
	}
	if d := noted(); !strings.Contains(d.Absent, "it can't be resumed") {
		t.Errorf("noted %+v", d)
	}
}

// Otherwise a function that ends between the two would leave a group that nothing withdraws.
func TestSizeIsNotedBeforeItIsAskedFor(t *testing.T) {
	t.Parallel()
	s := &scaling{name: "rollout-p", maximum: 8, denied: "SetDesiredCapacity"}
	f, _, noted := notingFleet(t, s)
	if err := f.ScaleUp(t.Context(), "p", 3); !fault.Is(err, fault.Denied) || noted().Desired != 3 {
		t.Fatalf("%v, noted %+v", err, noted())
	}
	s.denied, s.desired = "", 3 // the group got the request, and the function ended
	if err := f.Withdraw(t.Context(), "p"); err != nil || s.desired != 0 || noted().Desired != 0 {
		t.Errorf("%v, desired %d, noted %+v", err, s.desired, noted())
	}
}
