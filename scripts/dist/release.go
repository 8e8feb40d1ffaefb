package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"rollout/scripts/licenses"
)

// programs are the main packages that an archive contains; a program has the
// name of its package's folder.
var programs = []string{"./gpuworker", "./scripts/rollout"}

// versionVariables is the package whose variables Version, Commit and Date the
// linker sets; gpuworker has none.
const versionVariables = "rollout/scripts/rollout/command"

// Release is what the archives of one commit have in common.
type Release struct {
	Root    string // of the repository
	Version string // for example "v1.4.0" or "v1.4.0-3-g259f7417681f-dirty"
	Commit  string // 40 hexadecimal digits
	Date    time.Time
	Modules []licenses.Module
}

// fillFromGit sets what is empty of Version, Commit and Date from the checkout at Root.
func (r *Release) fillFromGit(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		out, err := command(ctx, r.Root, nil, "git", args...)
		return strings.TrimSpace(string(out)), err
	}
	// The length of the id is fixed: git's own depends on how many objects a clone has.
	version, errVersion := git("describe", "--tags", "--always", "--dirty", "--abbrev=12")
	commit, errCommit := git("rev-parse", "HEAD")
	seconds, errDate := git("log", "-1", "--format=%ct")
	if err := errors.Join(errVersion, errCommit, errDate); err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.Version, r.Commit = cmp.Or(r.Version, version), cmp.Or(r.Commit, commit)
	if r.Date.IsZero() {
		r.Date = time.Unix(unix, 0)
	}
	return nil
}

// Build writes an archive and its SBOM for each platform ("linux/amd64"), and
// SHA256SUMS with the checksums of all, into the folder out. It returns the
// names of the files that it wrote, sorted.
func (r *Release) Build(ctx context.Context, out string, platforms []string) ([]string, error) {
	if strings.ContainsAny(r.Version, `/\ `) {
		return nil, fmt.Errorf("the version %q has a slash or a space and cannot name a file: use another tag", r.Version)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	var names []string
	var sums strings.Builder
	for _, platform := range platforms {
		written, err := r.buildPlatform(ctx, out, platform)
		if err != nil {
			return names, fmt.Errorf("%s: %w", platform, err)
		}
		names = append(names, written...)
	}
	slices.Sort(names)
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return names, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(b), name)
	}
	const checksums = "SHA256SUMS"
	return append([]string{checksums}, names...), os.WriteFile(filepath.Join(out, checksums), []byte(sums.String()), 0o644)
}

// buildPlatform writes the archive and the SBOM of one platform.
func (r *Release) buildPlatform(ctx context.Context, out, platform string) ([]string, error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, errors.New("not a platform: write OS/ARCH, such as linux/amd64")
	}
	temp, err := os.MkdirTemp("", "rollout-dist-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp) // only a copy is lost
	files := []entry{{name: "THIRD-PARTY.txt", content: []byte(licenses.Notices(r.Modules))}}
	for _, name := range []string{"LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(r.Root, name))
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: name, content: content})
	}
	parts := sbom{release: r, platform: platform}
	for _, pkg := range programs {
		name := filepath.Base(pkg)
		path := filepath.Join(temp, name)
		if err := r.compile(ctx, pkg, path, goos, goarch); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, entry{name: name, content: content, executable: true})
		if err := parts.add(name, content); err != nil {
			return nil, err
		}
	}
	base := fmt.Sprintf("rollout_%s_%s_%s", r.Version, goos, goarch)
	archive, err := pack(base, files, r.Date)
	if err != nil {
		return nil, err
	}
	list, err := parts.encode()
	if err != nil {
		return nil, err
	}
	names := []string{base + ".tar.gz", base + ".cdx.json"}
	return names, errors.Join(
		os.WriteFile(filepath.Join(out, names[0]), archive, 0o644),
		os.WriteFile(filepath.Join(out, names[1]), list, 0o644))
}

// compile builds one program. Every setting of the environment that changes the
// program's bytes is fixed. The toolchain does not record the commit itself: it
// does so in a clone, and not in a worktree or in unpacked source.
func (r *Release) compile(ctx context.Context, pkg, path, goos, goarch string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	linker := fmt.Sprintf("-ldflags=-s -w -X %[1]s.Version=%[2]s -X %[1]s.Commit=%[3]s -X %[1]s.Date=%[4]s",
		versionVariables, r.Version, r.Commit, r.Date.UTC().Format(time.RFC3339))
	env := []string{
		"CGO_ENABLED=0", "GOAMD64=v1", "GOARCH=" + goarch, "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOFLAGS=-buildvcs=false", "GOOS=" + goos, "GOWORK=off",
	}
	_, err = command(ctx, r.Root, env, "go", "build", "-trimpath", "-buildvcs=false", "-tags=", linker, "-o", path, pkg)
	return err
}

// command runs a program in dir, with env added to the environment, and returns
// its standard output.
func command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
