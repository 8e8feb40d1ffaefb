package onlinewire_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"rollout/shared/onlinewire"
)

func TestSocketIsForItsUserAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "s")
	if runtime.GOOS == "linux" { // whose sockets have no longer paths than 107 bytes
		dir = filepath.Join(dir, strings.Repeat("long/", 40))
	}
	path := filepath.Join(dir, "w.sock")
	l, err := onlinewire.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v", info, err)
	}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}()
	c, err := onlinewire.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil || c.Close() != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the closed socket is still there")
	}
}

// The sockets of killed processes are removed; a young one may be about to listen.
func TestStaleSocketsAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	live := filepath.Join(dir, "live.sock")
	l, err := onlinewire.Listen(t.Context(), live)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"stale.sock", "young.sock"} {
		path := filepath.Join(dir, name)
		dead, err := onlinewire.Listen(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, path+"x"); err != nil { // keeps the file from being removed
			t.Fatal(err)
		}
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"x", path); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{live, filepath.Join(dir, "stale.sock")} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	onlinewire.RemoveStale(t.Context(), dir)
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "live.sock" || filepath.Base(left[1]) != "young.sock" {
		t.Errorf("left are %v, %v", left, err)
	}
}
