// Package licenses finds the licences of the modules that are linked into the
// programs that the repository ships. Its test compares them with modules.txt,
// so that a new module, or another licence, is a decision.
//
// It reads the files that `go list` names, in the module cache, and writes
// nothing. It knows the texts of licences, not the law.
package licenses

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Accepted are the licences, as SPDX identifiers, that a shipped program may
// contain: permissive ones, and MPL-2.0, which covers only its own files.
var Accepted = []string{
	"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "LicenseRef-public-domain", "MIT", "MIT-0",
	"MPL-2.0", "Unlicense", "Zlib",
}

// reviewed are the files that no program can classify, as a person read them.
// The digest is the file's SHA-256: a changed file has to be read again.
var reviewed = map[string]struct {
	digest   string
	licenses []string
}{
	// It names the licences of the two other files.
	"github.com/aws/aws-lambda-go/LICENSE-SUMMARY": {
		"00c31061d11a7d289e3f5ac49f58b0d5cffdd9d1d24a9ee4c9848354356386bc", nil},
	// musl's text names more authors than a licence has words.
	"modernc.org/libc/LICENSE-3RD-PARTY.md": {
		"f597097efe3d97021f89170746bd3a0fb9a8b6fb26b82043ed68a4e0283bee6c", []string{"BSD-2-Clause", "BSD-3-Clause", "MIT"}},
	// It is the address of a picture in the module's README.
	"modernc.org/memory/LICENSE-LOGO": {
		"5ae5bee3072a841376451b48d8cfcec7188e10543926d5870828d36c8a750dc5", nil},
	// Section 1 lists what is linked; the others are tests and tools.
	"modernc.org/sqlite/LICENSE-3RD-PARTY.md": {
		"f4a00ade8f4057ab0ea49097d9c459df8559fcf10ca78da0c950343fb7428d37",
		[]string{"BSD-3-Clause", "LicenseRef-public-domain", "MIT"}},
	// SQLite's authors dedicate it to the public domain.
	"modernc.org/sqlite/LICENSE-SQLITE": {
		"8438c9c89b849131ead81d5435cb97fcf052df5b0b286dda8a2d4c29e6cb3fd0", []string{"LicenseRef-public-domain"}},
}

// Program is a set of main packages that are shipped for the same platforms.
type Program struct {
	Packages  string // a pattern of go list
	Tags      string // build tags
	Platforms []string
}

// Programs are what the repository ships.
var Programs = []Program{
	{Packages: "./scripts/rollout", Platforms: desktop},
	{Packages: "./gpuworker", Platforms: desktop},
	{Packages: "./functions/aws/...", Tags: "lambda.norpc", Platforms: []string{"linux/amd64", "linux/arm64"}},
	{Packages: "./functions/gcp", Platforms: []string{"linux/amd64"}}, // the one that Cloud Run runs
}

var desktop = []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"}

// Module is a module that a program links, with its licences.
type Module struct {
	Path    string
	Version string
	License string // SPDX identifiers, joined by " AND "
	Texts   []Text
}

// Text is a file that has to accompany the program: a licence or a notice.
type Text struct {
	Name    string // in the module, for example "LICENSE" or "zstd/LICENSE.txt"
	Content string
}

// GoModule is the path under which the standard library and the runtime are listed.
const GoModule = "std"

// vendorFolder has the libraries of the live page that are embedded in programs, as copies of packages
// of npm. Each is in a folder NAME-VERSION with its licence.
const vendorFolder = "functions/page/files/vendor"

// vendored lists the libraries in vendorFolder, as npm:NAME.
func vendored(root string) ([]Module, error) {
	folders, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(vendorFolder)))
	var out []Module
	errs := []error{err}
	for _, f := range folders {
		cut := strings.LastIndex(f.Name(), "-")
		if cut < 1 {
			errs = append(errs, fmt.Errorf("%s/%s is not named NAME-VERSION", vendorFolder, f.Name()))
			continue
		}
		dir := filepath.Join(root, filepath.FromSlash(vendorFolder), f.Name())
		m, err := inspect(&listedModule{Path: "npm:" + f.Name()[:cut], Version: f.Name()[cut+1:], Dir: dir},
			map[string]bool{dir: true})
		out, errs = append(out, m), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// Load lists the modules of all Programs in the repository at root, sorted by
// path, the standard library and the libraries of the live page among them. It fails for a module whose licence it
// does not find or know.
func Load(ctx context.Context, root string) ([]Module, error) {
	dirs := map[string]map[string]bool{} // module's path: folders of its linked packages
	found := map[string]*listedModule{}
	for _, program := range Programs {
		for _, platform := range program.Platforms {
			packages, err := list(ctx, root, program, platform)
			if err != nil {
				return nil, err
			}
			for _, p := range packages {
				if p.Standard || p.Module == nil || p.Module.Main {
					continue
				}
				m := p.Module
				if m.Replace != nil {
					m = m.Replace
				}
				if found[m.Path] == nil {
					found[m.Path], dirs[m.Path] = m, map[string]bool{}
				}
				dirs[m.Path][p.Dir] = true
			}
		}
	}
	goModule, err := standardLibrary(ctx, root)
	vendored, vendorErr := vendored(root)
	modules, errs := append(vendored, goModule), []error{err, vendorErr}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		module, err := inspect(found[name], dirs[name])
		modules, errs = append(modules, module), append(errs, err)
	}
	slices.SortFunc(modules, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, errors.Join(errs...)
}

type listedPackage struct {
	Dir      string
	Standard bool
	Module   *listedModule
}

type listedModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *listedModule
}

// list returns the packages that are linked into a program on a platform.
func list(ctx context.Context, root string, program Program, platform string) ([]listedPackage, error) {
	goos, goarch, _ := strings.Cut(platform, "/")
	out, err := goCommand(ctx, root, []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch},
		"list", "-deps", "-json=Dir,Standard,Module", "-tags", program.Tags, program.Packages)
	if err != nil {
		return nil, err
	}
	var packages []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// goCommand runs the go command in root and returns its standard output.
func goCommand(ctx context.Context, root string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// standardLibrary returns the toolchain's own part of every program.
func standardLibrary(ctx context.Context, root string) (Module, error) {
	goroot, err := goCommand(ctx, root, nil, "env", "GOROOT")
	if err != nil {
		return Module{}, err
	}
	dir := strings.TrimSpace(string(goroot))
	return inspect(&listedModule{Path: GoModule, Version: runtime.Version(), Dir: dir}, map[string]bool{dir: true})
}

var (
	licenseName = regexp.MustCompile(`(?i)^(un)?licen[cs]e|^copying`)
	noticeName  = regexp.MustCompile(`(?i)^notice`)
	notText     = regexp.MustCompile(`(?i)\.(go|json|tmpl)$`)
)

// inspect reads the licences and notices of a module: those in the folders of
// its linked packages, and in the folders above them up to the module's own.
func inspect(m *listedModule, packageDirs map[string]bool) (Module, error) {
	out := Module{Path: m.Path, Version: m.Version}
	if m.Dir == "" {
		return out, fmt.Errorf("%s is not in the module cache: run go mod download", m.Path)
	}
	folders, err := foldersUpTo(m.Dir, packageDirs)
	if err != nil {
		return out, err
	}
	var ids []string
	var errs []error
	for _, folder := range folders {
		entries, err := os.ReadDir(filepath.Join(m.Dir, filepath.FromSlash(folder)))
		if err != nil {
			return out, err
		}
		for _, e := range entries {
			license := licenseName.MatchString(e.Name())
			if e.IsDir() || notText.MatchString(e.Name()) || !license && !noticeName.MatchString(e.Name()) {
				continue
			}
			name := path.Join(folder, e.Name())
			content, err := os.ReadFile(filepath.Join(m.Dir, filepath.FromSlash(name)))
			if err != nil {
				return out, err
			}
			out.Texts = append(out.Texts, Text{Name: name, Content: string(content)})
			if license {
				found, err := classify(m.Path+"/"+name, content)
				ids, errs = append(ids, found...), append(errs, err)
			}
		}
	}
	if len(out.Texts) == 0 {
		errs = append(errs, fmt.Errorf("%s %s has no licence file: choose another module", m.Path, m.Version))
	}
	slices.Sort(ids)
	out.License = strings.Join(slices.Compact(ids), " AND ")
	return out, errors.Join(errs...)
}

// foldersUpTo returns root and every folder between it and one of dirs, as
// slash-separated paths in root, sorted.
func foldersUpTo(root string, dirs map[string]bool) ([]string, error) {
	folders := map[string]bool{".": true}
	for dir := range dirs {
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		for rel = filepath.ToSlash(rel); rel != "."; rel = path.Dir(rel) {
			folders[rel] = true
		}
	}
	return slices.Sorted(maps.Keys(folders)), nil
}

// minKnown is how much of a licence file, in percent of its words, has to be
// the text of known licences. The rest is copyright lines and introductions.
const minKnown = 75

// classify returns the SPDX identifiers of the licences in a file, whose name
// starts with the module's path.
func classify(name string, content []byte) ([]string, error) {
	if r, ok := reviewed[name]; ok {
		if digest := fmt.Sprintf("%x", sha256.Sum256(content)); digest != r.digest {
			return nil, fmt.Errorf("%s changed: read it, and write its licences and the digest %s "+
				"into reviewed in scripts/licenses", name, digest)
		}
		return r.licenses, nil
	}
	coverage := licensecheck.Scan(content)
	var ids []string
	for _, m := range coverage.Match {
		if !m.IsURL {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) == 0 || coverage.Percent < minKnown {
		return nil, fmt.Errorf("%s: only %.0f%% of it is the text of known licences (%s): read it, and add it "+
			"to reviewed in scripts/licenses, or choose another module", name, coverage.Percent, strings.Join(ids, ", "))
	}
	for _, id := range ids {
		if !slices.Contains(Accepted, id) {
			return nil, fmt.Errorf("%s: the licence %s is not accepted: choose another module", name, id)
		}
	}
	return ids, nil
}

// List returns a line for each module, with its path and licence.
func List(modules []Module) string {
	var b strings.Builder
	for _, m := range modules {
		fmt.Fprintf(&b, "%s %s\n", m.Path, m.License)
	}
	return b.String()
}

// Notices returns the text that accompanies the shipped programs: all licences
// and notices, each different text once, with the modules that it belongs to.
func Notices(modules []Module) string {
	var order []string
	owners := map[string][]string{}
	for _, m := range modules {
		for _, t := range m.Texts {
			content := strings.TrimSpace(t.Content)
			if owners[content] == nil {
				order = append(order, content)
			}
			owners[content] = append(owners[content], fmt.Sprintf("%s %s (%s)", m.Path, m.Version, t.Name))
		}
	}
	var b strings.Builder
	b.WriteString("The programs of rollout contain the following software of others.\n\n")
	for _, m := range modules {
		fmt.Fprintf(&b, "  %s %s: %s\n", m.Path, m.Version, m.License)
	}
	for _, content := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(owners[content], "\n"), content)
	}
	return b.String()
}
