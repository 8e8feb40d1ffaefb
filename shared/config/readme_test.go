package config

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reference is the document that lists every config key.
const reference = "../../examples/README.md"

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Users copy the documents' configs: they must be valid.
func TestConfigsInReadmesAreValid(t *testing.T) {
	t.Parallel()
	found := map[string]int{}
	for _, path := range []string{reference, "../../infra/aws/README.md", "../../gpuworker/README.md"} {
		for _, block := range strings.Split(readDocument(t, path), "```toml\n")[1:] {
			src, _, _ := strings.Cut(block, "```")
			name, _, _ := strings.Cut(strings.TrimPrefix(src, "# "), "\n")
			var err error
			switch name {
			case "prompts/x.toml":
				_, err = ParseRun(name, []byte(src))
			case "D/rollout.toml", "rollout.toml":
				_, err = ParseDeployment(name, []byte(src))
			case "batch.toml":
				_, err = ParseInfer(name, []byte(src))
			case "sft.toml":
				_, err = ParseTrain(name, []byte(src))
			default:
				t.Errorf("%s: a block begins with %q, which names no config file", path, name)
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			found[name]++
		}
	}
	for _, name := range []string{"prompts/x.toml", "D/rollout.toml", "rollout.toml", "batch.toml", "sft.toml"} {
		if found[name] == 0 {
			t.Errorf("no document has an example of %s", name)
		}
	}
}

// keyRow is a row of the reference's tables: a key, its type, its default.
var keyRow = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.]+)` \\| ([a-z ]+) \\| ")

// referenceKey returns a key as the reference writes it: the settings of both
// kinds of training are listed once.
func referenceKey(key string) string {
	for _, kind := range []string{AlgorithmSFT, AlgorithmRM} {
		if rest, ok := strings.CutPrefix(key, "algorithm."+kind+"."); ok {
			return "algorithm.KIND." + rest
		}
	}
	return key
}

func TestReferenceListsEveryConfigKey(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, m := range keyRow.FindAllStringSubmatch(readDocument(t, reference), -1) {
		listed[m[1]] = true
	}
	known := map[string]bool{}
	for _, file := range []any{Run{}, Deployment{}, Infer{}, Train{}} {
		all := pathsOf(reflect.TypeOf(file), "")
		for _, key := range all {
			known[key], known[referenceKey(key)] = true, true
			isTable := slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, key+".") })
			if isTable || strings.HasPrefix(key, "defaults.") {
				continue // its keys are listed; defaults has those of a run
			}
			if !listed[key] && !listed[referenceKey(key)] {
				t.Errorf("%s does not list %s", reference, key)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if !known[key] {
			t.Errorf("%s lists %s, which no config has", reference, key)
		}
	}
}
