package cli

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/fault"
)

func TestOpenDoesNotCreateInstallation(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "misspelt")
	_, err := flags{dir: dir}.open(t.Context(), openOptions{log: slog.New(slog.DiscardHandler)})
	if !fault.Is(err, fault.NotFound) {
		t.Errorf("open = %v, want NotFound", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open created the folder: %v", err)
	}
}
