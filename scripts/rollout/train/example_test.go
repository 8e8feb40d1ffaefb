package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/config"
)

// The examples name their rows as seen from the repository's folder.
func TestTheExamplesCanBeTrained(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{config.AlgorithmSFT, config.AlgorithmRM} {
		file := filepath.Join("..", "..", "..", "examples", kind+"-tiny.toml")
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.ParseTrain(file, []byte(strings.ReplaceAll(string(src), `path = "examples/`, `path = "../../../examples/`)))
		if err != nil {
			t.Fatal(err)
		}
		line, err := Options{File: file, Config: c}.DryRun(t.Context())
		if want := "dry-run OK: algorithm=" + kind + " model=rollout/tiny minibatch=4 dataset=../../../examples/" + kind + "-tiny.jsonl"; err != nil || line != want {
			t.Errorf("got %s, %v\nwant %s", line, err, want)
		}
	}
}
