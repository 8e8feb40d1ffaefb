package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each refusal names what to correct, and comes before any request.
func TestInvalidConfigsAndAddressesAreRefused(t *testing.T) {
	for name, value := range map[string]string{"AWS_ENDPOINT_URL": "", "AWS_ACCESS_KEY_ID": "none",
		"AWS_SECRET_ACCESS_KEY": "none", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cloud := "schema_version = 1\n[cloud]\nprovider = \"aws\"\nregion = \"us-east-1\"\ns3.bucket = \"acme-rollout\"\n"
	for path, want := range map[string]string{
		filepath.Join(dir, "missing.toml"):             "--config",
		file("laptop.toml", "schema_version = 1\n"):    "[cloud]",
		file("bad.toml", cloud+"sqs.prefix = \"X\"\n"): "sqs.prefix",
		file("account.toml", cloud):                    "AWS_ENDPOINT_URL",
	} {
		if err := run(t.Context(), []string{"--config", path}, io.Discard, io.Discard); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %s", filepath.Base(path), err, want)
		}
	}
}
