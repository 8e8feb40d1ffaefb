package command

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestReadmeListsEveryCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if sub.Hidden {
				continue
			}
			commands++
			row := "\n| `" + sub.CommandPath()
			if !strings.Contains(string(text), row+"`") && !strings.Contains(string(text), row+" ") {
				t.Errorf("scripts/README.md has no row of `%s`", sub.CommandPath())
			}
			visit(sub)
		}
	}
	visit(rootCommand(&Env{}))
	if commands < 25 {
		t.Errorf("only %d commands were found", commands)
	}
}
