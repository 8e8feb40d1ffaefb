package batch_test

import (
	"log/slog"
	"strings"
	"testing"

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
				Docs: memory.NewDocuments(), Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "test",
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
