package submit_test

import (
	"strings"
	"testing"

	"rollout/functions/submit"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// The bucket also announces the objects that functions and workers write. None of
// them becomes a run, even if it is named like prompts.
func TestObjectsOfRunsDoNotBecomeRuns(t *testing.T) {
	t.Parallel()
	const id = inputtest.RunID
	d := newFixture(t)
	keys := []string{
		record.JobKey(id), record.UnpackedKey(id, 0), record.UnpackedKey(id, 0) + ".jsonl",
		record.ShardObjectKey(id, 0, 1, "x.jsonl"), record.OutputSegmentRowsKey(id, 0, "x", record.CompletionsFile),
		record.OutputSegmentKey(id, 0), record.ShardTableKey(id, 0), record.PendingPrefix + "x.jsonl",
		"cas/ab/cd/x.jsonl", "prompts.jsonl", "Prompts/x.jsonl", "xprompts/x.jsonl",
	}
	for _, name := range []string{record.CompletionsFile, record.ErrorsFile, record.SummaryFile} {
		keys = append(keys, record.OutputKey(id, name))
	}
	for _, key := range keys {
		if m := d.upload(key, prompt); m.Run != "" {
			t.Errorf("%s is the run %s", key, m.Run)
		}
	}
	if n := d.planned(); n != 0 {
		t.Errorf("%d plans were asked for", n)
	}
}

func TestOutputAsInputIsRefused(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	key := record.OutputKey(inputtest.RunID, record.CompletionsFile)
	e := d.put(key, prompt)
	m := record.Manifest{Run: identity.UploadRun("local", key, e.Version),
		Inputs: []record.Input{{Key: key, Version: e.Version, Size: e.Size}}}
	sub := submit.New(d.Ports, submit.Options{Deployment: d.deploy})
	if err := sub.Create(t.Context(), m, config.DefaultRun()); err != nil {
		t.Fatal(err)
	}
	got := d.manifest(e).Refused
	if !strings.Contains(got, "is the output of a run") || !strings.Contains(got, record.PromptsPrefix) ||
		d.planned() != 0 {
		t.Errorf("refused: %q", got)
	}
}

// A config cannot move the outputs of a run, for example among the prompts.
func TestConfigThatMovesOutputsAmongPromptsIsRefused(t *testing.T) {
	t.Parallel()
	for _, table := range []string{
		"[output]\ndir = \"prompts/\"\n", "[output]\nprefix = \"prompts/\"\n", "output = \"prompts/x.jsonl\"\n",
	} {
		d := newFixture(t)
		hosttest.Put(t, d.Ports, "prompts/x.toml", "schema_version = 1\n"+table)
		if m := d.upload("prompts/x.jsonl", prompt); !strings.Contains(m.Refused, "output") || d.planned() != 0 {
			t.Errorf("%s: refused: %q", table, m.Refused)
		}
	}
}
