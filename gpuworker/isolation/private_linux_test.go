package isolation

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/shared/fault"
)

// openPrivate returns a sandbox of the level Full with private paths.
func openPrivate(t *testing.T, private ...string) fixture {
	t.Helper()
	s, err := Open(filepath.Join(publicFolder(t), "sandboxes"), private...)
	if err != nil {
		t.Fatal(err)
	}
	return fixture{Sandbox: s, level: Full, tools: filepath.Join(folder, "tools")}
}

func (f fixture) requireFull(t *testing.T) {
	t.Helper()
	if level, reason := f.Probe(t.Context()); level != Full {
		skip(t, Full, level, reason)
	}
}

// What is private is hidden in a folder that the command sees, also by a link, and nothing else is.
func TestPrivateFilesAreCovered(t *testing.T) {
	t.Parallel()
	shown := publicFolder(t)
	write(t, shown, map[string]string{"install/.rollout/state": "secret", "install/x": "secret", "key.pem": "secret",
		"program": "seen", "install-2/program": "seen"})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(shown, "install"), link); err != nil {
		t.Fatal(err)
	}
	f := openPrivate(t, link, filepath.Join(shown, "key.pem"), filepath.Join(shown, "install", ".rollout"),
		filepath.Join(shown, "missing"))
	f.requireFull(t)
	c := f.hostile("read", "/shown/install/.rollout/state", "/shown/install/x", "/shown/key.pem", "/shown/program",
		"/shown/install-2/program")
	c.Folders = append(c.Folders, Folder{Host: shown, Inside: "/shown"})
	if got := f.says(t, c); got != "/shown/program\n/shown/install-2/program" {
		t.Errorf("the command can read %q", got)
	}
	c = f.shell(`ls -A /shown/install; umount /shown/install 2>/dev/null && echo uncovered
		(echo > /shown/install/new) 2>/dev/null && echo written; true`)
	c.Folders = append(c.Folders, Folder{Host: shown, Inside: "/shown"})
	if got := f.says(t, c); got != "" {
		t.Errorf("the covered folder: %q", got)
	}
}

// An installation may stand among the system's programs.
func TestInstallationBelowUsrIsCovered(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/usr/local", "rollout-test")
	if err != nil {
		t.Skipf("this user may not write to /usr/local: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"rollout.toml": "secret"})
	f, open := openPrivate(t, dir), openPrivate(t)
	f.requireFull(t)
	file := filepath.Join(dir, "rollout.toml")
	if got := f.says(t, f.hostile("read", file, "/usr/bin")); got != "/usr/bin" {
		t.Errorf("the command can read %q", got)
	}
	if got := open.says(t, open.hostile("read", file)); got != file {
		t.Errorf("without a cover it can read %q: the test shows nothing", got)
	}
}

func TestPrivateFoldersThatCannotBeCoveredAreRefused(t *testing.T) {
	t.Parallel()
	f := openPrivate(t, "/usr")
	level, reason := f.Probe(t.Context())
	if _, err := f.Run(t.Context(), f.shell("true")); level != Refused || !strings.Contains(reason, "/usr") ||
		!fault.Is(err, fault.Denied) {
		t.Errorf("a folder that all commands see: %s, %s, %v", level, reason, err)
	}
	shown := publicFolder(t)
	write(t, shown, map[string]string{"install/key": "secret"})
	f = openPrivate(t, filepath.Join(shown, "install"))
	for _, test := range []struct {
		level Level
		host  string
		want  []string // nil is refused
	}{
		{Full, shown, []string{"/shown/install"}},
		{Trusted, shown, nil},
		{Full, filepath.Join(shown, "install"), nil},
		{Full, filepath.Join(shown, "install", "key"), nil},
		{Trusted, f.tools, []string{}},
	} {
		got, err := f.covers(test.level, Command{Folders: []Folder{{Host: test.host, Inside: "/shown"}}})
		if test.want == nil && !fault.Is(err, fault.Denied) ||
			test.want != nil && (err != nil || !slices.Equal(got, test.want)) {
			t.Errorf("%s at the level %s: %q, %v, want %q", test.host, test.level, got, err, test.want)
		}
	}
}
