package results_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"rollout/scripts/rollout/results"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/memory"
	"rollout/shared/record"
)

const runA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")

// flakyStore breaks the next `times` connections after `after` bytes each.
type flakyStore struct {
	blob.Store
	after, times int
}

func (b *flakyStore) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := b.Store.Get(ctx, key, o)
	if err != nil || b.times == 0 {
		return r, info, err
	}
	b.times--
	return io.NopCloser(io.MultiReader(io.LimitReader(r, int64(b.after)), brokenReader{})), info, nil
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) {
	return 0, fault.New(fault.Unavailable, "the connection broke")
}

// putFiles stores the output of a run with that many rows, and returns its completions.
func putFiles(t *testing.T, b blob.Store, rows int) string {
	t.Helper()
	text := strings.Repeat("{\"completion\":\"Hello there\"}\n", rows)
	summary := record.Summary{Schema: record.Schema, Run: runA, Items: uint64(rows), Completed: uint64(rows)}
	for name, content := range map[string]string{
		record.CompletionsFile: text,
		record.SummaryFile:     string(record.Encode(summary)),
		"parts/1":              "not for users",
	} {
		key := record.OutputKey(runA, name)
		if _, err := b.Put(t.Context(), key, strings.NewReader(content), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return text
}

// loadCompletions loads the run's files and finds its completions among them.
func loadCompletions(t *testing.T, b blob.Store) (results.Files, blob.Info) {
	t.Helper()
	files, err := results.Load(t.Context(), b, runA)
	if err != nil {
		t.Fatal(err)
	}
	if len(files.Objects) != 2 {
		t.Errorf("files: %+v", files.Objects)
	}
	info, err := files.Object(record.CompletionsFile)
	if err != nil {
		t.Fatal(err)
	}
	return files, info
}

func TestCopyContinuesAfterBrokenConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &flakyStore{Store: memory.NewBucket(clock.System{}), after: 1000}
		want := putFiles(t, b, 1000)
		files, info := loadCompletions(t, b)
		b.times = 20 // more than the tries of one retry.Policy
		var out bytes.Buffer
		if err := files.Copy(t.Context(), b, info, &out); err != nil || out.String() != want || b.times != 0 {
			t.Errorf("%d of %d bytes, %d breaks left, %v", out.Len(), len(want), b.times, err)
		}
	})
}

func TestSaveFailsIfConnectionsDeliverNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &flakyStore{Store: memory.NewBucket(clock.System{})}
		putFiles(t, b, 10)
		files, info := loadCompletions(t, b)
		b.times = 1 << 20
		path := filepath.Join(t.TempDir(), "x")
		err := files.Save(t.Context(), b, info, path, func(w io.Writer) io.Writer { return w })
		if !fault.Is(err, fault.Unavailable) {
			t.Errorf("got %v", err)
		}
		if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) > 0 {
			t.Errorf("left behind: %v (%v)", entries, err)
		}
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestCopyDoesNotRetryWriteErrors(t *testing.T) {
	t.Parallel()
	b := memory.NewBucket(clock.System{})
	putFiles(t, b, 10)
	files, info := loadCompletions(t, b)
	err := files.Copy(t.Context(), b, info, fullDisk{})
	if fault.Is(err, fault.Invalid) || fault.Retriable(err) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v", err)
	}
}

func TestCopyReadsOnlyThePinnedVersion(t *testing.T) {
	t.Parallel()
	b := memory.NewBucket(clock.System{})
	want := putFiles(t, b, 3)
	files, info := loadCompletions(t, b)
	if _, err := b.Put(t.Context(), info.Key, strings.NewReader("other\n"), blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := files.Copy(t.Context(), b, info, &out); err == nil && out.String() != want {
		t.Errorf("got another version: %q", out.String())
	}
}

func TestSaveNeverOverwritesAFile(t *testing.T) {
	t.Parallel()
	b := memory.NewBucket(clock.System{})
	putFiles(t, b, 3)
	files, info := loadCompletions(t, b)
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := files.Save(t.Context(), b, info, path, func(w io.Writer) io.Writer { return w })
	if !fault.Is(err, fault.Invalid) {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(path); string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFilesAreThoseOfTheRunAndItsGuidance lists more objects than fit on a page, of which
// one is in another folder.
func TestFilesAreThoseOfTheRunAndItsGuidance(t *testing.T) {
	t.Parallel()
	b := memory.NewBucket(clock.System{})
	putFiles(t, b, 1)
	const steps = 1500
	for n := range steps {
		key := record.OutputKey(runA, fmt.Sprintf("guidance/m/step-%d.json", n))
		if _, err := b.Put(t.Context(), key, strings.NewReader("{}"), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := results.Load(t.Context(), b, runA)
	if err != nil || len(f.Objects) != steps+2 {
		t.Fatalf("%d files, %v", len(f.Objects), err)
	}
	if _, err := f.Object("guidance/m/step-1499.json"); err != nil {
		t.Error(err)
	}
	if _, err := f.Object("parts/1"); !fault.Is(err, fault.NotFound) {
		t.Errorf("a file of another folder: %v", err)
	}
}
