package progress

import (
	"bytes"
	"strings"
	"testing"

	"rollout/functions/api"
	"rollout/shared/core/run"
)

func TestABarEndsWithWhatItShowedLast(t *testing.T) {
	t.Parallel()
	middle := api.Status{Run: "x", Name: "n\x1b[2J", Phase: run.Running, Items: api.Items{Total: 10, Done: 3, Failed: 1, Planned: true}}
	end := middle
	end.Phase, end.Items.Done = run.Stopped, 9
	for name, c := range map[string]struct {
		looks []api.Status
		want  string
	}{
		"in the middle":          {[]api.Status{middle}, "4/10 40% 1 failed"},
		"at the end":             {[]api.Status{middle, end}, "10/10 100% 1 failed"},
		"of a run without items": {[]api.Status{{Run: "x", Name: "nightly", Phase: run.Failed}}, "failed"},
		"of a run never seen":    {nil, "waiting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			b := newBar(&out)
			for _, s := range c.looks {
				b.Update(s, Pace{})
			}
			b.Note("a note")
			b.Close()
			if got := out.String(); !strings.Contains(got, c.want) || !strings.Contains(got, "a note\n") || strings.Contains(got, "\x1b[2J") {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}
