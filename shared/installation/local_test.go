package installation_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/installation"
)

func TestOpenLocalSharesFolderBetweenHandles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, closeFirst, err := installation.OpenLocal(t.Context(), dir, installation.LocalOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	second, closeSecond, err := installation.OpenLocal(t.Context(), dir, installation.LocalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Ports.Docs.Create(t.Context(), "run/x", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if d, err := second.Ports.Docs.Get(t.Context(), "run/x"); err != nil || string(d.Value) != "{}" {
		t.Errorf("the second handle reads %q, %v, want {}", d.Value, err)
	}
	prompts := strings.NewReader("{}\n")
	if _, err := second.Ports.Blobs.Put(t.Context(), "prompts/x.jsonl", prompts, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(installation.BucketDir(dir), "prompts", "x.jsonl")); err != nil {
		t.Error(err)
	}
	if err := closeSecond(); err != nil {
		t.Error(err)
	}
	if err := closeFirst(); err != nil {
		t.Error(err)
	}
}

func TestOpenLocalDoesNotCreateInstallation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "typo")
	_, _, err := installation.OpenLocal(t.Context(), dir, installation.LocalOptions{})
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "start `rollout up --dir "+dir+"` first") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("OpenLocal created the folder (%v)", err)
	}
}

func TestReadDeploymentReturnsFileOrDefault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if d, err := installation.ReadDeployment(dir); err != nil || d.Bucket != config.DefaultDeployment().Bucket {
		t.Errorf("without a file: %+v, %v", d, err)
	}
	path := filepath.Join(dir, installation.DeploymentFile)
	for _, c := range []struct{ text, bucket, want string }{
		{"schema_version = 1\nbucket = \"mine\"\n", "mine", ""},
		{"schema_version = 1\nbuckett = \"mine\"\n", "", path + ":2: buckett"},
		{strings.Repeat("#", config.MaxFileSize+1), "", "is it the right file?"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := installation.ReadDeployment(dir)
		if c.want == "" && (err != nil || d.Bucket != c.bucket) {
			t.Errorf("%.20q: %+v, %v", c.text, d, err)
		}
		if c.want != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%.20q: %v, want %q", c.text, err, c.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := installation.ReadDeployment(dir); !fault.Is(err, fault.Invalid) {
		t.Errorf("a folder named rollout.toml: %v, want Invalid", err)
	}
}
