package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/config"
)

func TestExamplesPassTheDryRun(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{config.AlgorithmSFT, config.AlgorithmRM} {
		file := filepath.Join("..", "..", "..", "examples", kind+"-tiny.toml")
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The paths in the examples are relative to the repository's root.
		text := strings.ReplaceAll(string(src), `path = "examples/`, `path = "../../../examples/`)
		c, err := config.ParseTrain(file, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		line, err := Options{File: file, Config: c}.DryRun(t.Context())
		want := "dry-run OK: algorithm=" + kind + " model=rollout/tiny minibatch=4 dataset=../../../examples/" +
			kind + "-tiny.jsonl"
		if err != nil || line != want {
			t.Errorf("got %s, %v\nwant %s", line, err, want)
		}
	}
}
