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

	"rollout/localstack/scenarios"
	"rollout/shared/core/run"
)

// However a file gets into the bucket, compressed or not, it becomes one run
// with the same answers.
func TestEveryWayOfUploadGivesOneRun(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	prompts := scenarios.MixedPrompts(32)
	first := i.submit(write(t, filepath.Join(t.TempDir(), "first.jsonl"), prompts))
	i.awaitEnd(first)
	want := i.outcome(first).Completions
	for _, way := range []struct {
		name   string // of the file
		upload func(t *testing.T, name string)
	}{
		{"copied.jsonl", func(t *testing.T, name string) { write(t, i.bucket("prompts/"+name), prompts) }},
		{"moved.jsonl", func(_ *testing.T, name string) { i.move(name, prompts) }},
		{"submitted.jsonl", func(t *testing.T, name string) {
			do(t, 1, "submit", "--wait", "--dir", i.dir, write(t, filepath.Join(t.TempDir(), name), prompts)).
				wantStderr("items failed") // mixedPrompts has invalid lines
		}},
		{"posted.jsonl", func(t *testing.T, name string) {
			write(t, i.bucket("prompts/"+name), prompts)
			i.announce(t, name)
		}},
		{"packed.jsonl.gz", func(t *testing.T, name string) { i.move(name, gzipped(t, prompts)) }},
		{"packed.jsonl.zst", func(t *testing.T, name string) { i.move(name, zstandard(t, prompts)) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			i := i.within(t)
			way.upload(t, way.name)
			s := i.onlyRunOf(way.name)
			if s.Phase != run.CompletedWithErrors {
				t.Errorf("the run is %s: %s", s.Phase, s.Message)
			}
			scenarios.WantSameLines(t, "completions.jsonl", i.outcome(s.Run).Completions, want)
		})
	}
}

// announce posts an object's key to the API.
func (i *testInstallation) announce(t *testing.T, name string) {
	t.Helper()
	code, body := request(t, http.MethodPost, i.url+"/v1/runs", fmt.Sprintf(`{"key":%q}`, "prompts/"+name))
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

// Each input dialect gets answers in the same dialect, under the user's ids.
func TestEveryDialectGetsAnswersInItsOwnFormat(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	for _, c := range []struct{ name, lines, id string }{
		{"plain", `{"id":"a","prompt":"hello"}
{"id":"b","messages":[{"role":"user","content":"hello"}]}
`, "id"},
		{"openai", `{"custom_id":"a","method":"POST","url":"/v1/chat/completions",` +
			`"body":{"model":"fake","messages":[{"role":"user","content":"hello"}]}}
{"custom_id":"b","method":"POST","url":"/v1/completions","body":{"model":"fake","prompt":"hello"}}
`, "custom_id"},
		{"bedrock", `{"recordId":"a","modelInput":{"messages":[{"role":"user","content":"hello"}],"max_tokens":9}}
{"recordId":"b","modelInput":{"messages":[{"role":"user",` +
			`"content":[{"type":"text","text":"hello"}]}],"max_tokens":9}}
`, "recordId"},
		{"vertex", `{"id":"a","request":{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}}
{"id":"b","request":{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}}
`, "id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := i.within(t)
			i.move(c.name+".jsonl", c.lines)
			s := i.onlyRunOf(c.name + ".jsonl")
			rows := lines(t, i.outcome(s.Run).Completions)
			if s.Phase != run.Completed || len(rows) != 2 {
				t.Fatalf("the run is %s with %d rows, want completed with 2: %s\n%s", s.Phase, len(rows), s.Message,
					i.outcome(s.Run).Errors)
			}
			for n, row := range rows {
				var fields map[string]any
				if err := json.Unmarshal([]byte(row), &fields); err != nil {
					t.Fatal(err)
				}
				if want := string(rune('a' + n)); fields[c.id] != want || !strings.Contains(row, "echo: hello") {
					t.Errorf("row %d is not the answer for id %q:\n%s", n, want, row)
				}
			}
		})
	}
}

// C10 and C02: a file without a valid line gives a run that ends and says why,
// and `submit --wait` ends with exit code 1. UTF-16 is refused by its name;
// submit then ends with exit code 2.
func TestC10UploadsWithoutValidLinesEnd(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	t.Run("without a valid line", func(t *testing.T) {
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
				if s.Phase != c.phase || o.Completions != "" || len(lines(t, o.Errors)) != c.errors {
					t.Errorf("the run ended as %s with completions %q and %d errors, want %s and %d", s.Phase, o.Completions,
						len(lines(t, o.Errors)), c.phase, c.errors)
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
			t.Errorf("the run is %s, want failed; status prints %s", s.Phase, p.stdoutText())
		}
	})
}

// C32: a file's name is the same in every place that shows it.
func TestC32StrangeFileNamesAreKept(t *testing.T) {
	t.Parallel()
	i := install(t, serve(t).url, 0, smallShards)
	names := []string{"my prompts.jsonl", "a+b.jsonl", "a%2Bb.jsonl", "日本 語.jsonl", "a&b=c?.jsonl"}
	for _, name := range names {
		i.move(name, simplePrompts(2))
	}
	for _, name := range names {
		s := i.onlyRunOf(name)
		if s.Phase != run.Completed || s.Name != strings.TrimSuffix(name, ".jsonl") || s.Items.Done != 2 {
			t.Errorf("%q became run %q (%s) with %d answers, want 2", name, s.Name, s.Phase, s.Items.Done)
		}
	}
	if n := len(i.runs()); n != len(names) {
		t.Errorf("%d files became %d runs", len(names), n)
	}
}

// C33 and C34: an object version becomes one run, however often it is announced
// and however it was written.
func TestC33EachObjectVersionIsOneRun(t *testing.T) {
	t.Parallel()
	s := serveSlowly(t, 50*time.Millisecond)
	i := install(t, s.url, 0, smallShards)
	t.Run("announced three times at once", func(t *testing.T) {
		i := i.within(t)
		i.move("thrice.jsonl", simplePrompts(4))
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { i.announce(t, "thrice.jsonl") })
		}
		all.Wait()
		i.onlyRunOf("thrice.jsonl")
	})
	t.Run("empty, then written after 50 ms", func(t *testing.T) {
		i := i.within(t)
		path := write(t, i.bucket("prompts/late.jsonl"), "")
		time.Sleep(50 * time.Millisecond) // the delay is the case
		write(t, path, simplePrompts(4))
		if st := i.onlyRunOf("late.jsonl"); st.Items.Done != 4 {
			t.Errorf("%d answers, want 4", st.Items.Done)
		}
	})
	t.Run("deleted before it is seen", func(t *testing.T) {
		i := i.within(t)
		if err := os.Remove(write(t, i.bucket("prompts/gone.jsonl"), simplePrompts(4))); err != nil {
			t.Fatal(err)
		}
		i.move("stays.jsonl", simplePrompts(4))
		i.onlyRunOf("stays.jsonl")
		if n := len(i.runsOf("gone.jsonl")); n != 0 {
			t.Errorf("a deleted file became %d runs", n)
		}
	})
	t.Run("overwritten while it runs", func(t *testing.T) {
		i := i.within(t)
		from := s.requests()
		i.move("changing.jsonl", simplePrompts(99))
		eventually(t, "the run is under way", func() bool { return s.requests() > from+10 })
		i.move("changing.jsonl", simplePrompts(5))
		eventually(t, "the runs of both versions end", func() bool {
			all := i.runsOf("changing.jsonl")
			return len(all) == 2 && all[0].Phase.Ended() && all[1].Phase.Ended()
		})
		all := i.runsOf("changing.jsonl")
		if s := all[0]; s.Phase != run.Completed || s.Items.Done != 5 {
			t.Errorf("the new version is %s with %d answers, want completed with 5", s.Phase, s.Items.Done)
		}
		if s := all[1]; s.Phase != run.Failed || s.Reason != run.ReasonInputChanged {
			t.Errorf("the old version is %s (%s), want failed (input_changed)", s.Phase, s.Reason)
		}
		old := i.outcome(all[1].Run)
		rows, answers := len(lines(t, old.Completions))+len(lines(t, old.Errors)), len(old.ids(t))
		if rows != 99 || answers == 0 || all[1].FailedByClass["input_changed"] == 0 {
			t.Errorf("the old version has %d rows, %d answers, failed %v; want 99 rows with its answers",
				rows, answers, all[1].FailedByClass)
		}
	})
}
