package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"rollout/shared/core/run"
)

// Whichever way a file takes into the bucket, packed or not, it is one run
// with the same answers.
func TestUploadsByEveryRoad(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallBites)
	prompts := mixedPrompts(32)
	calm := i.submit(write(t, filepath.Join(t.TempDir(), "calm.jsonl"), prompts))
	i.ends(calm)
	want := i.outcome(calm).completions
	for _, road := range []struct {
		name string // of the file
		take func(t *testing.T, name string)
	}{
		{"copied.jsonl", func(t *testing.T, name string) { write(t, i.bucket("prompts/"+name), prompts) }},
		{"moved.jsonl", func(_ *testing.T, name string) { i.move(name, prompts) }},
		{"submitted.jsonl", func(t *testing.T, name string) {
			do(t, 1, "submit", "--wait", "--dir", i.dir, write(t, filepath.Join(t.TempDir(), name), prompts)).
				wantStderr("items failed") // motley has bad lines
		}},
		{"posted.jsonl", func(t *testing.T, name string) {
			write(t, i.bucket("prompts/"+name), prompts)
			i.announce(t, name)
		}},
		{"packed.jsonl.gz", func(t *testing.T, name string) { i.move(name, gzipped(t, prompts)) }},
		{"packed.jsonl.zst", func(t *testing.T, name string) { i.move(name, zstandard(t, prompts)) }},
	} {
		t.Run(road.name, func(t *testing.T) {
			i := i.within(t)
			road.take(t, road.name)
			s := i.onlyRunOf(road.name)
			if s.Phase != run.CompletedWithErrors {
				t.Errorf("the run is %s: %s", s.Phase, s.Message)
			}
			wantSameLines(t, "completions.jsonl", i.outcome(s.Run).completions, want)
		})
	}
}

// within is the same installation, for a subtest.
func (i *testInstallation) within(t *testing.T) *testInstallation {
	j := *i
	j.t = t
	return &j
}

// announce posts an object's key to the API.
func (i *testInstallation) announce(t *testing.T, name string) {
	t.Helper()
	code, body := ask(t, http.MethodPost, i.url+"/v1/runs", fmt.Sprintf(`{"key":%q}`, "prompts/"+name))
	if code != http.StatusAccepted {
		t.Errorf("POST /v1/runs: %d %s", code, body)
	}
}

func gzipped(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstandard(t *testing.T, content string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(content), nil))
}

// Each dialect gets answers in its own, under the user's ids.
func TestEveryDialect(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallBites)
	for _, c := range []struct{ name, lines, id string }{
		{"plain", `{"id":"a","prompt":"hello"}` + "\n" + `{"id":"b","messages":[{"role":"user","content":"hello"}]}` + "\n", "id"},
		{"openai", `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"fake","messages":[{"role":"user","content":"hello"}]}}` + "\n" +
			`{"custom_id":"b","method":"POST","url":"/v1/completions","body":{"model":"fake","prompt":"hello"}}` + "\n", "custom_id"},
		{"bedrock", `{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"hello"}],"max_tokens":9}}` + "\n" +
			`{"recordId":"b","modelInput":{"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}],"max_tokens":9}}` + "\n", "recordId"},
		{"vertex", `{"id":"a","request":{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}}` + "\n" +
			`{"id":"b","request":{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}}` + "\n", "id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := i.within(t)
			i.move(c.name+".jsonl", c.lines)
			s := i.onlyRunOf(c.name + ".jsonl")
			rows := lines(t, i.outcome(s.Run).completions)
			if s.Phase != run.Completed || len(rows) != 2 {
				t.Fatalf("the run is %s with %d rows: %s\n%s", s.Phase, len(rows), s.Message, i.outcome(s.Run).errors)
			}
			for n, row := range rows {
				var fields map[string]any
				if err := json.Unmarshal([]byte(row), &fields); err != nil {
					t.Fatal(err)
				}
				if want := string(rune('a' + n)); fields[c.id] != want || !strings.Contains(row, "echo: hello") {
					t.Errorf("row %d is not the answer of %q:\n%s", n, want, row)
				}
			}
		})
	}
}

// C10 and C02: what can't be answered comes to a definite end that says why,
// and exit code 1; UTF-16 is refused by name, at submit with exit code 2.
func TestHopelessUploads(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallBites)
	t.Run("nothing to do", func(t *testing.T) {
		for _, c := range []struct {
			name, content string
			errors        int
			phase         run.Phase
		}{
			{"empty.jsonl", "", 0, run.Completed},
			{"newlines.jsonl", "\n\r\n\n", 0, run.Completed},
			{"invalid.jsonl", "no\n{\"prompt\":\n[]\n", 3, run.CompletedWithErrors},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				i := i.within(t)
				do(t, 1, "submit", "--wait", "--dir", i.dir, write(t, filepath.Join(t.TempDir(), c.name), c.content))
				s := i.onlyRunOf(c.name)
				o := i.outcome(s.Run)
				if s.Phase != c.phase || o.completions != "" || len(lines(t, o.errors)) != c.errors {
					t.Errorf("it ended as %s, with completions %q and %d errors, want %s and %d", s.Phase, o.completions, len(lines(t, o.errors)), c.phase, c.errors)
				}
			})
		}
	})
	t.Run("UTF-16", func(t *testing.T) {
		i := i.within(t)
		utf16 := "\xff\xfe{\x00\"\x00"
		do(t, 2, "submit", "--dir", i.dir, write(t, filepath.Join(t.TempDir(), "utf16.jsonl"), utf16)).wantStderr("UTF-16")
		i.move("utf16.jsonl", utf16)
		s := i.onlyRunOf("utf16.jsonl")
		p := do(t, 0, "status", "--json", "--dir", i.dir, string(s.Run))
		if s.Phase != run.Failed || !strings.Contains(p.stdoutText(), "UTF-16LE") {
			t.Errorf("it is %s; status says %s", s.Phase, p.stdoutText())
		}
	})
}

// C32: names are what they are, in every place that shows them.
func TestStrangeNames(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallBites)
	names := []string{"my prompts.jsonl", "a+b.jsonl", "a%2Bb.jsonl", "日本 語.jsonl", "a&b=c?.jsonl"}
	for _, name := range names {
		i.move(name, simple(2))
	}
	for _, name := range names {
		s := i.onlyRunOf(name)
		if s.Phase != run.Completed || s.Name != strings.TrimSuffix(name, ".jsonl") || s.Items.Done != 2 {
			t.Errorf("%q is run %q: %s, %d answers", name, s.Name, s.Phase, s.Items.Done)
		}
	}
	if n := len(i.runs()); n != len(names) {
		t.Errorf("%d files are %d runs", len(names), n)
	}
}

// C33 and C34: one run per object version, however often it is announced and
// however it came to be there.
func TestOneRunPerVersion(t *testing.T) {
	t.Parallel()
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, smallBites)
	t.Run("announced three times at once", func(t *testing.T) {
		i := i.within(t)
		i.move("thrice.jsonl", simple(4))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { i.announce(t, "thrice.jsonl") })
		}
		all.Wait()
		i.onlyRunOf("thrice.jsonl")
	})
	t.Run("empty, then full after 50 ms", func(t *testing.T) {
		i := i.within(t)
		path := write(t, i.bucket("prompts/late.jsonl"), "")
		after(50 * time.Millisecond)
		write(t, path, simple(4))
		if st := i.onlyRunOf("late.jsonl"); st.Items.Done != 4 {
			t.Errorf("%d answers, want 4", st.Items.Done)
		}
	})
	t.Run("gone before its turn", func(t *testing.T) {
		i := i.within(t)
		if err := os.Remove(write(t, i.bucket("prompts/gone.jsonl"), simple(4))); err != nil {
			t.Fatal(err)
		}
		i.move("stays.jsonl", simple(4))
		i.onlyRunOf("stays.jsonl")
		if n := len(i.runsOf("gone.jsonl")); n != 0 {
			t.Errorf("a file that is gone is %d runs", n)
		}
	})
	t.Run("overwritten while it runs", func(t *testing.T) {
		i := i.within(t)
		from := s.requests()
		i.move("changing.jsonl", simple(99))
		eventually(t, "it is under way", func() bool { return s.requests() > from+10 })
		i.move("changing.jsonl", simple(5))
		eventually(t, "both versions come to their end", func() bool {
			all := i.runsOf("changing.jsonl")
			return len(all) == 2 && all[0].Phase.Ended() && all[1].Phase.Ended()
		})
		all := i.runsOf("changing.jsonl")
		if n, o := all[0], all[1]; n.Phase != run.Completed || n.Items.Done != 5 || o.Phase != run.Failed || o.Reason != run.ReasonInputChanged {
			t.Errorf("the new version is %s with %d answers, the old one %s (%s)", n.Phase, n.Items.Done, o.Phase, o.Reason)
		}
		old := i.outcome(all[1].Run)
		if n := len(lines(t, old.completions)) + len(lines(t, old.errors)); n != 99 || len(old.ids(t)) == 0 || all[1].FailedByClass["input_changed"] == 0 {
			t.Errorf("the old version has %d rows, %d answers, failed %v; want 99 rows, answers kept", n, len(old.ids(t)), all[1].FailedByClass)
		}
	})
}

// after returns when so much time has passed: for inputs that are made of it.
func after(d time.Duration) { <-time.After(d) }
