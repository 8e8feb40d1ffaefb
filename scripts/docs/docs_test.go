// Package docs tests the Markdown documents of the repository: their links,
// their anchors and what they must contain.
//
// It reads the working tree and imports no code of the product. What a document
// says about a package is tested beside that package: config keys in
// shared/config, commands in scripts/rollout/command.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// root is the repository's root.
const root = "../.."

// maxRootLines bounds the root README, which is read as a whole.
const maxRootLines = 150

// document is one Markdown file.
type document struct {
	path  string // from the root, with slashes
	text  string // without code blocks
	lines int
}

// documents returns every Markdown file of the repository.
func documents(t *testing.T) []document {
	t.Helper()
	var out []document
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", "out", "bin", "cdk.out"}, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		out = append(out, document{filepath.ToSlash(rel), withoutCode(string(src)), strings.Count(string(src), "\n")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// withoutCode removes fenced code blocks.
func withoutCode(src string) string {
	var out strings.Builder
	inCode := false
	for line := range strings.Lines(src) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			continue
		}
		if !inCode {
			out.WriteString(line)
		}
	}
	return out.String()
}

var (
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors of a document's headings, as GitHub names them.
func anchors(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(linkText.ReplaceAllString(m[1], "$1"), "`", "")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, name)
		out = append(out, slug)
	}
	return out
}

func TestLinksAndAnchorsExist(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	byPath := map[string]document{}
	for _, d := range docs {
		byPath[d.path] = d
	}
	links := 0
	for _, d := range docs {
		for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(d.text, "``"), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			path := d.path
			if file != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(d.path), file))
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which does not exist", d.path, target)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(byPath[path].text), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", d.path, target, path)
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

func TestRootReadmeIsShort(t *testing.T) {
	t.Parallel()
	for _, d := range documents(t) {
		if d.path == "README.md" && d.lines > maxRootLines {
			t.Errorf("README.md has %d lines, more than %d: move details into the folders' READMEs", d.lines, maxRootLines)
		}
	}
}

func TestEveryTopLevelFolderHasALinkedReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{"events", "examples", "functions", "gpuworker", "infra", "localstack", "scripts", "shared"}
	for _, folder := range folders {
		if _, err := os.Stat(filepath.Join(root, folder, "README.md")); err != nil {
			t.Error(err)
		}
		if !strings.Contains(string(readme), "("+folder+"/README.md)") {
			t.Errorf("README.md does not link to %s/README.md", folder)
		}
	}
}

// A reader who opens a folder finds each package of it in the folder's README.
func TestReadmesNameEverySubfolder(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"functions", "gpuworker", "infra", "localstack", "scripts", "shared"} {
		text, err := os.ReadFile(filepath.Join(root, folder, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Join(root, folder))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			named := regexp.MustCompile("[`({,/ ]" + regexp.QuoteMeta(e.Name()) + "[`/},.]")
			if e.IsDir() && !named.Match(text) {
				t.Errorf("%s/README.md does not name the folder %s", folder, e.Name())
			}
		}
	}
}

// Comments in the code cite invariants by their number.
func TestGlossaryDefinesEveryInvariant(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "shared", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 11; n++ {
		if row := fmt.Sprintf("\n| **I%d** | ", n); !strings.Contains(string(text), row) {
			t.Errorf("shared/README.md does not define I%d", n)
		}
	}
}

// makeTarget is a call of make in a document.
var makeTarget = regexp.MustCompile("(?m)(?:^|[`( ])make ([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)*)(?:[`) ,:]|$)")

func TestMakeTargetsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	rule := regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):(?: |$)`)
	for _, m := range rule.FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	for _, d := range documents(t) {
		for _, span := range codeSpan.FindAllString(d.text, -1) {
			for _, m := range makeTarget.FindAllStringSubmatch(span, -1) {
				for _, name := range strings.Fields(m[1]) {
					if !targets[name] {
						t.Errorf("%s names `make %s`, and the Makefile has no such target", d.path, name)
					}
				}
			}
		}
	}
}

// foreignMessages are quoted in the table of troubles and come from other
// software.
var foreignMessages = []string{"status 401", "status 404: The model", "does not exist", "database or disk is full",
	"no space left", "read-only file system", "database disk image is malformed"}

// shortest is the length of a part of a message that is worth a search.
const shortest = 8

// A user searches these tables for the message that they see.
func TestTablesQuoteMessagesOfTheCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "scripts", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	code := sources(t)
	for _, section := range []string{"Find out why a run is slow", "Troubles"} {
		_, table, found := strings.Cut(string(text), "\n## "+section+"\n")
		table, _, _ = strings.Cut(table, "\n## ")
		if !found {
			t.Errorf("scripts/README.md has no section %q", section)
		}
		checkQuotes(t, table, code)
	}
}

// checkQuotes looks for the messages in the first column of a table.
func checkQuotes(t *testing.T, table, code string) {
	t.Helper()
	quoted := 0
	for line := range strings.Lines(table) {
		cells := strings.SplitN(line, " | ", 2)
		if len(cells) < 2 || !strings.HasPrefix(cells[0], "| `") { // one that describes what happens
			continue
		}
		for _, span := range codeSpan.FindAllString(cells[0], -1) {
			for _, part := range strings.Split(strings.Trim(span, "`"), "…") {
				part = strings.TrimSpace(part)
				if len(part) < shortest || slices.Contains(foreignMessages, part) {
					continue
				}
				quoted++
				if !strings.Contains(code, part) {
					t.Errorf("scripts/README.md quotes %q, which no code says", part)
				}
			}
		}
	}
	if quoted < 10 {
		t.Errorf("only %d parts of messages were found", quoted)
	}
}

// sources returns the text of all Go code of the product's programs.
func sources(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, folder := range []string{"functions", "gpuworker", "scripts", "shared"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			out.Write(src)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

var (
	repositoryPath = regexp.MustCompile(
		"^(?:events|examples|functions|gpuworker|infra|localstack|scripts|shared)/[a-z0-9A-Z_./{},*-]*$")
	placeholder = regexp.MustCompile(`\b[A-Z]{2,}\b`)
	braces      = regexp.MustCompile(`\{([^{}]*)\}`)
)

// Paths in code spans are paths from the repository's root.
func TestNamedPathsExist(t *testing.T) {
	t.Parallel()
	paths := 0
	for _, d := range documents(t) {
		for _, span := range codeSpan.FindAllString(d.text, -1) {
			path := strings.Trim(span, "`")
			if !repositoryPath.MatchString(path) || placeholder.MatchString(strings.TrimSuffix(path, ".md")) {
				continue
			}
			for _, p := range expand(path) {
				paths++
				if found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(p))); err != nil || len(found) == 0 {
					t.Errorf("%s names %s, which does not exist", d.path, p)
				}
			}
		}
	}
	if paths < 50 {
		t.Errorf("only %d paths were found", paths)
	}
}

// expand returns the paths that a path with {a,b} stands for.
func expand(path string) (paths []string) {
	m := braces.FindStringSubmatchIndex(path)
	if m == nil {
		return []string{path}
	}
	for _, part := range strings.Split(path[m[2]:m[3]], ",") {
		paths = append(paths, expand(path[:m[0]]+part+path[m[1]:])...)
	}
	return paths
}
