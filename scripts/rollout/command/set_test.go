package command_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"rollout/shared/config"
)

// TestSubmitWritesSettingsOverTheConfigThatCounts holds that --set changes the config that
// the run would have without it, and leaves the user's file as it is.
func TestSubmitWritesSettingsOverTheConfigThatCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		adjacent, inBucket, deployment string
		temperature                    float64
	}{
		"the file beside the prompts": {adjacent: goodConfig, temperature: 0.5},
		"the bucket's":                {inBucket: "schema_version = 1\n[sampling]\ntemperature = 0.25\n", temperature: 0.25},
		"the deployment's": {
			deployment: "schema_version = 1\n[defaults.sampling]\ntemperature = 0.75\n", temperature: 0.75},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
			for path, text := range map[string]string{
				filepath.Join(filepath.Dir(file), "x.toml"):               c.adjacent,
				filepath.Join(f.dir, "bucket", "prompts", "rollout.toml"): c.inBucket,
				filepath.Join(f.dir, "rollout.toml"):                      c.deployment,
			} {
				if text != "" {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					write(t, path, text)
				}
			}
			r := f.rollout("submit", file, "--set", "sampling.max_tokens=7", "--set", "shard.items=3")
			if r.code != 0 {
				t.Fatalf("%+v", r)
			}
			src, err := os.ReadFile(filepath.Join(f.dir, "bucket", "prompts", "x.toml"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := config.ParseRun("x.toml", src)
			if err != nil || *got.Sampling.MaxTokens != 7 || got.Shard.Items != 3 || *got.Sampling.Temperature != c.temperature {
				t.Errorf("%v: %s", err, src)
			}
		})
	}
}

// TestSettingsHoldForOneRun holds that a later submission of the file starts from the config
// that it would have had without the earlier one's --set.
func TestSettingsHoldForOneRun(t *testing.T) {
	t.Parallel()
	const own = "# mine\nschema_version = 1\n[sampling]\ntemperature = 0.25\n"
	for name, c := range map[string]struct {
		inBucket, deployment string
		temperature          float64
		config               string // what the plain submission leaves in the bucket; "" for no config
		says                 string
	}{
		"over the bucket's own": {inBucket: own, temperature: 0.25, config: own, says: "prompts/x.toml (in the bucket"},
		"over the deployment's": {
			deployment: "schema_version = 1\n[defaults.sampling]\ntemperature = 0.75\n", temperature: 0.75},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
			at := filepath.Join(f.dir, "bucket", "prompts", "x.toml")
			for path, text := range map[string]string{at: c.inBucket, filepath.Join(f.dir, "rollout.toml"): c.deployment} {
				if text != "" {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					write(t, path, text)
				}
			}
			submit := func(args ...string) (config.Run, string, string) {
				t.Helper()
				r := f.rollout(append([]string{"submit", file}, args...)...)
				if r.code != 0 {
					t.Fatalf("%+v", r)
				}
				src, err := os.ReadFile(at)
				if err != nil && !(os.IsNotExist(err) && c.config == "") {
					t.Fatal(err)
				}
				got, err := config.ParseRun("x.toml", src)
				if err != nil && len(src) > 0 {
					t.Fatal(err)
				}
				if err := os.Remove(strings.TrimSuffix(at, ".toml") + ".jsonl"); err != nil { // else the next is x-2.jsonl
					t.Fatal(err)
				}
				return got, string(src), r.err
			}
			for _, n := range []int{7, 8} { // again over the same config
				got, _, _ := submit("--set", "sampling.max_tokens="+strconv.Itoa(n), "--set", "limits.deadline=6s")
				if *got.Sampling.MaxTokens != n || *got.Sampling.Temperature != c.temperature || got.Limits.Deadline == 0 {
					t.Errorf("with --set: %+v", got)
				}
			}
			got, _, _ := submit("--set", "sampling.top_p=0.5")
			if got.Limits.Deadline != 0 || *got.Sampling.TopP != 0.5 || *got.Sampling.Temperature != c.temperature {
				t.Errorf("with another --set: %+v", got)
			}
			if _, src, said := submit(); src != c.config || !strings.Contains(said, c.says) {
				t.Errorf("without --set: said %q, and the bucket has\n%s", said, src)
			}
		})
	}
}

func TestUpTakesSettings(t *testing.T) {
	t.Parallel()
	dir := newUploads(t, prompt)
	up := []string{"up", "--dir", dir, "--once", "--listen", "off"}
	for setting, want := range map[string]string{
		"worker.in_flihgt=3": "did you mean in_flight?", "bucket=b": "says which installation it is",
		"worker.in_flight=-1": "worker.in_flight: must be between",
	} {
		if r := rolloutNow(t.Context(), append(up, "--set", setting)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", setting, r, want)
		}
	}
	// Without the setting, the engine would be the built-in model.
	check(t, rolloutNow(t.Context(), append(up, "--set", "engine.url=mock")...), 0, "", "MOCK:Hello")
}

func TestWrongSettingsAreRefusedBeforeAnythingIsCopied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\"}\n")
	for setting, want := range map[string]string{
		"sampling.max_tokens=0":  "sampling.max_tokens: must be between 1 and",
		"sampling.max_token=800": "did you mean max_tokens?",
		"sampling.max_tokens":    "write KEY=VALUE",
	} {
		if r := f.rollout("submit", file, "--set", setting); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v, want %q", setting, r, want)
		}
	}
	if _, err := os.Stat(filepath.Join(f.dir, "bucket", "prompts", "x.jsonl")); err == nil {
		t.Error("the prompts were copied")
	}
	r := f.rollout("submit", f.file("rollout.jsonl", "{\"prompt\":\"hi\"}\n"), "--set", "shard.items=3")
	if r.code != 2 || !strings.Contains(r.err, "rename the prompts file") {
		t.Errorf("settings of rollout.jsonl: %+v", r)
	}
}
