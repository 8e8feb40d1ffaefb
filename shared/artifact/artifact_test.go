package artifact_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/artifact"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/memory"
)

func put(t *testing.T, blobs blob.Store, key, content string) {
	t.Helper()
	if _, err := blobs.Put(t.Context(), key, strings.NewReader(content), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// archive returns a tar of the entries, each with its name as content.
func archive(t *testing.T, entries ...tar.Header) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.Name
		if h.Typeflag != tar.TypeReg {
			content = ""
		}
		if h.Size = int64(len(content)); h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }

// files returns the files below a folder, as MODE NAME=CONTENT.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out = append(out, fmt.Sprintf("%o %s=%s", info.Mode(), name, text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPinnedArtifactIsUnpackedAsItWas(t *testing.T) {
	t.Parallel()
	blobs := memory.NewBucket(clock.System{})
	put(t, blobs, "agents/mine/agent.py", "print(1)")
	put(t, blobs, "agents/mine/lib/x.py", "x = 1")
	put(t, blobs, "agents/mine2/other", "")
	put(t, blobs, "agents/mine.tar", archive(t, tar.Header{Typeflag: tar.TypeDir, Name: "lib/"}, file("./lib/x"),
		tar.Header{Typeflag: tar.TypeReg, Name: "run", Mode: 0o755}))
	for key, want := range map[string]string{
		"agents/mine/":    "[755 agent.py=print(1) 755 lib/x.py=x = 1]",
		"agents/mine.tar": "[644 lib/x=./lib/x 755 run=run]",
	} {
		p, err := artifact.Pin(t.Context(), blobs, key, nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := artifact.Pin(t.Context(), blobs, key, nil)
		if err != nil || again != p || p.Files != 2 {
			t.Errorf("%s: pinned as %+v, then as %+v, %v", key, p, again, err)
		}
		put(t, blobs, key+"x", "later") // changes nothing of what is pinned
		dir := t.TempDir()
		for range 2 {
			folder, err := artifact.Unpack(t.Context(), blobs, p.Content, dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(files(t, folder)); got != want || filepath.Base(folder) != p.Content.String() {
				t.Errorf("%s: %s in %s, want %s", key, got, folder, want)
			}
		}
	}
}

func TestHostileArtifactsAreRefused(t *testing.T) {
	t.Parallel()
	link := func(kind byte, to string) tar.Header { return tar.Header{Typeflag: kind, Name: "a", Linkname: to} }
	deep := strings.Repeat("d/", 40) + "f"
	for name, test := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"a link":             {[]tar.Header{link(tar.TypeSymlink, "/etc")}, "not a regular file"},
		"a second name":      {[]tar.Header{file("b"), link(tar.TypeLink, "b")}, "not a regular file"},
		"a device":           {[]tar.Header{{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1}}, "not a regular file"},
		"a pipe":             {[]tar.Header{{Typeflag: tar.TypeFifo, Name: "p"}}, "not a regular file"},
		"a parent":           {[]tar.Header{file("../x")}, "not a name"},
		"a parent inside":    {[]tar.Header{file("a/../../x")}, "not a name"},
		"a root":             {[]tar.Header{file("/etc/x")}, "not a name"},
		"a line break":       {[]tar.Header{file("a\nb")}, "control"},
		"no UTF-8":           {[]tar.Header{file("a\xffb")}, "UTF-8"},
		"deep folders":       {[]tar.Header{file(deep)}, "folders"},
		"a name twice":       {[]tar.Header{file("a"), file("A")}, "twice"},
		"the task's file":    {[]tar.Header{file("task.json")}, "task.json"},
		"a file as a folder": {[]tar.Header{file("a"), file("a/b")}, ""},
		"nothing":            {nil, "no files"},
	} {
		blobs := memory.NewBucket(clock.System{})
		text := archive(t, test.entries...)
		put(t, blobs, "agents/a.tar", text)
		p, err := artifact.Pin(t.Context(), blobs, "agents/a.tar", nil)
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: pinned as %+v, %v", name, p, err)
		}
		// Whoever may write to the bucket may have written it as it is.
		content := identity.Content([]byte(text))
		put(t, blobs, identity.ContentKey(content), text)
		dir := t.TempDir()
		if name == "nothing" || name == "a name twice" {
			continue // it harms nobody
		}
		if _, err := artifact.Unpack(t.Context(), blobs, content, dir); err == nil {
			t.Errorf("%s: unpacked", name)
		}
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("%s: has left %v", name, left)
		}
	}
}

func TestArtifactWithAnotherContentIsCorrupt(t *testing.T) {
	t.Parallel()
	blobs := memory.NewBucket(clock.System{})
	content := identity.Content([]byte("other"))
	put(t, blobs, identity.ContentKey(content), archive(t, file("a")))
	dir := t.TempDir()
	if _, err := artifact.Unpack(t.Context(), blobs, content, dir); !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v", err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("it has left %v", left)
	}
}

func TestArtifactHasNoFilesOfOthers(t *testing.T) {
	t.Parallel()
	blobs := memory.NewBucket(clock.System{})
	put(t, blobs, "prompts/tasks.jsonl", "targets")
	for _, key := range []string{"prompts/", "runs/x/", "work/", "cas/x.tar"} {
		if _, err := artifact.Pin(t.Context(), blobs, key, nil); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if _, err := artifact.Pin(t.Context(), blobs, "agents/none/", nil); !fault.Is(err, fault.NotFound) {
		t.Errorf("a folder without files: %v", err)
	}
}
