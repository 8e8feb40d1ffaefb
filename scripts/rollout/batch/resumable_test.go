package batch_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rollout/functions/submit"
	"rollout/scripts/rollout/batch"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/installation"
	"rollout/shared/memory"
	"rollout/shared/record"
)

func TestRunContinuesOnlyWithWhatItStartedWith(t *testing.T) {
	t.Parallel()
	temperature := 0.7
	started := record.Manifest{Run: inputtest.RunID, ModelURI: "m", ModelID: identity.Model("m", "").String(),
		Inputs: []record.Input{{Name: "in/a.jsonl"}, {Name: "in/b.jsonl"}}}
	started.Config.Sampling = config.Sampling{Temperature: &temperature}
	const unknown = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF")
	for name, c := range map[string]struct {
		change  func(*batch.Batch)
		wantErr string // part of the error; "" expects success
	}{
		"nothing changed": {func(*batch.Batch) {}, ""},
		"started from another folder": {func(b *batch.Batch) {
			b.Files = []string{"/x/in/a.jsonl", "/x/in/b.jsonl"}
		}, ""},
		"a file was removed": {func(b *batch.Batch) { b.Files = b.Files[:1] }, ""},
		"another limit":      {func(b *batch.Batch) { b.Config.Limits.Failures = 9 }, ""},
		"a file was added": {func(b *batch.Batch) {
			b.Files = append(b.Files, "in/c.jsonl")
		}, "without the file in/c.jsonl"},
		"other sampling parameters": {func(b *batch.Batch) {
			b.Config.Sampling = config.Sampling{}
		}, `parameters {"temperature":0.7} and cannot continue with {}`},
		"another model": {func(b *batch.Batch) {
			b.Config.Model.URI = "n"
		}, "model m and cannot continue with n"},
		"another revision": {func(b *batch.Batch) {
			b.Config.Model.Revision = "r"
		}, "model m and cannot continue with another revision of it"},
		"another revision is served": {func(b *batch.Batch) {
			b.Local.Deployment.Pools = []config.Pool{{Name: "p", Model: "m", Revision: "r"}}
		}, "another revision"},
		"an unknown run":          {func(b *batch.Batch) { b.Run = unknown }, ""},
		"--resume an unknown run": {func(b *batch.Batch) { b.Run, b.MustExist = unknown, true }, "there is no run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := host.Ports{
				Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(), Clock: clock.System{},
				Log: slog.New(slog.DiscardHandler), Source: "test",
			}
			if _, err := host.Save(t.Context(), p.Docs, record.ManifestKey(started.Run), started, ""); err != nil {
				t.Fatal(err)
			}
			same := 0.7
			b := batch.Batch{Local: &installation.Local{Ports: p}, Run: started.Run, Files: []string{"in/a.jsonl", "in/b.jsonl"}}
			b.Config.Model.URI, b.Config.Sampling = "m", config.Sampling{Temperature: &same}
			c.change(&b)
			err := b.CheckResumable(t.Context())
			switch {
			case c.wantErr == "" && err != nil,
				c.wantErr != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("%v, want %q", err, c.wantErr)
			}
		})
	}
}

// A file that has other bytes than when the run started would not be answered: the run
// goes on with its copy.
func TestRunDoesNotContinueWithChangedFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(t *testing.T, file string)
		changed bool
	}{
		"unchanged": {func(*testing.T, string) {}, false},
		"removed":   {func(t *testing.T, file string) { must(t, os.Remove(file)) }, false},
		"touched": {func(t *testing.T, file string) {
			must(t, os.Chtimes(file, time.Time{}, time.Unix(1e9, 0)))
		}, false},
		"another size":  {func(t *testing.T, file string) { must(t, os.WriteFile(file, []byte("{}"), 0o600)) }, true},
		"another start": {func(t *testing.T, file string) { rewrite(t, file, strings.Repeat("c", 100_000)) }, true},
		"another end":   {func(t *testing.T, file string) { rewrite(t, file, strings.Repeat("b", 99_999)+"c") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, closeAll, err := installation.OpenLocal(t.Context(), dir, installation.LocalOptions{Create: true})
			must(t, err)
			defer func() { must(t, closeAll()) }()
			b := batch.Batch{Local: l, Run: inputtest.RunID}
			b.Config.Model.URI = "m"
			for _, folder := range []string{"1", "2"} { // files of one name
				file := filepath.Join(dir, folder, "a.jsonl")
				must(t, os.Mkdir(filepath.Dir(file), 0o755))
				rewrite(t, file, strings.Repeat(map[string]string{"1": "a", "2": "b"}[folder], 100_000))
				b.Files = append(b.Files, file)
			}
			l.Deployment.Pools = []config.Pool{{Name: "default", Model: "m"}}
			must(t, b.Submit(t.Context(), submit.New(l.Ports, submit.Options{Deployment: l.Deployment})))
			c.change(t, b.Files[1])
			err = b.CheckResumable(t.Context())
			names := err == nil || strings.Contains(err.Error(), "2/a.jsonl has changed")
			if c.changed != fault.Is(err, fault.Invalid) || !names {
				t.Errorf("%v, want changed %v", err, c.changed)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rewrite writes a file at another time than before.
func rewrite(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
	must(t, os.Chtimes(file, time.Time{}, time.Unix(1e9+int64(text[len(text)-1]), 0)))
}
