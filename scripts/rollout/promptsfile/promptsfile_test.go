package promptsfile_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/promptsfile"
	"rollout/shared/fault"
)

const content = "{\"prompt\":\"one\"}\n{\"prompt\":\"two\"}\n"

// file writes a file and returns its path.
func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipped(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(content)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadingAPromptsFile(t *testing.T) {
	t.Parallel()
	packed := gzipped(t)
	for name, c := range map[string]struct {
		path  string
		limit int64
		want  string // of the error
	}{
		"plain":                  {file(t, "x.jsonl", []byte(content)), 5, ""}, // the limit is of packed files
		"packed":                 {file(t, "x.jsonl.gz", packed), int64(len(content)), ""},
		"packed, without limit":  {file(t, "x.jsonl.gz", packed), 0, ""},
		"packed, and too large":  {file(t, "x.jsonl.gz", packed), int64(len(content)) - 1, "input.max_unpacked"},
		"packed, and cut short":  {file(t, "x.jsonl.gz", packed[:len(packed)-9]), 1 << 20, "x.jsonl.gz"},
		"not packed as its name": {file(t, "x.jsonl.gz", []byte(content)), 1 << 20, "x.jsonl.gz"},
		"missing":                {filepath.Join(t.TempDir(), "x.jsonl"), 1 << 20, "x.jsonl: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := filepath.Join(t.TempDir(), "copy")
			err := promptsfile.Copy(t.Context(), to, c.path, c.limit)
			if c.want != "" {
				if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				return
			}
			if got, readErr := os.ReadFile(to); err != nil || readErr != nil || string(got) != content {
				t.Errorf("the copy is %q, %v, %v", got, err, readErr)
			}
		})
	}
}

func TestACopyThatCannotBeWrittenNamesTheFolderToChange(t *testing.T) {
	t.Parallel()
	path := file(t, "x.jsonl", []byte(content))
	for _, to := range []string{filepath.Join(t.TempDir(), "none", "copy"), path} {
		err := promptsfile.Copy(t.Context(), to, path, 0)
		if !fault.Is(err, fault.Exhausted) || !strings.Contains(err.Error(), "TMPDIR") {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	r, err := promptsfile.Open(ctx, file(t, "x.jsonl", []byte(content)), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stop()
	if _, err := io.ReadAll(r); !fault.Is(err, fault.Canceled) {
		t.Error(err)
	}
}
