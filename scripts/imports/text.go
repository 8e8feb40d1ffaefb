package imports

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxColumns is how many characters a line of Go may have; a tab counts as one.
const MaxColumns = 120

var (
	unfinishedNote  = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`) // does not match its own line
	metadataAddress = regexp.MustCompile(`169\.254\.`)
	cloudWord       = regexp.MustCompile(`\b(aws|gcp|GCP)|AWS|Aws|GCP\b`)
)

// metadataAllowed are the drivers that may ask a cloud's metadata service.
var metadataAllowed = []string{"shared/aws/...", "shared/gcp/..."}

// cloudWordsAllowed are the packages and files that may name a cloud. All others
// are neutral: they take what a cloud provides from shared/cloud. Tests may
// name it everywhere, because a test needs a concrete cloud.
var cloudWordsAllowed = []string{
	"functions/aws/...", "infra/aws/...", "localstack/aws/...", "scripts/lambda/...", "shared/aws/...",
	"functions/gcp/...", "infra/gcp/...", "localstack/gcp/...", "shared/gcp/...",
	"shared/cloud/...", "shared/config/aws.go", "shared/config/aws_defaults.go",
	"shared/config/gcp.go", "shared/config/gcp_defaults.go", "shared/installation/...",
	"shared/config/provider.go", // lists the providers
	"shared/prices/...",         // a table for each
	"scripts/imports/...",       // names what it forbids
	"scripts/licenses/...",      // lists the shipped programs
}

// Trials treat all tasks alike: no code knows a benchmark by its name, or branches on what the id of a
// task is or begins with.
var (
	benchmarkName = regexp.MustCompile(`(?i)\b(swe[-_ ]?bench|human[-_ ]?eval|mbpp|gsm8k|mmlu|gpqa|terminal[-_ ]?bench|` +
		`web[-_ ]?arena|os[-_ ]?world|tau[-_ ]?bench|(live|big)[-_ ]?code[-_ ]?bench)`)
	taskBranch = regexp.MustCompile(`strings\.\w+\([^,]*\b([tT]ask|[tT]askID|Task\.ID)\b[^,]*, *"|` +
		`\b([tT]ask|[tT]askID|Task\.ID) *[!=]= *"[^"]`)
)

// benchmarksAllowed names what it forbids.
var benchmarksAllowed = []string{"scripts/imports/..."}

// figuresIn are the packages whose sentences people read: package figures formats the numbers of all of them.
var figuresIn = []string{"functions/diagnosis/...", "functions/status/...", "scripts/rollout/command/...",
	"scripts/rollout/progress/...", "scripts/rollout/results/...", "scripts/rollout/terminal/...",
	"scripts/rollout/train/..."}

var (
	// numberOfThings is a number before a plural in a text: it reads "1 shards" for one. A limit in bytes is more than
	// one, an ordinal may come before a verb, and key=%d is for programs.
	numberOfThings = regexp.MustCompile(`"[^"=]*(%d|of %s) (more )?[a-z]{3,}s\b[^"]*"`)
	inBytes        = regexp.MustCompile(`%d (bytes|is|has|was)\b`)
	// ownStyle formats a number in a style of its own.
	ownStyle = regexp.MustCompile(`%\.0f|humanize\.Comma`)
)

// checkFigures returns what a line of a package that writes for people formats without package figures; "" if nothing.
func checkFigures(line []byte) string {
	if text := ownStyle.Find(line); text != nil {
		return fmt.Sprintf("%s writes a number in a style of its own, and perhaps -0: use package figures", text)
	}
	if text := numberOfThings.Find(inBytes.ReplaceAll(line, nil)); text != nil {
		return fmt.Sprintf("%s has a plural for one thing: use figures.Of or figures.OfMany", text)
	}
	return ""
}

// generated matches a file of Go that a program has written: see `go help generate`.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// CheckText returns what no file may contain, as "file:line: what is wrong":
// notes of unfinished work; metadata addresses outside of the drivers; in Go,
// lines over MaxColumns that a person wrote; and in Go outside of tests, the name of a cloud in a
// package that is neutral, the name of a benchmark, and branches on the id of a task; and there, in
// the packages that write for people, a number that is formatted without package figures.
func CheckText(tree fs.FS) ([]string, error) {
	var out []string
	err := walk(tree, isText, func(name string, content []byte) error {
		metadata := matchAny(metadataAllowed, path.Dir(name))
		neutral := isGo(name) && !strings.HasSuffix(name, "_test.go") &&
			!matchAny(cloudWordsAllowed, name)
		alike := isGo(name) && !strings.HasSuffix(name, "_test.go") && !matchAny(benchmarksAllowed, name)
		short := isGo(name) && !generated.Match(content)
		people := isGo(name) && !strings.HasSuffix(name, "_test.go") && matchAny(figuresIn, path.Dir(name))
		for i, line := range bytes.Split(content, []byte("\n")) {
			add := func(format string, args ...any) {
				out = append(out, fmt.Sprintf("%s:%d: ", name, i+1)+fmt.Sprintf(format, args...))
			}
			if people && !bytes.HasPrefix(bytes.TrimSpace(line), []byte("//")) {
				if problem := checkFigures(line); problem != "" {
					add("%s", problem)
				}
			}
			if note := unfinishedNote.Find(line); note != nil {
				add("%s: finish it, or file an issue", note)
			}
			if !metadata && metadataAddress.Match(line) {
				add("a metadata address outside of the cloud drivers")
			}
			if neutral && cloudWord.Match(line) {
				add("names a cloud in a neutral package: move it behind shared/cloud")
			}
			if name := benchmarkName.Find(line); alike && name != nil {
				add("names the benchmark %s: what a benchmark needs is in the config and the tasks", name)
			}
			if branch := taskBranch.Find(line); alike && branch != nil {
				add("%s branches on a task: what a task needs is a member of its line", branch)
			}
			if n := utf8.RuneCount(line); short && n > MaxColumns {
				add("the line has %d characters: break it at %d", n, MaxColumns)
			}
		}
		return nil
	})
	return out, err
}

var (
	testName     = regexp.MustCompile(`\bTest[A-Z][A-Za-z0-9]*`)
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9]*)\(`)
)

// CheckTestNames returns the names of tests in the Makefile and in scripts that
// no test has, as "file: what is wrong": `go test -run` succeeds with a pattern
// that matches nothing. A name may be the beginning of a test's name.
func CheckTestNames(tree fs.FS) ([]string, error) {
	used := map[string][]string{} // files by name
	var tests []string
	err := walk(tree, isText, func(name string, content []byte) error {
		switch {
		case strings.HasSuffix(name, "_test.go"):
			for _, m := range testFunction.FindAllSubmatch(content, -1) {
				tests = append(tests, string(m[1]))
			}
		case path.Base(name) == "Makefile", path.Ext(name) == ".sh", strings.HasPrefix(name, ".ci/"):
			for _, m := range testName.FindAll(content, -1) {
				used[string(m)] = append(used[string(m)], name)
			}
		}
		return nil
	})
	var out []string
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if !slices.ContainsFunc(tests, func(t string) bool { return strings.HasPrefix(t, name) }) {
			out = append(out, fmt.Sprintf("%s: no test is named %s: use its present name", used[name][0], name))
		}
	}
	return out, err
}

// isText reports whether a file is source or prose, as opposed to data.
func isText(name string) bool {
	extensions := []string{".go", ".md", ".mk", ".mod", ".sh", ".tf", ".toml", ".yaml", ".yml"}
	return slices.Contains(extensions, path.Ext(name)) || strings.HasPrefix(name, ".ci/") ||
		slices.Contains([]string{"Dockerfile", "Makefile"}, path.Base(name))
}

// UnknownFolders returns the folders at the top that are missing in TopLevel.
func UnknownFolders(tree fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && !skipped[e.Name()] && !slices.Contains(TopLevel, e.Name()) {
			out = append(out, e.Name()+": unknown folder at the top of the repository: use "+strings.Join(TopLevel, ", "))
		}
	}
	return out, nil
}
