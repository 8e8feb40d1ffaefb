package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"rollout/scripts/rollout/terminal"
)

// firstSession is the example of the program's help.
const firstSession = `  export ROLLOUT_DIR=D                                  # instead of --dir D for each command
  rollout up --engine http://127.0.0.1:8000/v1          # in one terminal, for as long as there is work
  rollout submit nightly.jsonl                          # in another one
  rollout status --watch
  rollout results nightly -o answers.jsonl`

// fitHelp makes the help of a command and of all below it fit the terminal: texts and flags are wrapped at words.
// Elsewhere a flag is one line, however long.
func (e *Env) fitHelp(root *cobra.Command) {
	columns := terminal.Columns(e.Out)
	if columns == 0 {
		return
	}
	template := root.UsageTemplate()
	for _, flags := range []string{".LocalFlags.FlagUsages", ".InheritedFlags.FlagUsages"} {
		template = strings.ReplaceAll(template, flags, fmt.Sprintf("%sWrapped %d", flags, columns))
	}
	root.SetUsageTemplate(template)
	help := root.HelpFunc()
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		c.Long = reflow(c.Long, columns)
		help(c, args)
	})
}

// reflow breaks the paragraphs of a text at other places, so that they fit that many columns. Paragraphs with a line
// that begins with a space stay as they are.
func reflow(text string, columns int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		if !strings.HasPrefix(p, " ") && !strings.Contains(p, "\n ") {
			paragraphs[i] = strings.Join(terminal.Wrap(strings.ReplaceAll(p, "\n", " "), columns), "\n")
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
