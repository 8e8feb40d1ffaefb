package report_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"rollout/scripts/rollout/report"
	"rollout/scripts/rollout/report/reporttest"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/installation"
	"rollout/shared/memory"
	"rollout/shared/record"
	"rollout/shared/rollout"
)

const run = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

// saved returns a bucket with the files of a run.
func saved(t testing.TB, s reporttest.Size) blob.Store {
	t.Helper()
	blobs := memory.NewBucket(clock.Fixed(time.Unix(0, 0)))
	if err := s.Save(t.Context(), blobs, run); err != nil {
		t.Fatal(err)
	}
	return blobs
}

// write returns the page of a run.
func write(t testing.TB, blobs blob.Store) string {
	t.Helper()
	var page bytes.Buffer
	if err := report.Write(t.Context(), &page, report.Run{Blobs: blobs, Manifest: reporttest.Manifest(run)}); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

var (
	tag   = regexp.MustCompile(`<[^>]*>`)
	space = regexp.MustCompile(`\s+`)
)

// textOf returns what a person reads, with a space between two elements.
func textOf(page string) string {
	_, body, _ := strings.Cut(page, "<body>")
	return space.ReplaceAllString(html.UnescapeString(tag.ReplaceAllString(body, " ")), " ")
}

// TestPageShowsTheNumbersOfTheRun has what reporttest.Size promises, by hand.
func TestPageShowsTheNumbersOfTheRun(t *testing.T) {
	t.Parallel()
	page := write(t, saved(t, reporttest.Size{Tickets: 100}))
	text := textOf(page)
	for _, want := range []string{
		"200 tickets, of all epochs 77.5 % accuracy of 200 labelled 94.4 % agreement 0.821 mean score 2 of 3 reflections",
		"45 to review $1.25 1,234 + 567 tokens",
		// step, tickets, accuracy, agreement, mean score, holdout, tokens an answer, of prompts, of answers
		" 0 50 50.0 % 87.5 % 0.61 0.5 of 90 tickets 3 4,100 615 ",
		" 1 50 80.0 % 95.0 % 0.829 0.625 of 90 tickets 3 4,100 615 ",
		" 2 promoted 100 90.0 % 97.5 % 0.925 0.75 of 90 tickets 3 8,000 1,200 ",
		"Promoted guidance: step 2 Decide on refunds. Be fair. since step 0 Rule 0. since step 1; named by 7 right",
		// verdict, answers, selected, labels, both
		" refuse 415 105 100 80 ", " refund 385 95 100 75 ",
		// epoch, batches, tickets, accuracy, agreement, mean score, to review
		" 1 2 100 65.0 % 91.2 % 0.738 35 ", " 2 2 100 90.0 % 97.5 % 0.925 10 ",
		"refunds: 2 accepted, refunds: 1 rejected",
		"Reflection 1 of refunds: accepted , step 0 → 1", "Holdout: 0.5 → 0.625",
		"the mean score is 0.5 at step 0 and 0.75 at the promoted step 2.",
		"Holdout: 0.625 → 0.75",
		"Candidate 1 accepted add Rule 0. Tickets need it. Evidence: t0",
		"gate : 0.5 → 0.75 (+0.250, from +0.125 to +0.375; P = 0.015, at most 0.05; bootstrap) over 80 tickets: accepted " +
			"21 became right: t902; 1 became wrong: t901",
		"Candidate 2 refused: copies_ticket: it copies a ticket",
		"Tickets that it looked at t0 r-0: the selected verdict contradicts the right answer Case 0.",
		"over 80 tickets: not significant",
		// the front: guidance, made from, best on, score
		" step 2 – 70 0.75 ", " candidate 2 of reflection 3 step 0 10 – ",
		"begun with candidate 2 of reflection 1 · no candidate is shown to be better",
		// mission, steps, tickets, same, right, wrong, otherwise
		" refunds 0 2 50 20 25 5 0 ", " refunds 1 2 50 35 10 5 0 ",
		"label mismatch unexplained: 45",
		"invalid line: 10, unparsable: 10",
		"t9.e0.d1.s0 r-9 unparsable no verdict Hm.",
		"1 of 2 shards were handed on",
		" answer clerk 8 0 1,000 0 0 ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if got := strings.Count(page, "<polyline "); got != 6 {
		t.Errorf("%d lines are drawn, want 3 in each of 2 plots", got)
	}
}

// sectionOf returns the section of the page with that id.
func sectionOf(page, id string) string {
	_, rest, _ := strings.Cut(page, `<section id="`+id+`"`)
	section, _, _ := strings.Cut(rest, "</section>")
	return section
}

// TestListsHaveTheRightTickets compares the lists with the definition of the run.
func TestListsHaveTheRightTickets(t *testing.T) {
	t.Parallel()
	page := write(t, saved(t, reporttest.Size{Tickets: 100}))
	group := regexp.MustCompile(`<tr><td>r-(\d+)<br>`)
	for _, id := range []string{"flipped", "hardest", "review"} {
		listed := map[string]int{}
		for _, m := range group.FindAllStringSubmatch(sectionOf(page, id), -1) {
			listed[m[1]]++
		}
		for n := range 100 {
			first := 0
			if n >= 50 {
				first = 1
			}
			before, after := reporttest.Right(n, first), reporttest.Right(n, 2)
			want := 0
			switch {
			case id == "flipped" && before != after, id == "hardest" && !(before && after):
				want = 1
			case id == "review":
				want = count(!before) + count(!after)
			}
			if got := listed[fmt.Sprint(n)]; got != want {
				t.Errorf("%s: ticket %d is listed %d times, want %d", id, n, got, want)
			}
		}
	}
}

// TestReviewShowsTheAnswerOfItsOwnEpoch looks at ticket 5, which was wrong at step 0 and is right at step 2.
func TestReviewShowsTheAnswerOfItsOwnEpoch(t *testing.T) {
	t.Parallel()
	page := write(t, saved(t, reporttest.Size{Tickets: 100}))
	for id, want := range map[string]string{
		"review": "r-5 t5 · refunds · label mismatch unexplained refuse " +
			"step 0 refund agreement 0.75, score 0.25 Case 5. Verdict: refund",
		"flipped": "r-5 t5 · refunds refuse step 0 refund agreement 0.75, score 0.25 " +
			"step 2 refuse agreement 1, score 1 Case 5. Verdict: refuse",
	} {
		if text := textOf("<body>" + sectionOf(page, id)); !strings.Contains(text, want) {
			t.Errorf("%s: lacks %q", id, want)
		}
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// hostile returns texts that try to run, to request, to close elements and to turn the direction of text. Some have
// 1 MB.
func hostile(n int) string {
	s := "</td></table><script>alert(1)</script><img src=//evil.example/x onerror=alert(1)>" +
		"\u202e\u2066\u0000\x1b[31m\"'`&" +
		"</style><a href=\"javascript:alert(1)\">{{.Run}}"
	if n%200 == 1 {
		return strings.Repeat(s, 1<<20/len(s))
	}
	return strings.Repeat(s, 4)
}

func TestHostileTextsAreInert(t *testing.T) {
	t.Parallel()
	page := write(t, saved(t, reporttest.Size{Tickets: 400, Text: hostile}))
	// Every tag and every attribute is one of the template.
	attribute := regexp.MustCompile(` ([a-zA-Z-]+)(?:="([^"]*)")?`)
	for _, all := range regexp.MustCompile(`<([a-z0-9]+)([^>]*)>`).FindAllStringSubmatch(page, -1) {
		if slices.Contains([]string{"script", "img", "iframe", "object", "form", "base", "image", "use"}, all[1]) {
			t.Fatalf("the page has the element %s", all[0])
		}
		for _, a := range attribute.FindAllStringSubmatch(all[2], -1) {
			link := a[1] == "href" && !strings.HasPrefix(a[2], "#") && a[2] != "data:,"
			if strings.HasPrefix(a[1], "on") || strings.HasPrefix(a[1], "src") || a[1] == "style" || link {
				t.Fatalf("the page has the attribute %s in %s", a[0], all[0])
			}
		}
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Error("the page does not show the texts at all")
	}
	for _, r := range page {
		if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t' {
			t.Fatalf("the page has the character %U", r)
		}
	}
	if n := len(page); n > 5_000_000 {
		t.Errorf("the page has %d bytes", n)
	}
}

func TestPolicyAllowsTheStyleOfThePageAlone(t *testing.T) {
	t.Parallel()
	page := write(t, saved(t, reporttest.Size{Tickets: 20}))
	_, rest, _ := strings.Cut(page, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	hash := sha256.Sum256([]byte(style))
	policy := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; img-src data:; base-uri 'none'; form-action 'none'"
	want := `<meta http-equiv="Content-Security-Policy" content="` + policy + `">`
	if got := html.UnescapeString(page[:strings.Index(page, "<style>")]); !strings.Contains(got, want) {
		t.Errorf("the head is %s\nwant the policy %s", got, want)
	}
	if strings.Contains(page, " style=") {
		t.Error("an element has a style of its own, which the policy forbids")
	}
}

func TestLongListsSayWhatTheyLeaveOut(t *testing.T) {
	t.Parallel()
	page := write(t, saved(t, reporttest.Size{Tickets: 2000}))
	for id, want := range map[string]string{ // 45 % of the tickets, and 200 are listed
		"flipped": "700 tickets are left out.", "hardest": "700 tickets are left out.", "review": "700 tickets are left out.",
		"failures": "200 failures are left out: failures.jsonl has all.",
	} {
		if text := textOf("<body>" + sectionOf(page, id)); !strings.Contains(text, want) {
			t.Errorf("%s: does not say %q", id, want)
		}
	}
}

// TestPageIsBounded has texts whose characters take most bytes on the page, in more rows than a list shows.
func TestPageIsBounded(t *testing.T) {
	t.Parallel()
	quotes := strings.Repeat(`"`, 500)
	page := write(t, saved(t, reporttest.Size{Tickets: 2000, Text: func(int) string { return quotes }}))
	if n := len(page); n < 2_000_000 || n > 5_000_000 {
		t.Errorf("the page has %d bytes, want the lists to use up their budgets, and at most 5 MB", n)
	}
	if text := textOf("<body>" + sectionOf(page, "hardest")); !strings.Contains(text, "tickets are left out.") {
		t.Error("the page does not say what it leaves out")
	}
}

func TestTheSameFilesGiveTheSamePage(t *testing.T) {
	t.Parallel()
	blobs := saved(t, reporttest.Size{Tickets: 1000})
	if first, second := write(t, blobs), write(t, blobs); first != second {
		t.Error("two pages of a run differ")
	}
}

func TestDamagedFilesAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file, text string
		kind             fault.Kind
		message          string
	}{
		{"no summary", record.SummaryFile, "", fault.NotFound, record.SummaryFile},
		{"no selections", rollout.SelectionsFile, "", fault.NotFound, rollout.SelectionsFile},
		{"a row that is no JSON", rollout.TrajectoriesFile, "{}\n{\n", fault.Corrupt, rollout.TrajectoriesFile + ", line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			blobs := saved(t, reporttest.Size{Tickets: 20})
			key := record.OutputKey(run, c.file)
			err := blobs.Delete(t.Context(), key, "")
			if err == nil && c.text != "" {
				_, err = blobs.Put(t.Context(), key, strings.NewReader(c.text), blob.PutOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			err = report.Write(t.Context(), io.Discard, report.Run{Blobs: blobs, Manifest: reporttest.Manifest(run)})
			if fault.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.message) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.message)
			}
		})
	}
}

// BenchmarkWrite writes the page of 100,000 tickets, answered twice by 4 members, from files on disk. It reports the
// bytes of the page and the most memory in use.
func BenchmarkWrite(b *testing.B) {
	in, closeAll, err := installation.OpenLocal(b.Context(), b.TempDir(),
		installation.LocalOptions{Create: true, Source: "test"})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = closeAll() }() // the folder is removed
	if err := (reporttest.Size{Tickets: 100_000}).Save(b.Context(), in.Bucket, run); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	ctx, cancel := context.WithCancel(b.Context())
	peak := make(chan uint64)
	go func() {
		var most uint64
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-tick.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			case <-ctx.Done():
				peak <- most
				return
			}
		}
	}()
	n := 0
	for b.Loop() {
		n = len(write(b, in.Bucket))
	}
	cancel()
	b.ReportMetric(float64(n), "page-bytes")
	b.ReportMetric(float64(<-peak)/(1<<20), "peak-MiB")
}

// TestPageOfARunWithoutReflection has a run that writes no file about reflections.
func TestPageOfARunWithoutReflection(t *testing.T) {
	t.Parallel()
	blobs := saved(t, reporttest.Size{Tickets: 20})
	for _, name := range []string{rollout.ReflectionFile, rollout.CandidatesFile} {
		if err := blobs.Delete(t.Context(), record.OutputKey(run, name), ""); err != nil {
			t.Fatal(err)
		}
	}
	m := reporttest.Manifest(run)
	m.Config.Reflection = nil
	var page bytes.Buffer
	if err := report.Write(t.Context(), &page, report.Run{Blobs: blobs, Manifest: m}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "Reflection 1") {
		t.Error("the page shows a reflection")
	}
}
