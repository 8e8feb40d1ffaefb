package config

import (
	"slices"
	"strings"
)

// checkTrials reports the settings that a run of trials lacks, and those that belong to
// another kind of run.
func (r Run) checkTrials(c *checker, at string) {
	if r.Kind != KindTrials {
		for _, f := range []optionalKey{{"design", r.Design != nil}, {"variant", r.Variants != nil},
			{"pruning", r.Pruning != nil}} {
			if f.set {
				c.add(under(at, f.name), "applies only to trials, and this run is a %s: set kind = %q, or remove the table",
					nounOf(r.Kind), KindTrials)
			}
		}
		return
	}
	if at != "" {
		c.add(under(at, "kind"), "%q can't be the default kind of runs: set it in the .toml beside the tasks", KindTrials)
	}
	r.DesignOf().check(c, under(at, "design"))
	r.checkVariants(c, under(at, "variant"))
	r.checkPruning(c, under(at, "pruning"))
	for i, g := range r.Grades {
		field := element(under(at, "grade"), i)
		if g.Kind == GradeJudge && r.Prunes() {
			c.add(field+".kind", "a judge reads the answers when all trials are over, and variants are left out before: "+
				"use another kind of grader, or remove [pruning]")
		}
		if first, _, _ := strings.Cut(g.Expected, "."); slices.Contains(askedMembers, first) {
			c.add(field+".expected", "%s is what the model is asked: name the member of the tasks with the expected value",
				quote(first))
		}
	}
	for _, f := range []struct {
		optionalKey
		remedy string
	}{
		// Manifests of trials say plain.
		{optionalKey{"input.dialect", r.Input.Dialect != "" && r.Input.Dialect != "plain"}, "its lines are tasks: remove it"},
		{optionalKey{"dedupe", r.Dedupe != Dedupe{}}, "each answer has a seed of its own: remove the table"},
		{optionalKey{"sampling.n", r.Sampling.N != nil}, "set design.replications in its place"},
		{optionalKey{"sampling.seed", r.Sampling.Seed != nil}, "set design.seed in its place"},
		{optionalKey{"shard.items", r.Shard.Items != DefaultShard().Items}, "each trial is sent by itself: remove it"},
	} {
		if f.set {
			c.add(under(at, f.name), "does not apply to trials: %s", f.remedy)
		}
	}
	if r.Request != nil && !takesChats(r.Request.Endpoint) {
		c.add(under(at, "request.endpoint"),
			"tasks are asked as chats: use \"chat\" or \"responses\", or a path of one of them")
	}
}

// askedMembers are the members of a task that the model is asked.
var askedMembers = []string{"prompt", "messages"}

func (d Design) check(c *checker, at string) {
	c.integer(at+".replications", &d.Replications, 1, maxReplications, "")
	orders := []string{TrialsByTask, TrialsByVariant, TrialsInterleaved, TrialsRandom}
	if !slices.Contains(orders, d.Order) {
		c.oneOf(at+".order", "order", d.Order, orders)
	}
	if d.Seed < 0 {
		c.add(at+".seed", "must not be negative, is %d", d.Seed)
	}
	c.integer(at+".max_concurrency", &d.MaxConcurrency, 0, MaxTrials, "; 0 sets no limit")
	c.text(at+".chain", d.Chain, maxMemberPath)
	if d.Chain != "" && slices.Contains(strings.Split(d.Chain, "."), "") {
		c.add(at+".chain", "%s is not a path: write names with a dot between them, such as \"session\"", quote(d.Chain))
	}
	if d.Chain != "" && d.Order == TrialsRandom {
		c.add(at+".order", "a chain keeps the order of its tasks: use another order than %q, or remove chain", TrialsRandom)
	}
}

func (r Run) checkVariants(c *checker, at string) {
	if len(r.Variants) == 0 {
		c.add(at, "missing: add a table [[variant]] with a name for each way of answering the tasks")
		return
	}
	if len(r.Variants) > maxVariants {
		c.add(element(at, maxVariants), "is one of %d variants, at most %d are allowed", len(r.Variants), maxVariants)
		return
	}
	var names []string
	for i, v := range r.Variants {
		field := element(at, i)
		c.label(field+".name", v.Name, maxGraderName, "_")
		if v.Name != "" && slices.Contains(names, v.Name) {
			c.add(field+".name", "%s is the name of an earlier variant: give each its own", quote(v.Name))
		}
		names = append(names, v.Name)
		v.check(c, field)
		r.checkHidden(c, field, v)
		if v.IsAgent() {
			v.checkAgent(c, field)
			r.checkShows(c, field, v)
		} else {
			v.checkNoAgent(c, field)
		}
	}
}

func (v Variant) check(c *checker, at string) {
	c.longText(at+".system", v.System, maxPromptText)
	c.longText(at+".prompt", v.Prompt, maxPromptText)
	if v.Prompt != "" && strings.TrimSpace(v.Prompt) == "" {
		c.add(at+".prompt", "is empty: write what is asked about a task, such as %s, or remove it", quote(DefaultPrompt))
	}
	if v.Prompt != "" && len(Members(v.System+v.Prompt)) == 0 {
		c.add(at+".prompt", "does not show the task: write a member of it in braces, such as {prompt}")
	}
	c.text(at+".model", v.Model, maxText)
	c.integer(at+".max_parallel_trials", &v.MaxParallelTrials, 0, MaxTrials, "; 0 sets no limit")
	if v.Sampling == nil {
		return
	}
	v.Sampling.check(c, at+".sampling")
	for _, f := range []struct {
		optionalKey
		remedy string
	}{
		{optionalKey{"n", v.Sampling.N != nil}, "set design.replications in its place"},
		{optionalKey{"seed", v.Sampling.Seed != nil}, "set design.seed in its place"},
		{optionalKey{"logprobs", v.Sampling.Logprobs != nil}, "set it in [sampling], for all variants"},
	} {
		if f.set {
			c.add(at+".sampling."+f.name, "does not apply to a variant: %s", f.remedy)
		}
	}
}

// checkHidden refuses messages that would show the model what its answer is compared with.
func (r Run) checkHidden(c *checker, at string, v Variant) {
	for _, m := range []struct{ key, text string }{{"system", v.System}, {"prompt", v.Prompt}} {
		for _, name := range Members(m.text) {
			field := at + "." + m.key
			if name == "messages" {
				c.add(field, "{messages} is not a text: messages of a task stand in the place of the prompt")
			}
			for _, g := range r.Grades {
				if first, _, _ := strings.Cut(g.Expected, "."); g.Expected != "" && first == name {
					c.add(field, "{%s} would show the model what the grader %s expects: remove it", name, g.Name)
				}
			}
		}
	}
}
