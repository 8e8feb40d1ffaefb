package progress

import (
	"bytes"
	"strings"
	"testing"

	"rollout/functions/status"
	"rollout/shared/core/run"
	"rollout/shared/record"
)

func TestClosedBarKeepsItsLastState(t *testing.T) {
	t.Parallel()
	middle := status.Status{Run: "x", Name: "n\x1b[2J", Phase: run.Running,
		Items: status.Items{Total: 10, Done: 3, Failed: 1, Planned: true}}
	end := middle
	end.Phase, end.Items.Done = run.Stopped, 9
	judged := middle
	judged.Items = status.Items{Total: 10, Done: 10}
	judged.Roles = []status.Role{{RoleCounts: record.RoleCounts{Name: "answer", Items: 10, Completed: 10}},
		{RoleCounts: record.RoleCounts{Name: "judge-style", Items: 8, Completed: 2, Failed: 1}},
		{RoleCounts: record.RoleCounts{Name: "judge-tone"}}} // not planned yet
	for name, c := range map[string]struct {
		updates []status.Status
		want    string
	}{
		"judged":        {[]status.Status{judged}, "100%  10 of 10, judged 3/8"},
		"running":       {[]status.Status{middle}, "40%  4 of 10, 1 failed"},
		"ended":         {[]status.Status{middle, end}, "100%  10 of 10, 1 failed"},
		"without items": {[]status.Status{{Run: "x", Name: "nightly", Phase: run.Failed}}, "failed"},
		"not started":   {nil, "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			b := newBar(&out, false)
			for _, s := range c.updates {
				b.Update(s, Pace{})
			}
			b.Note("a note")
			b.Close()
			got := out.String()
			if !strings.Contains(got, c.want) || !strings.Contains(got, "a note\n") || strings.Contains(got, "\x1b[2J") {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
