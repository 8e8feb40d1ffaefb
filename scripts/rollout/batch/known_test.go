package batch_test

import (
	"log/slog"
	"strings"
	"testing"

	"rollout/scripts/rollout/batch"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/embedded/local"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

func TestARunGoesOnWithWhatItBeganWith(t *testing.T) {
	t.Parallel()
	hot := 0.7
	begun := record.Manifest{Run: inputtest.RunID, ModelURI: "m", ModelID: identity.Model("m", "").String(),
		Inputs: []record.Input{{Name: "in/a.jsonl"}, {Name: "in/b.jsonl"}}}
	begun.Config.Sampling = config.Sampling{Temperature: &hot}
	for name, c := range map[string]struct {
		change  func(*batch.Batch)
		refused string // a part of why; "" is none
	}{
		"the same":                      {func(*batch.Batch) {}, ""},
		"started from another folder":   {func(b *batch.Batch) { b.Files = []string{"/x/in/a.jsonl", "/x/in/b.jsonl"} }, ""},
		"a file is gone":                {func(b *batch.Batch) { b.Files = b.Files[:1] }, ""},
		"another limit":                 {func(b *batch.Batch) { b.Config.Limits.Failures = 9 }, ""},
		"another file":                  {func(b *batch.Batch) { b.Files = append(b.Files, "in/c.jsonl") }, "without the file in/c.jsonl"},
		"other params":                  {func(b *batch.Batch) { b.Config.Sampling = config.Sampling{} }, `params {"temperature":0.7} and can't go on with {}`},
		"another model":                 {func(b *batch.Batch) { b.Config.Model.URI = "n" }, "the model m and can't go on with n"},
		"another revision":              {func(b *batch.Batch) { b.Config.Model.Revision = "r" }, "the model m and can't go on with another revision of it"},
		"another one is served":         {func(b *batch.Batch) { b.Local.Deployment.Pools = []config.Pool{{Name: "p", Model: "m", Revision: "r"}} }, "another revision"},
		"a run that nobody began":       {func(b *batch.Batch) { b.Run = "01JD2ZQ4T5W0M1X9YB7R3K8CVF" }, ""},
		"which was named to be resumed": {func(b *batch.Batch) { b.Run, b.MustExist = "01JD2ZQ4T5W0M1X9YB7R3K8CVF", true }, "there is no run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := host.Ports{Docs: memory.NewDocuments(), Clock: clock.System{}, Log: slog.New(slog.DiscardHandler), Source: "test"}
			if _, err := host.Save(t.Context(), p.Docs, record.ManifestKey(begun.Run), begun, ""); err != nil {
				t.Fatal(err)
			}
			same := 0.7
			b := batch.Batch{Local: &local.Local{Ports: p}, Run: begun.Run, Files: []string{"in/a.jsonl", "in/b.jsonl"}}
			b.Config.Model.URI, b.Config.Sampling = "m", config.Sampling{Temperature: &same}
			c.change(&b)
			err := b.CheckResumable(t.Context())
			if c.refused == "" && err != nil || c.refused != "" && (!fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}
