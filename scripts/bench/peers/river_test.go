package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestRiverCompletesItsJobs(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "peers-") // the user of the database must be able to reach it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	db, err := startPostgres(t.Context(), filepath.Join(dir, "postgres"))
	if errors.Is(err, errNoPostgres) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	spent, err := riverRun(t.Context(), db.url, 500)
	if err != nil || spent <= 0 {
		t.Errorf("%s, %v", spent, err)
	}
	if err := db.stop(); err != nil {
		t.Error(err)
	}
}
