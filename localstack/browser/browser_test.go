package browser

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// serve serves each body at its path, as a drawing if it ends in .svg, else as a
// page. Another path is not found.
func serve(t *testing.T, bodies map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := bodies[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if strings.HasSuffix(r.URL.Path, ".svg") {
			w.Header().Set("Content-Type", "image/svg+xml")
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestPagesAreUsedLikeAPersonWould(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": `<!doctype html><title>A form</title>
<input id="name"><button onclick="setTimeout(greet, 50)">Greet</button><p id="out"></p>
<script>function greet() { out.textContent = "Hello " + document.getElementById("name").value }</script>`})
	p := Start(t).Open(url, Phone)
	p.Type("#name", "Ada")
	p.Click("button")
	p.WaitFor(`document.getElementById("out").textContent !== ""`)
	if got := Eval[string](p, `document.getElementById("out").textContent`); got != "Hello Ada" {
		t.Errorf("the page says %q", got)
	}
	if got := Eval[int](p, "innerWidth"); got != Phone.Width {
		t.Errorf("the window is %d pixels wide, want %d", got, Phone.Width)
	}
	if problems := p.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}

func TestProblemsOfAPageAreCollected(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{
		"/exception": `<script>undefinedFunction()</script>`,
		"/console":   `<script>console.error("no", 3)</script>`,
		"/missing":   `<img src="/nothing.png">`,
		"/elsewhere": `<img src="http://example.com/x.png">`,
		"/policy": `<meta http-equiv="Content-Security-Policy" content="script-src 'none'">
<script>document.title = "ran"</script>`,
		"/fine": `<script>console.log("fine")</script><p>fine</p>`,
	})
	b := Start(t)
	for path, want := range map[string]string{
		"/exception": "undefinedFunction",
		"/console":   `console: "no" 3`,
		"/missing":   "/nothing.png: status 404",
		"/elsewhere": "http://example.com/x.png: net::ERR_NAME_NOT_RESOLVED",
		"/policy":    "Content Security Policy",
		"/fine":      "",
	} {
		got := b.Open(url+path, Desk).Problems()
		found := slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) })
		if (want == "") != (len(got) == 0) || want != "" && !found {
			t.Errorf("%s: problems %q, want one with %q", path, got, want)
		}
	}
}

func TestScreenshotsShowThePage(t *testing.T) {
	t.Parallel()
	url := serve(t, map[string]string{"/": `<body style="margin: 0; background: #2040ff">`})
	picture, err := png.Decode(bytes.NewReader(Start(t).Open(url, Phone).Screenshot("blue")))
	if err != nil {
		t.Fatal(err)
	}
	if got := picture.Bounds().Size(); got.X != Phone.Width || got.Y != Phone.Height {
		t.Errorf("the picture has the size %v, want that of the window", got)
	}
	blue := color.NRGBA{0x20, 0x40, 0xff, 0xff}
	if got := color.NRGBAModel.Convert(picture.At(100, 100)); got != blue {
		t.Errorf("the picture has the color %v, want %v", got, blue)
	}
}
