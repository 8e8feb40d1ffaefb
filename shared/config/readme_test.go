package config

import (
	"os"
	"strings"
	"testing"
)

// The README's configs are copied before anything else is: they must be right.
func TestTheReadmesConfigsAreValid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range strings.Split(string(text), "```toml\n")[1:] {
		src, _, _ := strings.Cut(block, "```")
		name, _, _ := strings.Cut(strings.TrimPrefix(src, "# "), "\n")
		switch name {
		case "prompts/x.toml":
			_, err = ParseRun(name, []byte(src))
		case "D/rollout.toml", "rollout.toml":
			_, err = ParseDeployment(name, []byte(src))
		default:
			t.Errorf("a block begins with %q, which names no config file", name)
			continue
		}
		if err != nil {
			t.Error(err)
		}
		found++
	}
	if found != 3 {
		t.Errorf("%d configs found, want a run's, a laptop's and a cloud's", found)
	}
}
