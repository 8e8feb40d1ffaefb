package browser

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"rollout/scripts/rollout/report"
	"rollout/scripts/rollout/report/reporttest"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/memory"
)

// reportOf returns the report of a run.
func reportOf(t *testing.T, s reporttest.Size) string {
	t.Helper()
	const id = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	blobs := memory.NewBucket(clock.Fixed(time.Unix(0, 0)))
	if err := s.Save(t.Context(), blobs, id); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := report.Write(t.Context(), &page, report.Run{Blobs: blobs, Manifest: reporttest.Manifest(id)}); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// TestReportShowsNumbersAndPlots opens the report of a rollout as a person sees it: the
// numbers that reporttest promises, two plots whose labels can be read, in light and
// dark, at a desk and on a phone.
func TestReportShowsNumbersAndPlots(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": reportOf(t, reporttest.Size{Tickets: 100})})
	b := Start(t)
	for name, size := range map[string]Size{"desk": Desk, "phone": {360, 740}} {
		for _, dark := range []bool{false, true} {
			name := fmt.Sprintf("%s-dark-%t", name, dark)
			p := b.Open(url, size)
			p.PreferDark(dark)
			for id, want := range map[string]string{
				"tickets": "200", "accuracy": "77.5 %", "agreement": "94.4 %", "score": "0.821",
			} {
				if got := Eval[string](p, fmt.Sprintf("document.getElementById(%q).textContent", id)); got != want {
					t.Errorf("%s: %s is %q, want %q", name, id, got, want)
				}
			}
			steps := Eval[[]string](p, `[...document.querySelectorAll(".steps tbody tr")].map(
				(r) => [...r.cells].slice(0, 6).map((c) => c.innerText.trim()).join("|"))`)
			for n, want := range []string{
				"0|50|50.0 %|87.5 %|0.61|0.5 of 90 tickets", "1|50|80.0 %|95.0 %|0.829|0.625 of 90 tickets",
				"2 promoted|100|90.0 %|97.5 %|0.925|0.75 of 90 tickets",
			} {
				if n >= len(steps) || steps[n] != want {
					t.Errorf("%s: the steps are %q, want row %d to be %q", name, steps, n, want)
				}
			}
			checkPlots(t, name, p)
			if wide := Eval[int](p, "document.documentElement.scrollWidth"); wide > size.Width {
				t.Errorf("%s: the page is %d pixels wide, and the window %d", name, wide, size.Width)
			}
			paper := Eval[string](p, "getComputedStyle(document.body).backgroundColor")
			if want := map[bool]string{false: "rgb(255, 255, 255)", true: "rgb(18, 22, 29)"}[dark]; paper != want {
				t.Errorf("%s: the background is %s, want %s", name, paper, want)
			}
			if problems := p.Problems(); len(problems) > 0 {
				t.Errorf("%s: problems: %q", name, problems)
			}
			if asked := p.Requests(); len(asked) != 1 {
				t.Errorf("%s: the page requests %q", name, asked)
			}
			p.Screenshot(name)
		}
	}
}

// checkPlots checks that both plots have three lines within them, and labels that can be read.
func checkPlots(t *testing.T, name string, p *Page) {
	t.Helper()
	plots := Eval[[]element](p, elements+`("svg.plot")`)
	lines := Eval[[]element](p, elements+`("svg.plot polyline")`)
	labels := Eval[[]element](p, elements+`("svg.plot text")`)
	if len(plots) != 2 || len(lines) != 6 || len(labels) < 20 {
		t.Fatalf("%s: %d plots, %d lines, %d labels", name, len(plots), len(lines), len(labels))
	}
	for n, l := range lines {
		if at := plots[n/3].Box; l.Box.Right-l.Box.Left < (at.Right-at.Left)/2 || !l.Box.within(at) {
			t.Errorf("%s: line %d is at %+v, want it across the plot at %+v", name, n, l.Box, at)
		}
	}
	for i, l := range labels {
		if l.Text == "" {
			continue
		}
		if l.Box.Bottom-l.Box.Top < 8 || !l.Box.within(plots[0].Box) && !l.Box.within(plots[1].Box) {
			t.Errorf("%s: the label %q is at %+v, want it readable within a plot", name, l.Text, l.Box)
		}
		for _, other := range labels[:i] {
			if other.Text != "" && l.Box.overlaps(other.Box) {
				t.Errorf("%s: the labels %q and %q cover each other", name, l.Text, other.Text)
			}
		}
	}
}

// TestReportOfHostileTicketsDoesNothing opens the report of tickets that try to run scripts and to load pictures.
func TestReportOfHostileTicketsDoesNothing(t *testing.T) {
	t.Parallel()
	hostile := func(int) string {
		return strings.Repeat(`</td></table><script>document.title="ran"</script>`+
			`<img src="/x.png" onerror="document.title='ran'">`+
			"</style><style>body{display:none}</style>\u202e", 3)
	}
	url := serve(t, map[string]string{"/": reportOf(t, reporttest.Size{Tickets: 40, Text: hostile})})
	p := Start(t).Open(url, Desk)
	if title := Eval[string](p, "document.title"); !strings.HasPrefix(title, "Report of refunds") {
		t.Errorf("the title is %q", title)
	}
	if n := Eval[int](p, `document.querySelectorAll("script, img, main style").length`); n != 0 {
		t.Errorf("%d elements of tickets are in the page", n)
	}
	if shown := Eval[string](p, "getComputedStyle(document.body).display"); shown != "block" {
		t.Errorf("the page's display is %q", shown)
	}
	if asked, problems := p.Requests(), p.Problems(); len(asked) != 1 || len(problems) != 0 {
		t.Errorf("the page requests %q and has problems %q", asked, problems)
	}
	p.Screenshot("hostile")
}
