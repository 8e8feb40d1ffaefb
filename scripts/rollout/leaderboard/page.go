package leaderboard

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"io"
	"unicode"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"

	"rollout/shared/figures"
)

//go:embed page.html page.css
var files embed.FS

// page is what the template shows.
type page struct {
	Report
	Style  template.CSS
	Policy string
}

// functions are those of the template.
var functions = template.FuncMap{"number": number, "signed": signed, "probability": probability, "interval": interval,
	"sum": sum, "perTrial": perTrial, "test": testName, "count": figures.Count[int], "pruned": prunedText,
	"dollars": dollars, "until": until,
	"percent": func(x *float64) float64 {
		if x == nil {
			return 0
		}
		return max(0, min(1, *x)) * 100
	}}

// WritePage writes the report as one HTML page that needs no script and no network.
func WritePage(to io.Writer, r Report) error {
	style, err := files.ReadFile("page.css")
	if err != nil {
		return err
	}
	t, err := template.New("page.html").Funcs(functions).ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	hash := sha256.Sum256(style)
	p := page{Report: r, Style: template.CSS(style), Policy: "default-src 'none'; style-src 'sha256-" +
		base64.StdEncoding.EncodeToString(hash[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"}
	w := transform.NewWriter(to, runes.Map(inert))
	if err := t.ExecuteTemplate(w, "page.html", p); err != nil {
		return err
	}
	return w.Close()
}

// inert replaces characters that control the direction of text, or that pages must not have.
func inert(r rune) rune {
	if unicode.Is(unicode.Bidi_Control, r) || unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}
