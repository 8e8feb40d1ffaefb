package browser

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// views are all views of the page, by name.
var views = map[string]string{
	"runs": "#/", "run": "#/runs/" + scriptedRun, "items": "#/runs/" + scriptedRun + "/items",
	"item": "#/runs/" + scriptedRun + "/items/42", "machines": "#/machines", "trials": "#/runs/" + scriptedTrials,
}

// shows waits until the page shows a text.
func (p *Page) shows(text string) {
	p.t.Helper()
	p.WaitFor(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// do runs a JavaScript expression whose value does not count.
func (p *Page) do(expression string) {
	p.t.Helper()
	Eval[bool](p, "("+expression+", true)")
}

// drop drops a file on the page, as from a folder.
func (p *Page) drop(name, content string) {
	p.t.Helper()
	p.do(fmt.Sprintf(`(() => { const data = new DataTransfer(); data.items.add(new File([%q], %q));
		document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
	})()`, content, name))
}

// TestPageFitsEveryWindow looks at each view at a desk and on a phone, light and dark: nothing is wider
// than the window, nothing is refused by the policy.
func TestPageFitsEveryWindow(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	b := Start(t)
	ready := map[string]string{"runs": "not a run", "run": "Files", "items": "Next page", "item": "What happened",
		"machines": "gpu-17", "trials": "django-00024"}
	for window, size := range map[string]Size{"desk": Desk, "phone": {360, 740}} {
		for view, address := range views {
			p := b.Open(api.url+"/"+address, size)
			for _, dark := range []bool{false, true} {
				name := fmt.Sprintf("%s-%s-dark-%t", view, window, dark)
				p.PreferDark(dark)
				p.shows(ready[view])
				if view == "run" {
					p.WaitFor(`document.querySelectorAll(".plot > svg .line").length >= 3`)
				}
				if wide := Eval[int](p, "document.documentElement.scrollWidth"); wide > size.Width {
					t.Errorf("%s: the page is %d pixels wide, and the window %d", name, wide, size.Width)
				}
				p.Screenshot(name)
			}
			if problems := p.Problems(); len(problems) > 0 {
				t.Errorf("%s: problems: %q", view, problems)
			}
			for _, asked := range p.Requests() {
				if !strings.HasPrefix(asked, api.url+"/") {
					t.Errorf("%s: the page requests %s", view, asked)
				}
			}
		}
	}
	if got := api.get(func() int { return api.largest }); got >= 64<<10 {
		t.Errorf("the longest answer of the script has %d bytes: the API's are shorter", got)
	}
}

// axeFile is axe-core, which scripts/browser/axe.sh installs.
const axeFile = root + "/out/axe/axe-4.14.1.min.js"

// TestPageIsAccessible lets axe-core look at each view, light and dark, for what is serious or critical.
func TestPageIsAccessible(t *testing.T) {
	t.Parallel()
	axe, err := os.ReadFile(axeFile)
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal("axe-core is not installed: run make test-browser, which installs it")
	case err != nil:
		t.Skip("axe-core is not installed: run make test-browser, which installs it")
	}
	api := startScripted(t, 2_000)
	b := Start(t)
	more := maps.Clone(views)
	more["dry run"] = "#/files/file-7?name=nightly.jsonl"
	for view, address := range more {
		p := b.Open(api.url+"/"+address, Desk)
		p.WaitFor(`document.querySelector("main h1") && !document.querySelector("main [aria-busy]")`)
		Eval[bool](p, string(axe)+"\n;true")
		for _, dark := range []bool{false, true} {
			p.PreferDark(dark)
			Eval[bool](p, `window.found = null, axe.run(document).then((r) => { window.found = r.violations
				.filter((v) => ["serious", "critical"].includes(v.impact))
				.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target.join(" ")).slice(0, 3).join(", ")); }), true`)
			p.WaitFor("window.found !== null")
			for _, found := range Eval[[]string](p, "window.found") {
				t.Errorf("%s, dark %t: %s", view, dark, found)
			}
		}
	}
}

// TestKeyboardAndScreenReaderFollow walks by links alone: the focus goes to the title of each view, the
// plots have tables, and the progress of a run is said.
func TestKeyboardAndScreenReaderFollow(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	p := Start(t).Open(api.url+"/", Desk)
	p.shows("nightly-refunds")
	p.do(`document.querySelector(".run a").focus()`)
	p.Press("\r")
	p.WaitFor(`document.activeElement.matches("main h1") && document.activeElement.innerText === "nightly-refunds"`)
	if title := Eval[string](p, "document.title"); title != "nightly-refunds · rollout" {
		t.Errorf("the title is %q", title)
	}
	p.WaitFor(`document.querySelectorAll("figure.plot details table tbody tr").length > 100`)
	p.WaitFor(`document.getElementById("said").textContent === "nightly-refunds: running, 60 percent"`)
	p.do(`[...document.querySelectorAll("main a")].find((a) => a.innerText === "Items").focus()`)
	p.Press("\r")
	p.WaitFor(`document.activeElement.matches("main h1") && document.activeElement.innerText === "Items"`)
	p.do("history.back()")
	p.WaitFor(`document.activeElement.matches("main h1") && document.activeElement.innerText === "nightly-refunds"`)
	p.Reload()
	p.shows("Failures")
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}

// TestHostileTextsDoNothing shows a run whose name, ids, prompts, answers and messages try to run scripts,
// to load pictures, to lead elsewhere and to turn the direction of writing.
func TestHostileTextsDoNothing(t *testing.T) {
	t.Parallel()
	hostile := `</pre></td><script>document.title="ran"</script><img src="/x.png" onerror="document.title='ran'">` +
		`<a href="javascript:document.title='ran'">x</a>${document.title='ran'}<style>body{display:none}</style>` +
		"\u202e\u0007moc.elgoog"
	api := startScripted(t, 100)
	run, item := scriptedStatus(100), scriptedItem(42, hostile)
	for _, key := range []string{"name", "model", "pool", "message", "kind"} {
		run[key] = hostile
	}
	run["inputs"], run["hold_ups"] = []any{hostile}, []any{object{"code": "x", "text": hostile, "remedy": hostile}}
	run["failed_by_class"], run["finish_reasons"] = object{hostile: 3}, object{hostile: 3}
	item["request"] = object{"endpoint": hostile, "seeds": []any{hostile}, "body": object{"stop": hostile,
		"messages": []any{object{"role": hostile, "content": hostile}}}}
	item["answer"] = object{"answers": []any{object{"text": hostile, "finish_reason": hostile}}, "prompt_tokens": nil,
		"completion_tokens": nil, "row": object{"reasoning": hostile, "tool_calls": []any{hostile}, "id": hostile}}
	item["error"] = object{"class": hostile, "message": hostile}
	item["scores"] = object{hostile: object{"score": nil, "cause": hostile}}
	item["where"] = object{"file": hostile, "line": 1, "item_id": hostile, "story": []any{hostile}, "next": hostile,
		"why": hostile}
	overview := scriptedOverview()
	overview["uploads"] = []any{object{"key": hostile, "at": "2026-03-01T11:00:00Z", "why": hostile}}
	path := "/v1/runs/" + scriptedRun
	api.set(func() {
		api.answers["/v1/runs"] = object{"runs": []any{run}, "next": nil, "ended": 0}
		api.answers[path], api.answers[path+"/items/42"], api.answers["/v1/overview"] = run, item, overview
		api.answers[path+"/errors"] = object{"finish_reasons": object{hostile: 3}, "classes": []any{object{"class": hostile,
			"count": 3, "samples": []any{object{"index": 1, "id": hostile, "message": hostile}}}}}
	})
	b := Start(t)
	for view, address := range views {
		p := b.Open(api.url+"/"+address, Desk)
		p.WaitFor(`document.querySelector("main h1") && !document.querySelector("main [aria-busy]")`)
		if view == "run" || view == "item" {
			p.WaitFor(`document.body.innerText.includes("<script>")`)
		}
		if title := Eval[string](p, "document.title"); title == "ran" || !strings.HasSuffix(title, "· rollout") {
			t.Errorf("%s: the title is %q", view, title)
		}
		made := `document.querySelectorAll("main script, main img, main style, main [onerror], a[href^='javascript']").length`
		if n := Eval[int](p, made); n != 0 {
			t.Errorf("%s: %d elements of data are in the page", view, n)
		}
		if Eval[bool](p, `/[\u202a-\u202e\u0007]/.test(document.querySelector("main").textContent)`) {
			t.Errorf("%s: a text turns the direction of writing", view)
		}
		if problems := p.Problems(); len(problems) > 0 {
			t.Errorf("%s: problems: %q", view, problems)
		}
		if wide := Eval[int](p, "document.documentElement.scrollWidth"); wide > Desk.Width {
			t.Errorf("%s: the page is %d pixels wide", view, wide)
		}
		p.Screenshot(view)
	}
}

// TestMillionItemsArePaged opens a run of a million items: the page has some hundred elements, whatever the run
// has. The time of the first paint is logged; on an idle machine it is far below a second.
func TestMillionItemsArePaged(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 1_000_000)
	b := Start(t)
	for _, view := range []string{"run", "items"} {
		p := b.Open(api.url+"/"+views[view], Desk)
		p.shows(map[string]string{"run": "500,000", "items": "case-049"}[view])
		if n := Eval[int](p, `document.querySelectorAll("*").length`); n > 2_500 {
			t.Errorf("%s: the page has %d elements", view, n)
		}
		t.Logf("%s: first paint after %d ms", view,
			Eval[int](p, `Math.round(performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1)`))
	}
	p := b.Open(api.url+"/"+views["items"], Desk)
	p.shows("case-049")
	p.do(`[...document.querySelectorAll("main a")].find((a) => a.innerText === "Next page").click()`)
	p.shows("case-099")
	p.Reload()
	p.shows("case-099")
	p.do("history.back()")
	p.shows("case-000")
	p.do(`document.querySelector("[name=class]").value = "engine", document.querySelector(".filters button").click()`)
	p.shows("case-493")
	if got := Eval[int](p, `document.querySelectorAll("table.items tbody tr").length`); got != 50 {
		t.Errorf("the filtered page has %d items, want 50", got)
	}
}

// answered changes how many items the script's run has answered.
func (s *scriptedAPI) answered(n int) {
	run := scriptedStatus(2_000)
	run["items"].(object)["done"] = n
	s.set(func() {
		s.answers["/v1/runs/"+scriptedRun] = run
		s.answers["/v1/runs"] = object{"runs": []any{run}, "next": nil, "ended": 0}
	})
}

// TestEightTabsStayLive has eight tabs in one browser, which has six connections to a server.
func TestEightTabsStayLive(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	b := Start(t)
	var tabs []*Page
	for n := range 8 {
		p := b.Open(api.url+"/"+[]string{views["run"], views["runs"]}[n%2], Desk)
		p.shows("1,000")
		tabs = append(tabs, p)
	}
	for _, done := range []int{1_201, 1_403} {
		api.answered(done)
		for _, p := range tabs {
			p.shows(fmt.Sprintf("1,%d", done-1_000))
		}
	}
	if most := api.get(func() int { return api.most }); most < 1 || most > 4 {
		t.Errorf("%d streams were open at once, want 1 to 4", most)
	}
}

// TestPollingAsksConditionally has a server without a stream, as in a cloud.
func TestPollingAsksConditionally(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	api.set(func() { api.stream = false })
	p := Start(t).Open(api.url+"/"+views["run"], Desk)
	p.shows("polling")
	api.answered(1_201)
	p.shows("1,201")
	api.await("an answer without a body", func() bool { return api.unsent > 0 })
}

// TestHiddenTabAsksNothing hides a tab: its stream ends, and is opened again when the tab is seen again.
func TestHiddenTabAsksNothing(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	p := Start(t).Open(api.url+"/"+views["run"], Desk)
	p.shows("live")
	hide := func(hidden bool) {
		p.do(fmt.Sprintf(`Object.defineProperty(document, "hidden", { configurable: true, get: () => %t }),
			document.dispatchEvent(new Event("visibilitychange"))`, hidden))
	}
	until := func(streams int) {
		api.await(fmt.Sprintf("%d streams", streams), func() bool { return api.streams == streams })
	}
	until(1)
	hide(true)
	until(0)
	api.answered(1_201)
	hide(false)
	until(1)
	p.shows("1,201")
}

func TestLostConnectionIsShown(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	p := Start(t).Open(api.url+"/"+views["run"], Desk)
	p.shows("live")
	api.set(func() { api.down = true })
	p.shows("No connection since")
	p.WaitFor(`document.getElementById("said").textContent === "The connection to the server is lost."`)
	p.shows("1,000") // what is known stays
	p.Screenshot("lost")
	p.Click(".banner button") // while there is no server: the page tries, and keeps the banner
	api.set(func() { api.down = false })
	api.answered(1_201)
	p.WaitFor(`!document.body.innerText.includes("No connection since")`)
	p.shows("1,201")
}

// TestActionsAreAskedAndSent pauses, stops after a question, and retries.
func TestActionsAreAskedAndSent(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	p := Start(t).Open(api.url+"/"+views["run"], Desk)
	click := func(label string) {
		p.WaitFor(fmt.Sprintf(`[...document.querySelectorAll("button:enabled")].some((b) => b.innerText === %q)`, label))
		p.do(fmt.Sprintf(`[...document.querySelectorAll("button:enabled")].find((b) => b.innerText === %q).focus(),
			document.activeElement.click()`, label))
	}
	sent := func(want ...string) {
		t.Helper()
		api.await("the requests", func() bool { return len(api.posts) >= len(want) })
		api.mu.Lock()
		defer api.mu.Unlock()
		for n, got := range api.posts {
			if n >= len(want) || !strings.HasPrefix(got, want[n]) {
				t.Fatalf("sent %q, want %q", api.posts, want)
			}
		}
	}
	path := "POST /v1/runs/" + scriptedRun
	click("Pause")
	sent(path + "/pause ")
	click("Stop…")
	p.WaitFor(`document.querySelector("dialog").open`)
	p.Screenshot("stop")
	click("Cancel")
	p.WaitFor(`!document.querySelector("dialog") && document.activeElement.innerText === "Stop…"`)
	sent(path + "/pause ")
	click("Stop…")
	click("Stop the run")
	sent(path+"/pause ", path+"/stop ")
	ended := scriptedStatus(2_000)
	ended["phase"], ended["ended_at"] = "completed_with_errors", "2026-03-01T12:20:00Z"
	api.set(func() { api.answers["/v1/runs/"+scriptedRun] = ended })
	click("Retry…")
	p.WaitFor(`document.querySelector("dialog").open`)
	p.do(`document.querySelector("[value='class timeout']").click(),
		document.querySelector("dialog textarea").value = "sampling.max_tokens=800\n\nlimits.tokens=1000"`)
	p.Screenshot("retry")
	click("Start the retry")
	sent(path+"/pause ", path+"/stop ",
		path+`/retry {"set":["sampling.max_tokens=800","limits.tokens=1000"],"only":["timeout"]}`)
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}

// TestDroppedFileIsCheckedBeforeItStarts drops a file anywhere on the page.
func TestDroppedFileIsCheckedBeforeItStarts(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	p := Start(t).Open(api.url+"/", Desk)
	p.shows("or drop one here")
	p.drop("night.jsonl", `{"prompt":"Hello"}`)
	p.shows("Dry run of night.jsonl")
	p.shows("it is not a JSON object")
	p.shows("line 9 is bad")
	p.Screenshot("dry-run")
	labels := Eval[[]string](p, `[...document.querySelectorAll(".tile dt")].map((e) => e.innerText)`)
	want := []string{"lines", "bad lines", "repeated ids", "prompt tokens", "cost"} // those that are null are not shown
	if !slices.Equal(labels, want) {
		t.Errorf("the tiles are %q, want %q", labels, want)
	}
	run := "/v1/runs/" + scriptedRun
	api.set(func() { api.statuses[run] = http.StatusNotFound }) // it is not there at once
	p.do(`document.querySelector("[name=set]").value = "sampling.max_tokens=200",
		document.querySelector("[name=set]").dispatchEvent(new Event("input", { bubbles: true }))`)
	p.click("Check the settings")
	p.click("Start the run")
	p.WaitFor(fmt.Sprintf("location.hash === %q", views["run"]))
	api.await("a run that is not there is asked for again", func() bool { return api.asked[run] > 1 })
	if text := Eval[string](p, "document.body.innerText"); strings.Contains(text, "can't be found") {
		t.Errorf("a run that was just started is shown as one that is not there: %q", text)
	}
	api.set(func() { delete(api.statuses, run) })
	p.shows("nightly-refunds")
	p.shows("live")
	api.await("the upload is deleted", func() bool { return len(api.posts) >= 5 })
	api.mu.Lock()
	defer api.mu.Unlock()
	if !strings.Contains(api.posts[0], `filename="night.jsonl"`) || !strings.Contains(api.posts[0], "86400") {
		t.Errorf("uploaded %q", api.posts[0])
	}
	wantPosts := []string{`POST /v1/files/file-7/check {}`,
		`POST /v1/files/file-7/check {"set":["sampling.max_tokens=200"]}`,
		`POST /v1/files/file-7/start {"name":"night","set":["sampling.max_tokens=200"]}`, `DELETE /v1/files/file-7 `}
	if !slices.Equal(api.posts[1:], wantPosts) {
		t.Errorf("sent %q, want %q", api.posts[1:], wantPosts)
	}
}

// TestItemShowsAllOfItsAnswer opens an item with a tool call, whose scores were cut to fit.
func TestItemShowsAllOfItsAnswer(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	p := Start(t).Open(api.url+"/"+views["item"], Desk)
	p.shows("APPROVE: a defect")
	text := Eval[string](p, `document.querySelector("main").textContent`)
	for _, want := range []string{"0.625", "4,242", "6,161", "170017", "/custom/chat", "The ticket is 12 days",
		"refund_order",
		":04:01"} {
		if !strings.Contains(text, want) {
			t.Errorf("the item does not show %q: %q", want, text)
		}
	}
	if strings.Contains(text, "shortened") {
		t.Errorf("a mark of the API is shown as data: %q", text)
	}
}

// TestRunsAreLookedForFurtherBack filters runs: a page without a match is not the end.
func TestRunsAreLookedForFurtherBack(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	api.set(func() { api.answers["/v1/runs"] = object{"runs": []any{}, "next": scriptedRun, "ended": 9_000} })
	p := Start(t).Open(api.url+"/#/?phase=failed", Desk)
	p.click("Look further back")
	p.WaitFor(fmt.Sprintf("location.hash.includes(%q)", "after="+scriptedRun))
	api.set(func() { api.answers["/v1/runs"] = object{"runs": []any{}, "next": nil, "ended": 9_000} })
	p.shows("No run is in this state.")
}

func TestSignInAsksForTheToken(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	api.set(func() {
		api.answers["/v1/session"] = object{"needed": true, "signed_in": false}
		api.statuses["/v1/runs"], api.statuses["/v1/overview"] = 401, 401
	})
	p := Start(t).Open(api.url+"/", Phone)
	p.shows("wants the token")
	if asked := api.get(func() int { return api.asked["/v1/runs"] }); asked != 0 {
		t.Errorf("the page asked %d times before it was signed in", asked)
	}
	p.Screenshot("sign-in")
	p.Type("[name=token]", "s3cret")
	p.Press("\r")
	p.shows("nightly-refunds")
	p.shows("Sign out")
	api.mu.Lock()
	defer api.mu.Unlock()
	if posts := api.posts; len(posts) != 1 || posts[0] != `POST /v1/session {"token":"s3cret"}` {
		t.Errorf("sent %q", posts)
	}
	if Eval[int](p, "document.cookie.length + localStorage.length + sessionStorage.length") != 0 {
		t.Error("the page stores something")
	}
}

// TestKindsAddTheirViews shows a rollout's scores and guidance, and a training's loss.
func TestKindsAddTheirViews(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	path := "/v1/runs/" + scriptedRun
	rollout := scriptedStatus(2_000)
	rollout["kind"], rollout["rollout"] = "rollout", object{"epoch": 2, "epochs": 3, "batch": 9, "batches": 12,
		"tickets": 180, "all_tickets": 240, "refused_lines": 0, "answered": 700, "review": 4, "agreement": 0.94,
		"accuracy": 0.775, "score": 0.821, "reflections": 5, "accepted": 2}
	steps := []any{}
	for n := range 9 {
		steps = append(steps, object{"step": n, "mean": 0.5 + 0.04*float64(n), "best": 0.7 + 0.03*float64(n),
			"guidance_changed": n == 4})
	}
	api.set(func() {
		api.answers[path] = rollout
		api.answers[path+"/rollout"] = object{"steps": steps, "guidance": []any{
			object{"revision": 0, "at": "2026-03-01T12:00:00Z", "text": "Be polite.\nApprove within 14 days.", "mean": 0.5},
			object{"revision": 1, "at": "2026-03-01T12:02:00Z", "mean": 0.81,
				"text": "Be polite.\nApprove within 30 days.\nDefects are refunded."}}}
	})
	b := Start(t)
	p := b.Open(api.url+"/"+views["run"], Desk)
	p.shows("Score by batch")
	p.do(`document.getElementById("rollout").scrollIntoView()`)
	p.Screenshot("rollout")
	lines := Eval[[]string](p, `[...document.querySelectorAll(".guidance li:first-child .diff > div")]
		.map((d) => d.className + " " + d.querySelector("bdi").innerText)`)
	want := []string{"same Be polite.", "removed Approve within 14 days.", "added Approve within 30 days.",
		"added Defects are refunded."}
	if !slices.Equal(lines, want) {
		t.Errorf("the difference is %q, want %q", lines, want)
	}
	training := scriptedStatus(2_000)
	training["kind"], training["training"] = "train", object{"step": 300, "steps": 500, "loss": 1.25,
		"tokens_per_second": 9000}
	losses := []any{}
	for n := range 300 {
		losses = append(losses, object{"step": n + 1, "loss": 1.2 + 4/float64(n+1), "lr": 0.001})
	}
	api.set(func() {
		api.answers[path] = training
		api.answers[path+"/training"] = object{"steps": losses, "snapshots": []any{object{"step": 200}}}
	})
	p = b.Open(api.url+"/"+views["run"], Desk)
	p.shows("Learning rate")
	p.do(`document.getElementById("training").scrollIntoView()`)
	p.Screenshot("training")
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}

// TestGridOfTrialsFills looks at trials that are in flight, whose run then ends: the cells fill, and the variants are
// compared, the best first. Each trial is a link, and has a sign and words, whatever its colour is.
func TestGridOfTrialsFills(t *testing.T) {
	t.Parallel()
	api := startScripted(t, 2_000)
	b := Start(t)
	phone := b.Open(api.url+"/"+views["trials"], Size{360, 740})
	phone.shows("Tasks 1 to 25")
	phone.do(`document.getElementById("trials").scrollIntoView()`)
	phone.Screenshot("phone")
	p := b.Open(api.url+"/"+views["trials"], Desk)
	p.shows("Tasks 1 to 25 of 40, 3 times under each variant")
	p.do(`document.getElementById("trials").scrollIntoView()`)
	p.Screenshot("running")
	inFlight := `document.querySelectorAll(".trials .mark[aria-label*='in flight']").length`
	if n := Eval[int](p, inFlight); n < 10 {
		t.Errorf("%d trials are in flight, want several", n)
	}
	if Eval[bool](p, `[...document.querySelectorAll(".mark")].some((m) => !m.ariaLabel || !m.innerText.trim())`) {
		t.Error("a trial has no sign, or no words")
	}
	if Eval[bool](p, `document.body.innerText.includes("95 % interval")`) {
		t.Error("the variants are compared before the end")
	}
	api.set(func() {
		run := scriptedTrialsStatus("completed_with_errors")
		run["ended_at"] = "2026-03-01T12:20:00Z"
		api.answers["/v1/runs/"+scriptedTrials], api.answers["/v1/runs/"+scriptedTrials+"/trials"] = run, scriptedGrid(true)
	})
	p.shows("95 % interval")
	p.WaitFor(inFlight + " === 0")
	p.do(`document.getElementById("trials").scrollIntoView()`)
	p.Screenshot("ended")
	leaders := Eval[[]string](p, `[...document.querySelectorAll(".leaders tbody th")].map((e) => e.innerText)`)
	if !slices.Equal(leaders, []string{"terse", "step-by-step", "plain"}) {
		t.Errorf("the variants are %q, want the best first", leaders)
	}
	p.do(`document.querySelector(".mark").focus()`)
	p.Press("\r")
	p.WaitFor(`location.hash.endsWith("/items/0")`)
	p.do("history.back()")
	p.click("Next tasks")
	p.WaitFor(`location.hash.endsWith("?trials=25")`)
	problems := slices.DeleteFunc(p.Problems(), func(s string) bool { return strings.Contains(s, "/items/0") })
	if len(problems) > 0 { // besides that the script has no such item
		t.Errorf("problems: %q", problems)
	}
}
