package browser

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var pictures = flag.Bool("pictures", false, "take the pictures of functions/README.md anew, of a real run")

// TestPictures takes the pictures of functions/README.md: a run of the built-in model that is half done, and one of
// its items.
func TestPictures(t *testing.T) {
	if !*pictures {
		t.Skip("SKIPPED: it takes new pictures; run go test -run Pictures . -args -pictures")
	}
	programs, folder := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs+"/", "./scripts/rollout")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	url := startProgram(t, `\(API at (http://[^)]+)\)`, filepath.Join(programs, "rollout"), "up", "--dir", folder,
		"--listen", "127.0.0.1:0")
	up := installation{t, url, folder}
	begins := []string{"In the beginning God created", "The LORD is my shepherd;", "What is light? Light is",
		"Now when Jesus was born", "Wisdom is better than", "The rays of the Sun", "And the king said unto"}
	var lines []string
	for n := range 6_000 {
		prompt := begins[n%len(begins)]
		if n%40 == 17 {
			prompt = strings.Repeat(prompt+" ", 200) // the model takes no prompt of that length
		}
		lines = append(lines, fmt.Sprintf(`{"id":"verse-%04d","prompt":%q}`, n, prompt))
	}
	up.upload("nightly-verses.toml", "schema_version = 1", "[shard]", "items = 20", "[sampling]", "max_tokens = 60")
	up.upload("nightly-verses.jsonl", lines...)
	p := Start(t).Open(url+"/", Desk)
	p.PreferDark(true)
	p.click("nightly-verses")
	p.WaitFor(`document.querySelectorAll(".plot details tbody tr").length > 30`)
	p.WaitFor(`document.querySelector(".sample")`)
	savePicture(t, "run", p.Screenshot("run"))
	p.PreferDark(false)
	p.click("Items")
	p.click("verse-0009")
	p.WaitFor(`document.querySelector(".turn.assistant pre")?.innerText.length > 0`)
	savePicture(t, "item", p.Screenshot("item"))
}

// savePicture saves a picture in its 256 most frequent colours, which are nearly all that a page has.
func savePicture(t *testing.T, name string, picture []byte) {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.Color]int{}
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			counts[from.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	to := image.NewPaletted(from.Bounds(), colors[:min(256, len(colors))])
	draw.Draw(to, to.Bounds(), from, image.Point{}, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "functions", "page", "pictures", name+".png")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
