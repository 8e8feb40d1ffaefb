package config

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"rollout/shared/text"
)

// checkRollout reports the settings that a rollout lacks, and those that belong to
// another kind of run.
func (r Run) checkRollout(c *checker, at string) {
	if r.Kind != KindRollout {
		for _, f := range []optionalKey{{"rollout", r.Rollout != nil}, {"mission", r.Missions != nil},
			{"decode", r.Decodes != nil}, {"answer", r.Answer != nil}, {"runner", r.Runner != nil},
			{"selection", r.Selection != nil}, {"reflection", r.Reflection != nil}, {"gate", r.Gate != nil}} {
			if f.set {
				c.add(under(at, f.name), "applies only to a rollout, and this run is a %s: set kind = %q, or remove the table",
					nounOf(r.Kind), KindRollout)
			}
		}
		return
	}
	if at != "" {
		c.add(under(at, "kind"), "%q can't be the default kind of runs: set it in the .toml beside the tickets", KindRollout)
	}
	r.RolloutOf().check(c, under(at, "rollout"))
	checkMissions(c, under(at, "mission"), r.Missions)
	checkDecodes(c, under(at, "decode"), r.Decodes)
	r.AnswerOf().check(c, under(at, "answer"))
	r.checkRunner(c, under(at, "runner"))
	r.SelectionOf().check(c, under(at, "selection"))
	r.checkReflection(c, at)
	for i, g := range r.Grades {
		if g.Kind == GradeJudge {
			c.add(element(under(at, "grade"), i)+".kind",
				"a rollout has no judges in this version: use another kind of grader, such as %q", GradeHTTP)
		}
	}
	for _, f := range []struct {
		optionalKey
		remedy string
	}{
		{optionalKey{"input.dialect", r.Input.Dialect != ""}, "its lines are tickets: remove it"},
		{optionalKey{"dedupe", r.Dedupe != Dedupe{}}, "each answer has a seed of its own: remove the table"},
		{optionalKey{"sampling.n", r.Sampling.N != nil}, "set decode.samples in its place"},
		{optionalKey{"sampling.seed", r.Sampling.Seed != nil}, "set rollout.seed or decode.seed in its place"},
		{optionalKey{"shard.items", r.Shard.Items != DefaultShard().Items}, "set runner.parallelism in its place"},
	} {
		if f.set {
			c.add(under(at, f.name), "does not apply to a rollout: %s", f.remedy)
		}
	}
	if r.Request != nil && !takesChats(r.Request.Endpoint) {
		c.add(under(at, "request.endpoint"),
			"tickets are asked as chats: use \"chat\" or \"responses\", or a path of one of them")
	}
}

func (r Rollout) check(c *checker, at string) {
	if r.Seed < 0 {
		c.add(at+".seed", "must not be negative, is %d", r.Seed)
	}
	for _, m := range []struct{ key, text string }{{"system", r.System}, {"prompt", r.Prompt}} {
		c.longText(at+"."+m.key, m.text, maxPromptText)
		c.places(at+"."+m.key, m.text, TicketPlaces(), nil)
	}
	if strings.TrimSpace(r.Prompt) == "" {
		c.add(at+".prompt", "is empty: write what is asked about a ticket, with {content} where its content belongs")
	} else if !strings.Contains(r.System+r.Prompt, "{"+PlaceContent+"}") {
		c.add(at+".prompt", "does not show the ticket: write {content} where its content belongs")
	}
	if !strings.Contains(r.System+r.Prompt, "{"+PlaceGuidance+"}") {
		c.add(at+".prompt", "does not show the guidance: write {guidance} where it belongs, here or in system")
	}
}

func checkMissions(c *checker, at string, missions []Mission) {
	if len(missions) == 0 {
		c.add(at, "missing: add a table [[mission]] with a name and the entries of its guidance")
		return
	}
	if len(missions) > maxMissions {
		c.add(element(at, maxMissions), "is one of %d missions, at most %d are allowed", len(missions), maxMissions)
		return
	}
	var names []string
	for i, m := range missions {
		field := element(at, i)
		c.label(field+".name", m.Name, maxGraderName, "_")
		if m.Name != "" && slices.Contains(names, m.Name) {
			c.add(field+".name", "%s is the name of an earlier mission: give each its own", quote(m.Name))
		}
		names = append(names, m.Name)
		c.longText(field+".scaffold", m.Scaffold, maxPromptText)
		if len(m.Entries) > maxEntries {
			c.add(field+".entries", "has %d entries, at most %d are allowed", len(m.Entries), maxEntries)
			continue
		}
		for j, e := range m.Entries {
			c.longText(element(field+".entries", j), e, maxText)
			if strings.TrimSpace(e) == "" {
				c.add(element(field+".entries", j), "is empty: remove it")
			}
		}
	}
}

func checkDecodes(c *checker, at string, decodes []Decode) {
	if len(decodes) > maxDecodes {
		c.add(element(at, maxDecodes), "is one of %d, at most %d are allowed", len(decodes), maxDecodes)
		return
	}
	members := 0
	for i, d := range decodes {
		field := element(at, i)
		samples := d.Samples
		c.integer(field+".samples", &samples, 0, MaxMembers, "; 0 is 1")
		members += min(d.Count(), MaxMembers) // more is a problem of its own
		Sampling{Temperature: d.Temperature, TopP: d.TopP, MaxTokens: d.MaxTokens, Stop: d.Stop, Seed: d.Seed}.check(c, field)
	}
	if members > MaxMembers {
		c.add(element(at, 0), "each ticket would get %d answers, at most %d are allowed: lower samples", members, MaxMembers)
	}
}

func (a Answer) check(c *checker, at string) {
	c.expression(at+".pattern", a.Pattern)
	switch {
	case a.Schema != "" && a.Pattern != "":
		c.add(at+".schema", "pattern is set too, and only one of them can count: remove one")
	case a.Schema != "" && a.Member == "":
		c.add(at+".member", "missing: name the member of the JSON answer that has the verdict")
	case a.Schema == "" && a.Member != "":
		c.add(at+".member", "applies only with schema: set it, or remove member")
	}
	c.text(at+".member", a.Member, maxMemberPath)
	if a.Schema != "" {
		c.jsonSchema(at+".schema", a.Schema)
	}
	if len(a.Verdicts) > maxVerdicts {
		c.add(at+".verdicts", "has %d, at most %d are allowed", len(a.Verdicts), maxVerdicts)
		return
	}
	for i, v := range a.Verdicts {
		c.text(element(at+".verdicts", i), v, maxOption)
		if strings.TrimSpace(v) == "" {
			c.add(element(at+".verdicts", i), "is empty: remove it")
		}
		if slices.ContainsFunc(a.Verdicts[:i], func(w string) bool { return a.same(v, w) }) {
			c.add(element(at+".verdicts", i), "%s is in the list before: remove it", quote(v))
		}
	}
}

// same reports whether two verdicts are equal, as answers are compared.
func (a Answer) same(v, w string) bool {
	v, w = strings.TrimSpace(v), strings.TrimSpace(w)
	return v == w || a.IgnoreCase && strings.EqualFold(v, w)
}

func (r Run) checkRunner(c *checker, at string) {
	w := r.RunnerOf()
	members := max(1, r.Members())
	c.integer(at+".rollout_batch_size", &w.RolloutBatchSize, 1, max(1, maxBatchItems/members), "")
	c.integer(at+".max_replacements", &w.MaxReplacements, 0, MaxTickets, "; 0 is off")
	if all := []string{InterruptKeep, InterruptRestart}; w.OnInterrupt != "" && !slices.Contains(all, w.OnInterrupt) {
		c.oneOf(at+".on_interrupt", "way to go on", w.OnInterrupt, all)
	}
	c.integer(at+".parallelism", &w.Parallelism, 0, maxBatchItems, "; 0 cuts shards of about 256 answers")
}

func (s Selection) check(c *checker, at string) {
	if policies := []string{SelectVote, SelectLabel, SelectScore}; !slices.Contains(policies, s.Policy) {
		c.oneOf(at+".policy", "policy of selection", s.Policy, policies)
	}
	c.float(at+".review_below", &s.ReviewBelow, atLeast(0), atMost(1))
}

// longText checks a text of several lines that a model is sent.
func (c *checker) longText(field, s string, limit int) {
	switch {
	case len(s) > limit:
		c.add(field, "has %d bytes, at most %d are allowed", len(s), limit)
	case !utf8.ValidString(s):
		c.add(field, "is not valid UTF-8: write it in UTF-8")
	}
}

// placeholder matches a word in braces.
var placeholder = regexp.MustCompile(`\{[a-z_]+\}`)

// places refuses words in braces that look like one of the placeholders, or like those
// of other tools, whose names others translates.
func (c *checker) places(field, template string, names []string, others map[string]string) {
	for _, found := range placeholder.FindAllString(template, -1) {
		name := strings.Trim(found, "{}")
		if slices.Contains(names, name) {
			continue
		}
		if hint := cmp.Or(others[name], text.Nearest(names, name)); hint != "" {
			c.add(field, "%s is not a placeholder; did you mean {%s}?", found, hint)
		}
	}
}
