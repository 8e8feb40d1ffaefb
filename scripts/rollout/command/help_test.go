package command

import (
	"bytes"
	"strings"
	"testing"

	"rollout/shared/clock"
)

func TestReflowBreaksParagraphsAtTheWidth(t *testing.T) {
	t.Parallel()
	const text = "Shows all runs, newest\nfirst.\n\n  an example  stays\n  as it is\n\nThe end."
	const want = "Shows all runs,\nnewest first.\n\n  an example  stays\n  as it is\n\nThe end."
	if got := reflow(text, 16); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := reflow(text, 40); !strings.HasPrefix(got, "Shows all runs, newest first.\n\n") {
		t.Errorf("it does not use the width: %q", got)
	}
}

func TestHelpNamesEveryCommandInItsGroup(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	env := Env{Out: &out, Err: &out, Clock: clock.System{}, Getenv: func(string) string { return "" }}
	if code := Main(t.Context(), []string{"--help"}, env); code != 0 {
		t.Fatal(code, out.String())
	}
	_, help, _ := strings.Cut(out.String(), "Examples:")
	group := ""
	groups := map[string]string{}
	for line := range strings.Lines(help) {
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case strings.HasSuffix(line, ":\n"):
			group = strings.TrimSpace(line)
		case word != "":
			groups[word] = group
		}
	}
	for command, want := range map[string]string{"submit": "Answer prompts:", "stop": "Steer runs:",
		"clean": "Keep an installation:", "version": "Additional Commands:"} {
		if groups[command] != want {
			t.Errorf("%s is in the group %q, want %q\n%s", command, groups[command], want, help)
		}
	}
	for _, g := range commands(&env) {
		for _, c := range g.commands {
			if _, named := groups[c.Name()]; named == c.Hidden {
				t.Errorf("%s is named: %v, hidden: %v", c.Name(), named, c.Hidden)
			}
		}
	}
}
