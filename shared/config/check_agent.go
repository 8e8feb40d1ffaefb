package config

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// checkAgent checks the settings of a variant with a command.
func (v Variant) checkAgent(c *checker, at string) {
	for _, f := range []optionalKey{{"system", v.System != ""}, {"prompt", v.Prompt != ""},
		{"sampling", v.Sampling != nil}} {
		if f.set {
			c.add(under(at, f.name), "does not apply to a variant with a command: the agent asks the model itself")
		}
	}
	if len(v.Command) > maxCommand {
		c.add(at+".command", "has %d parts, at most %d are allowed", len(v.Command), maxCommand)
	}
	for i, arg := range v.Command {
		c.longText(element(at+".command", i), arg, maxText)
		if strings.Contains(arg, "\x00") {
			c.add(element(at+".command", i), "has a zero byte: remove it")
		}
	}
	if v.Command[0] == "" {
		c.add(element(at+".command", 0), "is empty: name a program, such as \"python3\"")
	}
	v.checkArtifact(c, at+".artifact")
	if len(v.Env) > maxEnv {
		c.add(at+".env", "has %d variables, at most %d are allowed", len(v.Env), maxEnv)
	}
	for _, name := range slices.Sorted(maps.Keys(v.Env)) {
		field := join(at+".env", name)
		if !variableName.MatchString(name) {
			c.add(field, "%s is not the name of a variable: use A-Z, a-z, 0-9 and _", quote(name))
		}
		c.longText(field, v.Env[name], maxText)
		if strings.Contains(v.Env[name], "\x00") {
			c.add(field, "has a zero byte: remove it")
		}
	}
	v.LimitsOf().check(c, at+".limits")
}

func (v Variant) checkArtifact(c *checker, field string) {
	if v.Artifact == "" {
		return
	}
	c.text(field, v.Artifact, maxText)
	name := strings.TrimSuffix(v.Artifact, "/")
	switch {
	case name == "" || path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
		c.add(field, "%s is not a key of the bucket: write one such as \"agents/mine/\"", quote(v.Artifact))
	case name == v.Artifact && !strings.HasSuffix(name, ".tar"):
		c.add(field, "%s is neither a folder nor a .tar: end a folder with \"/\"", quote(v.Artifact))
	}
}

func (l AgentLimits) check(c *checker, at string) {
	for _, f := range []struct {
		name      string
		n         int
		low, high int
		hint      string
	}{
		{"seconds", l.Seconds, 1, maxAgentSeconds, ""}, {"memory_mb", l.MemoryMB, minAgentMemory, maxAgentMB, ""},
		{"disk_mb", l.DiskMB, 1, maxAgentMB, ""}, {"output_mb", l.OutputMB, 1, maxAgentMB, ""},
		{"files", l.Files, 1, maxAgentFiles, ""}, {"processes", l.Processes, 1, maxAgentCount, ""},
		{"requests", l.Requests, 0, maxTokens, "; 0 sets no limit"},
		{"concurrent_requests", l.Concurrent, 1, maxAgentCount, ""},
		{"tokens", l.Tokens, 0, maxTokens, "; 0 sets no limit"},
	} {
		c.integer(under(at, f.name), &f.n, f.low, f.high, f.hint)
	}
	c.float(at+".dollars", &l.Dollars, atLeast(0), atMost(maxDollars))
}

// checkShows refuses members of a task that an agent must not see.
func (r Run) checkShows(c *checker, at string, v Variant) {
	if len(v.Shows) > maxShows {
		c.add(at+".shows", "has %d members, at most %d are allowed", len(v.Shows), maxShows)
	}
	for i, name := range v.Shows {
		field := element(at+".shows", i)
		switch {
		case name == "":
			c.add(field, "is empty: name a member of the tasks")
		case name == "id" || slices.Contains(askedMembers, name):
			c.add(field, "%s is shown anyway: remove it", quote(name))
		}
		c.text(field, name, maxMemberPath)
		for _, g := range r.Grades {
			if first, _, _ := strings.Cut(g.Expected, "."); g.Expected != "" && first == name {
				c.add(field, "%s would show the agent what the grader %s expects: remove it", quote(name), g.Name)
			}
		}
	}
}

// checkNoAgent refuses the settings of an agent in a variant without a command.
func (v Variant) checkNoAgent(c *checker, at string) {
	for _, f := range []optionalKey{{"artifact", v.Artifact != ""}, {"env", v.Env != nil}, {"shows", v.Shows != nil},
		{"trusted", v.Trusted}, {"limits", v.Limits != nil}} {
		if f.set {
			c.add(under(at, f.name), "applies only to a variant with a command: add command, or remove it")
		}
	}
	v.LimitsOf().check(c, at+".limits")
}

func (t Trials) check(c *checker, at string) {
	c.integer(at+".at_once", &t.AtOnce, 0, maxAtOnce, "; 0 is what the machine has room for")
}
