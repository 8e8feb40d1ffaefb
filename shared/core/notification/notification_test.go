package notification_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/shared/core/notification"
	"rollout/shared/core/run"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// at returns noon plus some minutes.
func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// TestRunsAreToldOnce looks at a run again and again. Each line of a script is a phase, the
// minute in which its pause began, and what is used of a budget and its limit.
func TestRunsAreToldOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ script, want string }{
		"a run that completes":        {"running 0 0/0; finalizing 0 0/0; completed 0 0/0", "- - run_completed"},
		"errors are no failure":       {"completed_with_errors 0 0/0", "run_completed"},
		"a run that fails":            {"failed 0 0/0", "run_failed"},
		"a deadline":                  {"expired 0 0/0", "run_failed"},
		"a budget that is used up":    {"over_budget 0 100/100", "run_failed"},
		"a user stops it":             {"ending 0 0/0; stopped 0 0/0", "- run_stopped"},
		"the end is told once":        {"completed 0 0/0; completed 0 0/0", "run_completed -"},
		"nothing follows the end":     {"stopped 0 0/0; paused 3 90/100", "run_stopped -"},
		"a pause when it is settled":  {"pausing 3 0/0; paused 3 0/0; paused 3 0/0", "- run_paused -"},
		"a pause that is interrupted": {"pausing 3 0/0; interrupted 3 0/0", "- run_paused"},
		"each pause once":             {"paused 3 0/0; running 0 0/0; paused 5 0/0", "run_paused - run_paused"},
		"a pause between two looks":   {"paused 3 0/0; paused 5 0/0", "run_paused run_paused"},
		"little of a budget is left":  {"running 0 79/100; running 0 80/100; running 0 99/100", "- budget_low -"},
		"a raised budget":             {"running 0 80/100; running 0 90/200; running 0 170/200", "budget_low - budget_low"},
		"no budget":                   {"running 0 80/0", "-"},
		"a budget, then a pause":      {"paused 1 80/100", "budget_low,run_paused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m notification.RunMemory
			var got []string
			for _, line := range strings.Split(c.script, "; ") {
				var phase string
				var minute int
				b := notification.Budget{Name: "tokens"}
				if _, err := fmt.Sscanf(line, "%s %d %g/%g", &phase, &minute, &b.Used, &b.Limit); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				v := notification.RunView{Phase: run.Phase(phase), PausedAt: at(minute), Budgets: []notification.Budget{b}}
				next, changes := m.Next(v)
				var told []string
				for _, x := range changes {
					told = append(told, string(x.Kind))
				}
				if len(told) == 0 {
					told = []string{"-"}
				}
				m, got = next, append(got, strings.Join(told, ","))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("told %q, want %q", s, c.want)
			}
		})
	}
}

func TestLookingChangesNoEarlierMemory(t *testing.T) {
	t.Parallel()
	low := func(limit float64) notification.RunView {
		b := notification.Budget{Name: "tokens", Used: limit, Limit: limit}
		return notification.RunView{Phase: run.Running, Budgets: []notification.Budget{b}}
	}
	first, _ := notification.RunMemory{}.Next(low(100))
	if _, changes := first.Next(low(200)); len(changes) != 1 {
		t.Fatalf("a raised limit gives %v", changes)
	}
	if got := first.Budgets["tokens"]; got != 100 {
		t.Errorf("the memory before has the limit %v", got)
	}
}

// TestPoolProblemsAreToldWhenTheyBeginAndDaily has the minutes of reports; "!" marks those that
// are told.
func TestPoolProblemsAreToldWhenTheyBeginAndDaily(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"the first one":                "stock@0! stock@0",
		"it lasts":                     "stock@0! stock@10 stock@60 stock@110",
		"it comes back":                "stock@0! stock@10 stock@70!",
		"another problem":              "stock@0! quota@1! stock@2 quota@3",
		"a day":                        "stock@0! " + every("stock", 30, 1410) + " stock@1440! stock@1470",
		"reports that arrive too late": "stock@10! stock@5",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var m notification.PoolMemory
			for _, report := range strings.Fields(script) {
				word, want := strings.CutSuffix(report, "!")
				kind, minute, _ := strings.Cut(word, "@")
				var n int
				if _, err := fmt.Sscan(minute, &n); err != nil {
					t.Fatal(err)
				}
				next, told := m.Next(notification.Problem{Kind: notification.Kind(kind), At: at(n)})
				if told != want {
					t.Errorf("%s: told %v", report, told)
				}
				m = next
			}
		})
	}
}

// every returns reports of a kind in steps of some minutes.
func every(kind string, step, last int) string {
	var all []string
	for n := step; n <= last; n += step {
		all = append(all, fmt.Sprintf("%s@%d", kind, n))
	}
	return strings.Join(all, " ")
}
