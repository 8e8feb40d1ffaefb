package e2e

import (
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/shared/core/identity"
)

// Items that a broken server refused are asked again in a child of their run, and in a
// child of that one, while a worker is killed. On the laptop and on the stack the files
// of each run are the same, and those of the last one are those of a whole server.
func TestChildrenHaveTheFilesOfChildrenOnALaptop(t *testing.T) {
	t.Parallel()
	const key = "prompts/sour.jsonl"
	content := mixedPrompts(160)
	s := serveMendable(t, "--latency", "10ms", "--refuse", "number 3")
	a := open(t, s.llm, "max_machines = 2\nidle = '1m'", nil)
	if err := a.Groups.SetDesired(a.group, 2); err != nil {
		t.Fatal(err)
	}
	l := laptop{t, t.TempDir(), s.url}
	onLaptop, onStack := l.complete(key, content), a.put(key, content)
	parent := l.outcome(onLaptop)
	wantSame(t, a.awaitEnd(onStack), parent)
	for n, step := range []struct {
		refuse, class string
	}{{"number 33", "refused"}, {"nothing of this", "refused"}} {
		s.mend("--latency", "10ms", "--refuse", step.refuse)
		retry := func(environment []string, of identity.RunID, args ...string) identity.RunID {
			return runID(t, do(t, environment, append([]string{"retry", string(of), "--class", step.class}, args...)...))
		}
		onLaptop = retry(nil, onLaptop, "--dir", l.dir)
		_ = l.up() // it fails if items fail
		want, asked := l.outcome(onLaptop), s.requests()
		onStack = retry(a.environment(), onStack, "--cloud", "aws", "--dir", a.dir)
		eventually(t, "the child is under way", func() bool { return s.requests() > asked || a.hasEnded(onStack) })
		if in := a.Groups.Instances(a.group); n == 0 && len(in) > 0 {
			in[0].KillProcess()
		}
		wantSame(t, a.awaitEnd(onStack), want)
		if want.summary.Completed <= parent.summary.Completed {
			t.Errorf("%d answers after a retry, %d before", want.summary.Completed, parent.summary.Completed)
		}
		parent = want
	}
	wantSame(t, parent, local(t, s.llm, key, content))
	a.wantLooks(onStack)
	a.wantNoLoops()
}

// wantLooks checks that the commands which look inside a run read an ended child on the
// stack: a tail of its file, one of its items, and a comparison with itself.
func (a *awsInstallation) wantLooks(id identity.RunID) {
	a.t.Helper()
	// rows is what a command writes besides its progress. It may fail because items of the
	// run failed; then it writes all the same.
	rows := func(args ...string) (out string) {
		all, _ := rollout(a.t, a.environment(), append(args, "--cloud", "aws", "--dir", a.dir)...)
		for line := range strings.Lines(all) {
			if strings.HasPrefix(line, "{") {
				out += line
			}
		}
		return out
	}
	if got, want := rows("results", string(id), "--follow"), rows("results", string(id)); got != want || got == "" {
		a.t.Errorf("the tail of the file is %.200q, want %.200q", got, want)
	}
	if got := rows("show", string(id), "0", "--json"); !strings.Contains(got, `"item":0,`) ||
		!strings.Contains(got, `"prompt":`) {
		a.t.Errorf("item 0 is shown as %s", got)
	}
	if got := rows("compare", string(id), string(id), "--json"); !strings.Contains(got, `"agreement":1,`) {
		a.t.Errorf("the run and itself: %s", got)
	}
}

// mendable is a server whose faults change while its address stays.
type mendable struct {
	llm
	now atomic.Pointer[url.URL]
}

// serveMendable starts a server with these faults.
func serveMendable(t *testing.T, faults ...string) *mendable {
	t.Helper()
	m := &mendable{llm: llm{t: t}}
	m.mend(faults...)
	front := httptest.NewServer(&httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), // of aborted requests
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(m.now.Load()) }})
	t.Cleanup(front.Close)
	m.url = front.URL
	return m
}

// mend replaces the server by one with these faults alone.
func (m *mendable) mend(faults ...string) {
	m.t.Helper()
	at, err := url.Parse(serve(m.t, faults...).url)
	if err != nil {
		m.t.Fatal(err)
	}
	m.now.Store(at)
}

var anyRunID = regexp.MustCompile("[0-9A-HJKMNP-TV-Z]{26}")

// runID is the id of a run in the output of a command.
func runID(t *testing.T, output string) identity.RunID {
	t.Helper()
	id := anyRunID.FindString(output)
	if id == "" {
		t.Fatalf("the output names no run: %s", output)
	}
	return identity.RunID(id)
}
