package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSettingsAreWrittenIntoAFile holds that the file with the settings is read as the
// config that Set returns, also for configs with every kind of table.
func TestSettingsAreWrittenIntoAFile(t *testing.T) {
	t.Parallel()
	settings := []string{"name=changed", "limits.grace=7s"}
	for _, path := range []string{"prompts.toml", "refunds.toml", "tickets.toml"} {
		src := []byte(readDocument(t, "../../examples/"+path))
		before, err := ParseRun(path, src)
		if err != nil {
			t.Fatal(err)
		}
		want, err := before.Set(settings)
		if err != nil {
			t.Fatal(err)
		}
		out, err := SetRun(path, src, Run{}, settings)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseRun(path, out)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, %s\n%s", path, err, diff, out)
		}
	}
	base := DefaultRun()
	base.Sampling.Seed = new(int64)
	out, err := SetRun("x.toml", nil, base, []string{"shard.items=9", `request.extra={reasoning_effort="low"}`})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseRun("x.toml", out)
	if err != nil || got.Shard.Items != 9 || got.Sampling.Seed == nil || got.Request.Extra["reasoning_effort"] != "low" {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := SetRun("x.toml", nil, base, []string{"sampling.top_p=3"}); err == nil ||
		!strings.Contains(err.Error(), "sampling.top_p: must be above 0") {
		t.Errorf("the error of a wrong setting is %v", err)
	}
}

func TestSettingsOfADeploymentAreCheckedAsOneFile(t *testing.T) {
	t.Parallel()
	d, err := ParseDeployment("d.toml",
		[]byte("schema_version = 1\nsecrets = [\"key\"]\n[engines.a]\nurl = \"http://a/v1\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := d.Set([]string{"engines.a.secret=key", "engine.prompt_price=0.5", "worker.in_flight=7"})
	if err != nil || changed.Engines["a"].Secret != "key" || changed.Engines["a"].URL != "http://a/v1" ||
		changed.Engine.PromptPrice != 0.5 || changed.Worker.InFlight != 7 {
		t.Errorf("%+v, %v", changed, err)
	}
	if d.Engines["a"].Secret != "" || d.Worker.InFlight == 7 {
		t.Error("the deployment was changed")
	}
	for setting, want := range map[string]string{
		"engines.a.secret=other": "is not in the allowlist", "bucket=x": "says which installation it is",
		"cloud.region=x": "says which installation it is", "engine.prompt_price=-1": "between 0 and 1000000 dollars",
	} {
		if _, err := d.Set([]string{setting}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", setting, err, want)
		}
	}
}

func TestSettingsOfBatchesAndTrainingsAreChecked(t *testing.T) {
	t.Parallel()
	f, err := ParseInfer("b.toml", []byte(readDocument(t, "../../examples/batch.toml")))
	if err != nil {
		t.Fatal(err)
	}
	changed, err := f.Set([]string{"sampling.temperature=0.25", "worker.in_flight=7"})
	if err != nil || *changed.Sampling.Temperature != 0.25 || changed.Worker.InFlight != 7 || f.Worker.InFlight == 7 {
		t.Errorf("%+v, %v", changed, err)
	}
	if _, err := f.Set([]string{"worker.in_flihgt=7"}); err == nil || !strings.Contains(err.Error(), "in_flight") {
		t.Errorf("the error of a misspelt key is %v", err)
	}
	tr, err := ParseTrain("t.toml", []byte(readDocument(t, "../../examples/sft-tiny.toml")))
	if err != nil {
		t.Fatal(err)
	}
	short, err := tr.Set([]string{"algorithm.sft.budget.max_steps=30"})
	if err != nil || short.Algorithm.SFT.Budget.MaxSteps != 30 || tr.Algorithm.SFT.Budget.MaxSteps == 30 {
		t.Errorf("%+v, %v", short, err)
	}
	if _, err := tr.Set([]string{"algorithm.sft.optimizer.lr=0"}); err == nil {
		t.Error("a learning rate of 0 is accepted")
	}
}
