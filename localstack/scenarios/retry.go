package scenarios

import (
	"strings"
	"testing"
	"time"

	"rollout/localstack/fakellm"
	"rollout/shared/core/identity"
)

// Items that a broken server refused are asked again in a child of their run, and in a
// child of that one, while a worker is killed. On the laptop and in the cloud the files of
// each run are the same, and those of the last one are those of a whole server.
func childrenOfARun(t *testing.T, c Cloud) {
	const key = "prompts/sour.jsonl"
	content := MixedPrompts(160)
	refusing := func(prompts string) fakellm.Config {
		return fakellm.Config{Latency: 10 * time.Millisecond, Faults: fakellm.Faults{Refuse: prompts}}
	}
	d := deploy(t, c, refusing("number 3"), Settings{Machines: 2})
	l := NewLaptop(t, c.Program, d.engine(), SmallShards)
	onLaptop, inCloud := l.Complete(key, content), d.Put(key, content)
	parent := l.Outcome(onLaptop)
	WantSame(t, d.AwaitEnd(inCloud), parent)
	before := inCloud
	for n, refused := range []string{"number 33", ""} {
		d.server.Mend(t, refusing(refused))
		out, err := Rollout(t, c.Program, nil, "retry", string(onLaptop), "--class", "refused", "--dir", l.dir)
		if err != nil {
			t.Fatalf("retry: %v: %s", err, out)
		}
		onLaptop = runID(t, out)
		l.up()
		want, asked := l.Outcome(onLaptop), d.server.Requests()
		before, inCloud = inCloud, runID(t, d.Do("retry", string(inCloud), "--class", "refused"))
		d.awaitRequests(inCloud, asked, 1)
		if all := d.Machines(); n == 0 && len(all) > 0 {
			all[0].Kill()
		}
		WantSame(t, d.AwaitEnd(inCloud), want)
		if want.Summary.Completed <= parent.Summary.Completed {
			t.Errorf("%d answers after a retry, %d before", want.Summary.Completed, parent.Summary.Completed)
		}
		parent = want
	}
	WantSame(t, parent, d.Local(key, content))
	d.wantLooks(inCloud, before)
	d.Check()
}

// wantLooks checks that the commands which look inside a run read an ended child: a tail of
// its file, one of its items, and a comparison with its parent.
func (d *Fixture) wantLooks(id, parent identity.RunID) {
	d.t.Helper()
	// rows is what a command writes besides its progress. It may fail because items of the
	// run failed; then it writes all the same.
	rows := func(args ...string) (out string) {
		all, err := d.Command(args...)
		for line := range strings.Lines(all) {
			if strings.HasPrefix(line, "{") {
				out += line
			}
		}
		if out == "" {
			d.t.Errorf("rollout %v writes no row: %v\n%s", args, err, all)
		}
		return out
	}
	if got, want := rows("results", string(id), "--follow"), rows("results", string(id)); got != want {
		d.t.Errorf("the tail of the file is %.200q, want %.200q", got, want)
	}
	if got := rows("show", string(id), "0", "--json"); !strings.Contains(got, `"item":0,`) ||
		!strings.Contains(got, `"prompt":`) {
		d.t.Errorf("item 0 is shown as %s", got)
	}
	if got := rows("compare", string(parent), string(id), "--json"); !strings.Contains(got, `"agreement":1,`) {
		d.t.Errorf("the run and its parent: %s", got)
	}
}
