package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"rollout/scripts/licenses"
)

const root = "../.."

// unpack returns the headers of an archive's entries and the files' content.
func unpack(t *testing.T, archive []byte) ([]*tar.Header, map[string][]byte) {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	var headers []*tar.Header
	files := map[string][]byte{}
	for r := tar.NewReader(packed); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = content
		}
	}
}

func TestArchiveHasSortedEntriesOfUserZero(t *testing.T) {
	t.Parallel()
	changed := time.Date(2026, 3, 1, 12, 0, 0, 5e8, time.FixedZone("", 3600))
	files := []entry{{"b", []byte("program"), true}, {"a.txt", []byte("text"), false}}
	archive, err := pack("x_v1", files, changed)
	if err != nil {
		t.Fatal(err)
	}
	headers, content := unpack(t, archive)
	var got []string
	for _, h := range headers {
		got = append(got, fmt.Sprintf("%s %o %d:%d%s%s %s", h.Name, h.Mode, h.Uid, h.Gid, h.Uname, h.Gname,
			h.ModTime.UTC().Format(time.RFC3339)))
	}
	want := []string{
		"x_v1/ 755 0:0 2026-03-01T11:00:00Z",
		"x_v1/a.txt 644 0:0 2026-03-01T11:00:00Z",
		"x_v1/b 755 0:0 2026-03-01T11:00:00Z",
	}
	if !slices.Equal(got, want) || string(content["x_v1/b"]) != "program" {
		t.Errorf("got %q, want %q", got, want)
	}
	slices.Reverse(files)
	if again, err := pack("x_v1", files, changed.UTC()); err != nil || !bytes.Equal(archive, again) {
		t.Errorf("other bytes for another order and time zone, or %v", err)
	}
}

// The test's own program takes the place of a release's.
func TestSBOMListsTheModulesOfAProgram(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	r := Release{Version: "v1.2.3", Commit: "abc", Date: time.Unix(0, 0), Modules: []licenses.Module{
		{Path: licenses.GoModule, License: "BSD-3-Clause"},
		{Path: "github.com/google/licensecheck", License: "BSD-3-Clause"},
	}}
	s := sbom{release: &r, platform: "linux/amd64"}
	if err := s.add("rollout", program); err != nil {
		t.Fatal(err)
	}
	encoded, err := s.encode()
	if err != nil {
		t.Fatal(err)
	}
	var list bom
	if err := json.Unmarshal(encoded, &list); err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, c := range list.Components {
		name, _, _ := strings.Cut(c.PURL, "@")
		urls = append(urls, name)
	}
	if want := []string{"pkg:golang/github.com/google/licensecheck", "pkg:golang/stdlib"}; !slices.Equal(urls, want) {
		t.Errorf("got the components %q, want %q", urls, want)
	}
	if again, err := s.encode(); err != nil || !bytes.Equal(encoded, again) {
		t.Errorf("the same programs give another list, or %v", err)
	}
	r.Modules = r.Modules[:1]
	if err := s.add("rollout", program); err == nil || !strings.Contains(err.Error(), "licensecheck is not known") {
		t.Errorf("a module without a known licence: got %v", err)
	}
}

func TestVersionThatIsNoFileNameIsAnError(t *testing.T) {
	t.Parallel()
	r := Release{Version: "release/1"}
	if _, err := r.Build(t.Context(), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), `"release/1"`) {
		t.Errorf("got %v", err)
	}
}

// The test builds the last commit in two clones, so that it needs a git
// checkout, and takes as long as linking the programs twice.
func TestTwoFoldersGiveTheSameBytes(t *testing.T) {
	if os.Getenv("ROLLOUT_TEST_DIST") == "" {
		t.Skip("it links the programs twice: make test-dist runs it")
	}
	ctx, temp, platform := t.Context(), t.TempDir(), runtime.GOOS+"/"+runtime.GOARCH
	modules, err := licenses.Load(ctx, root)
	if err != nil {
		t.Fatal(err)
	}
	built := map[string][]byte{}
	var r Release
	for i, folder := range []string{"a", filepath.Join("another", "folder")} {
		folder = filepath.Join(temp, folder)
		if out, err := exec.CommandContext(ctx, "git", "clone", "-q", root, folder).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if i == 1 { // settings that must not change the result
			t.Setenv("GOFLAGS", "-ldflags=-compressdwarf=false")
			t.Setenv("TZ", "Asia/Tokyo")
		}
		r = Release{Root: folder, Modules: modules}
		if err := r.fillFromGit(ctx); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(folder, "out", "dist")
		names, err := r.Build(ctx, out, []string{platform})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 && !bytes.Equal(b, built[name]) {
				t.Errorf("%s differs between two folders: %x and %x", name, sha256.Sum256(built[name]), sha256.Sum256(b))
			}
			built[name] = b
		}
	}
	checkRelease(t, r, built)
}

// checkRelease checks the files of a release for this machine, and starts its program.
func checkRelease(t *testing.T, r Release, built map[string][]byte) {
	t.Helper()
	base := fmt.Sprintf("rollout_%s_%s_%s", r.Version, runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{base + ".tar.gz", base + ".cdx.json"} {
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(built[name]), name)
		if !strings.Contains(string(built["SHA256SUMS"]), line) {
			t.Errorf("SHA256SUMS has no line %q", line)
		}
	}
	_, files := unpack(t, built[base+".tar.gz"])
	for _, name := range []string{"LICENSE", "README.md", "THIRD-PARTY.txt", "gpuworker", "rollout"} {
		if len(files[base+"/"+name]) < 500 {
			t.Errorf("%s has %d bytes", name, len(files[base+"/"+name]))
		}
	}
	program := filepath.Join(t.TempDir(), "rollout")
	if err := os.WriteFile(program, files[base+"/rollout"], 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	want := fmt.Sprintf("rollout %s (commit %s, %s)", r.Version, r.Commit[:12], r.Date.UTC().Format(time.RFC3339))
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("rollout version prints %q, want %q (%v)", out, want, err)
	}
	var list bom
	if err := json.Unmarshal(built[base+".cdx.json"], &list); err != nil || len(list.Components) < 50 {
		t.Errorf("the SBOM has %d components, %v", len(list.Components), err)
	}
}
