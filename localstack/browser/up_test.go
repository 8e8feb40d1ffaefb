package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rollout/localstack/subprocess"
)

// installation is a running `rollout up` with a scripted server that refuses prompts of more than 30 words, and
// never answers those with "wait here".
type installation struct {
	t      *testing.T
	url    string // of its API and page
	folder string
}

func startUp(t *testing.T) installation {
	t.Helper()
	programs, folder := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs+"/", "./scripts/rollout", "./scripts/fakellm")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	engine := startProgram(t, `^(http://\S+)`, filepath.Join(programs, "fakellm"), "--latency", "5ms",
		"--hang", "wait here", "--context-limit", "60")
	url := startProgram(t, `\(API at (http://[^)]+)\)`, filepath.Join(programs, "rollout"), "up", "--dir", folder,
		"--engine", engine, "--listen", "127.0.0.1:0", "--set", "defaults.sampling.max_tokens=30")
	return installation{t, url, folder}
}

// startProgram starts a program and returns what the pattern finds in a line that it writes.
func startProgram(t *testing.T, pattern, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = subprocess.Start(cmd)
	_ = w.Close() // the program has its own; without it the scanner would not see the program end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = r.Close()
	})
	want, lines := regexp.MustCompile(pattern), bufio.NewScanner(r)
	var seen []string
	for lines.Scan() {
		if m := want.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, r) }() // it must not wait for a reader
			return m[1]
		}
		seen = append(seen, lines.Text())
	}
	t.Fatalf("%s does not start: %q", program, seen)
	return ""
}

// get asks the API, and decodes its answer.
func (i installation) get(path string, v any) {
	i.t.Helper()
	r, err := http.Get(i.url + path)
	if err != nil {
		i.t.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(v); err != nil || r.StatusCode != http.StatusOK {
		i.t.Fatalf("%s: status %d, %v", path, r.StatusCode, err)
	}
}

// upload makes a run of lines, as a file that appears in the bucket.
func (i installation) upload(name string, lines ...string) {
	i.t.Helper()
	prompts := filepath.Join(i.folder, "bucket", "prompts")
	if err := os.MkdirAll(prompts, 0o700); err != nil { // `up` may not have made it yet
		i.t.Fatal(err)
	}
	temp := filepath.Join(i.folder, name)
	if err := os.WriteFile(temp, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		i.t.Fatal(err)
	}
	if err := os.Rename(temp, filepath.Join(prompts, name)); err != nil {
		i.t.Fatal(err)
	}
}

// click clicks the button or link with the label, once it is there.
func (p *Page) click(label string) {
	p.t.Helper()
	find := fmt.Sprintf(`[...document.querySelectorAll("button:enabled, a")].find((e) => e.innerText === %q)`, label)
	p.WaitFor("Boolean(" + find + ")")
	p.do(find + ".click()")
}

// TestPageSteersRuns pauses, resumes, stops and retries a run that waits for its server, on the page of a real
// installation.
func TestPageSteersRuns(t *testing.T) {
	t.Parallel()
	up := startUp(t)
	up.upload("stuck.jsonl", `{"id":"a","prompt":"Hello"}`, `{"id":"b","prompt":"wait here"}`)
	p := Start(t).Open(up.url+"/", Desk)
	p.click("stuck")
	p.shows("running")
	p.click("Pause")
	p.shows("paus")
	p.click("Resume")
	p.shows("running")
	p.click("Stop…")
	p.click("Stop the run")
	p.WaitFor(`document.querySelector(".badge").innerText === "stopped"`)
	stopped := Eval[string](p, "location.hash")
	p.click("Retry…")
	p.click("Start the retry")
	p.WaitFor(fmt.Sprintf(`location.hash !== %q && document.body.innerText.includes("retries")`, stopped))
	p.Screenshot("retry")
}

// TestPageLeadsFromAFileToItsAnswers drops a file, checks and starts it, and looks at its items while one of them
// waits for its server.
func TestPageLeadsFromAFileToItsAnswers(t *testing.T) {
	t.Parallel()
	up := startUp(t)
	p := Start(t).Open(up.url+"/", Desk)
	p.shows("or drop one here")
	p.drop("walk.jsonl", `{"id":"short","prompt":"Hello"}
{"id":"long","prompt":"`+strings.Repeat("too many words ", 20)+`"}
{"id":"stuck","prompt":"wait here"}
`)
	p.shows("Dry run of walk.jsonl")
	p.WaitFor(`document.querySelector("[name=set]")`)
	p.do(`(() => { const set = document.querySelector("[name=set]"); set.value = "shard.items=1";
		set.dispatchEvent(new Event("input", { bubbles: true })); })()`)
	p.click("Check the settings")
	p.do(`(window.lost = false, new MutationObserver(() => {
		window.lost ||= document.body.innerText.includes("can't be found");
	}).observe(document.body, { childList: true, subtree: true, characterData: true }))`)
	p.click("Start the run")
	p.WaitFor(`document.querySelector(".badge")?.innerText === "running"`)
	if Eval[bool](p, "window.lost") {
		t.Error("a run that was just started is shown as one that is not there")
	}
	p.WaitFor(`document.querySelector(".sample")`) // why an item failed
	p.Screenshot("run")
	p.click("Items")
	p.WaitFor(`[...document.querySelectorAll("table.items tbody tr")].length === 3`)
	p.click("short")
	p.WaitFor(`document.querySelector(".turn.assistant pre")?.innerText.length > 0`)
	p.Screenshot("item")
	p.do("history.back()")
	p.click("long")
	p.WaitFor(`document.querySelector(".problem pre")?.innerText.length > 0`)
	p.do(`(function look() {
		fetch("/v1/files").then((r) => r.json()).then((files) => {
			window.deleted = files.data.length === 0;
			if (!window.deleted) setTimeout(look, 200);
		});
	})()`)
	p.WaitFor("window.deleted") // the run has its copy
}

// TestOtherSitesCantSteerRuns opens pages of other sites, which post to the API of this machine.
func TestOtherSitesCantSteerRuns(t *testing.T) {
	t.Parallel()
	up := startUp(t)
	up.upload("stuck.jsonl", `{"id":"b","prompt":"wait here"}`)
	b := Start(t)
	p := b.Open(up.url+"/", Desk)
	p.click("stuck")
	p.shows("running")
	run := strings.TrimPrefix(Eval[string](p, "location.hash"), "#")
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>evil</title><p>evil</p>`)
	}))
	t.Cleanup(evil.Close)
	for _, site := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		other := b.Open(site, Desk)
		other.do(fmt.Sprintf(`(window.done = false, fetch(%q, { method: "POST", mode: "no-cors", body: "{}" })
			.finally(() => { window.done = true; }))`, up.url+"/v1"+run+"/stop"))
		other.WaitFor("window.done")
		refused := func(s string) bool { return strings.HasSuffix(s, "/stop: status 403") }
		if problems := other.Problems(); !slices.ContainsFunc(problems, refused) {
			t.Errorf("%s: problems %q, want that the request is refused", site, problems)
		}
	}
	var status struct{ Phase string }
	if up.get("/v1"+run, &status); status.Phase != "running" {
		t.Errorf("the run is %s", status.Phase)
	}
}
