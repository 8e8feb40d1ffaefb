// Package browser shows pages to a real browser in tests: headless Chromium.
//
//	test ─▶ Start ─▶ chromium process ─▶ Open(URL) ─▶ Page: WaitFor, Eval, Screenshot
//	                                                    └▶ Problems: exceptions, failed requests, error messages
//
// A test asks a page what a person would see: the text, where it is, whether it
// fits, and what happens after a click. A Page collects what the browser complains
// about, and Screenshot keeps a picture under out/browser, for people.
//
// The browser is Debian's package chromium, which scripts/browser/test.sh
// installs. Where it is missing, a test is skipped at a desk and fails in CI. The
// browser reaches addresses of this machine alone. It never survives its test.
// The package is a module of its own, because the protocol's bindings are large.
package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds every wait for the browser. A page on this machine takes far
// less, and a busy machine may take long.
const patience = 2 * time.Minute

// names are the commands that start Chromium.
var names = []string{"chromium", "chromium-browser", "google-chrome"}

// Size is the size of a page's window in CSS pixels.
type Size struct{ Width, Height int }

// Desk is the window of a laptop, and Phone that of a phone.
var (
	Desk  = Size{1280, 800}
	Phone = Size{390, 844}
)

// Browser is a running browser of one test. Its pages share no cookies with those
// of other tests.
type Browser struct {
	t   testing.TB
	ctx context.Context
}

// Start starts a browser, which ends with the test. Without an installed one it
// skips the test, and fails it in CI.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := find()
	switch {
	case path == "" && os.Getenv("CI") != "":
		t.Fatal("chromium is not installed: run make test-browser, which installs it")
	case path == "":
		t.Skip("chromium is not installed: run make test-browser, which installs it")
	}
	ctx, cancelProcess := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options(path, t.TempDir())...)
	t.Cleanup(cancelProcess) // waits for the end of the process
	ctx, cancelTabs := chromedp.NewContext(ctx)
	t.Cleanup(cancelTabs)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{t, ctx}
}

// find returns the path of an installed browser, or "".
func find() string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// options are the flags of the browser. folder gets its profile.
func options(path, folder string) []chromedp.ExecAllocatorOption {
	return append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(folder),
		chromedp.NoSandbox, // tests run as root in containers, and open pages of their own alone
		chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-dev-shm-usage", true), // /dev/shm is small in containers
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
		chromedp.Flag("force-device-scale-factor", "1"),
		chromedp.Flag("lang", "en-US"),
	)
}

// Page is an open page.
type Page struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
	asked    map[network.RequestID]string // URLs
}

// Open opens the URL in a window of the size, and waits until it is loaded. A
// server's error status is a problem of the page, not of Open.
func (b *Browser) Open(url string, s Size) *Page {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	p := &Page{t: b.t, ctx: ctx, asked: map[network.RequestID]string{}}
	if err := chromedp.Listen(ctx, p.note); err != nil {
		b.t.Fatalf("listen to the page %s: %v", url, err)
	}
	run(p, "open "+url, chromedp.Steps(
		chromedp.EmulateViewport(int64(s.Width), int64(s.Height)), chromedp.Navigate(url)))
	return p
}

// note collects what the browser complains about.
func (p *Page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(format string, args ...any) { p.problems = append(p.problems, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		add("exception: %s", describe(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			var text []string
			for _, a := range e.Args {
				text = append(text, string(a.Value))
			}
			add("console: %s", strings.Join(text, " "))
		}
	case *log.EventEntryAdded:
		// The browser also logs failed requests, which are noted with their reason.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			add("%s: %s", e.Entry.Source, e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		p.asked[e.RequestID] = e.Request.URL
	case *network.EventLoadingFailed:
		if !e.Canceled {
			add("request of %s: %s", p.asked[e.RequestID], e.ErrorText)
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 && !strings.HasSuffix(e.Response.URL, "/favicon.ico") {
			add("request of %s: status %d", e.Response.URL, e.Response.Status)
		}
	}
}

// Problems returns what the browser has complained about so far: exceptions and
// error messages of scripts, failed requests, refused content.
func (p *Page) Problems() []string {
	p.t.Helper()
	run(p, "ask the page", chromedp.Evaluate[int]("0")) // events so far come before the answer
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.problems...)
}

// Requests returns the URLs that the page has requested so far: its own, and what it
// loads. Those with the data: scheme, which reach no network, are left out, and so is
// the icon, which the browser requests by itself.
func (p *Page) Requests() (urls []string) {
	p.t.Helper()
	run(p, "ask the page", chromedp.Evaluate[int]("0")) // events so far come before the answer
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.asked {
		if !strings.HasPrefix(url, "data:") && !strings.HasSuffix(url, "/favicon.ico") {
			urls = append(urls, url)
		}
	}
	slices.Sort(urls)
	return urls
}

// PreferDark makes the page look as for a person who prefers a dark or a light page.
func (p *Page) PreferDark(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	run(p, "prefer "+scheme, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	}))
}

// describe returns the text of an exception.
func describe(d *runtime.ExceptionDetails) string {
	if d.Exception != nil && d.Exception.Description != "" {
		return d.Text + " " + d.Exception.Description
	}
	return d.Text
}

// WaitFor waits until the JavaScript expression is true.
func (p *Page) WaitFor(expression string) {
	p.t.Helper()
	run(p, "wait for "+expression, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(0)))
}

// Eval returns the value of a JavaScript expression, decoded as from JSON.
func Eval[T any](p *Page, expression string) T {
	p.t.Helper()
	return run(p, "evaluate "+expression, chromedp.Evaluate[T](expression))
}

// Click clicks in the middle of the first element that the CSS selector selects,
// once it can be seen.
func (p *Page) Click(selector string) {
	p.t.Helper()
	run(p, "click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Type types text into the first element that the CSS selector selects.
func (p *Page) Type(selector, text string) {
	p.t.Helper()
	run(p, "type into "+selector, chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Reload loads the page again, and waits until it is loaded.
func (p *Page) Reload() {
	p.t.Helper()
	run(p, "reload", chromedp.Reload())
}

// Press presses a key in the element that has the focus: "\r" is the Enter key.
func (p *Page) Press(key string) {
	p.t.Helper()
	run(p, "press "+key, chromedp.KeyEvent(key))
}

// unsafe are the characters of test names that are not in file names.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Screenshot keeps a picture of the window as out/browser/<test>-<name>.png, and
// returns it as PNG.
func (p *Page) Screenshot(name string) []byte {
	p.t.Helper()
	png := run(p, "take a screenshot", chromedp.CaptureScreenshot())
	folder := filepath.Join(root, "out", "browser")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(folder, unsafe.ReplaceAllString(p.t.Name()+"-"+name, "-")+".png")
	if err := os.WriteFile(file, png, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if !bytes.HasPrefix(png, []byte("\x89PNG")) {
		p.t.Fatalf("%s is not a picture", file)
	}
	return png
}

// root is the repository's folder, as seen from the tests of this module.
const root = "../.."

// run runs an action on the page and returns its value. what names the action.
func run[T any](p *Page, what string, a chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not within %s: %w", patience, err)
	}
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	return v
}
