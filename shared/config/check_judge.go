package config

import (
	"slices"
	"strings"
)

const maxJudgeText = 16 << 10 // bytes of each message of a judge and of its rubric; they are in every manifest

// otherNames are the names that other tools have for placeholders.
var otherNames = map[string]string{
	"question": PlacePrompt, "input": PlacePrompt, "query": PlacePrompt, "instruction": PlacePrompt,
	"completion": PlaceAnswer, "output": PlaceAnswer, "response": PlaceAnswer, "prediction": PlaceAnswer,
	"target": PlaceExpected, "reference": PlaceExpected, "ground_truth": PlaceExpected, "ideal": PlaceExpected,
	"criterion": PlaceRubric, "criteria": PlaceRubric, "instructions": PlaceRubric,
}

// checkJudge checks the keys of a grader of GradeJudge.
func (g Grade) checkJudge(c *checker, at string) {
	c.text(at+".model", g.Model, maxText)
	if g.Prompt == "" {
		c.add(at+".prompt", "missing: write what the judge is asked, with {answer} where the answer belongs")
	}
	both := g.System + g.Prompt
	if g.Prompt != "" && !strings.Contains(both, "{"+PlaceAnswer+"}") {
		c.add(at+".prompt", "does not show the answer to the judge: write {answer} where it belongs")
	}
	for _, m := range []struct{ key, text string }{{"system", g.System}, {"prompt", g.Prompt}, {"rubric", g.Rubric}} {
		c.longText(at+"."+m.key, m.text, maxJudgeText)
		if m.key != "rubric" {
			c.places(at+"."+m.key, m.text, Placeholders(), otherNames)
		}
	}
	for _, m := range []struct {
		name string
		set  bool
	}{{PlaceExpected, g.Expected != ""}, {PlaceRubric, g.Rubric != ""}} {
		switch used := strings.Contains(both, "{"+m.name+"}"); {
		case used && !m.set:
			c.add(at+"."+m.name, "missing: the prompt has {%s}; set it, or remove {%s} from the prompt", m.name, m.name)
		case m.set && !used:
			c.add(at+"."+m.name, "has no effect: write {%s} into the prompt, or remove it", m.name)
		}
	}
	g.checkVerdict(c, at)
	if g.Sampling != nil {
		g.Sampling.check(c, at+".sampling")
	}
	g.Request.check(c, at+".request", false)
	if g.Request == nil {
		return
	}
	if !takesChats(g.Request.Endpoint) {
		c.add(at+".request.endpoint", "a judge answers a chat: use \"chat\" or \"responses\", or a path of one of them")
	}
	if g.Request.System != "" {
		c.add(at+".request.system", "set %s.system in place of it", at)
	}
	if len(g.Request.BodyModel) > 0 {
		c.add(at+".request.body_model", "has no effect, because a judge is asked by no line of yours: remove it")
	}
}

// checkVerdict checks how the score is read from what the judge says.
func (g Grade) checkVerdict(c *checker, at string) {
	switch {
	case g.Range == nil && g.Labels == nil:
		c.add(at+".range", "missing: set range = [0, 10] for a judge that answers a number, or labels for one that "+
			"answers a label")
	case g.Range != nil && g.Labels != nil:
		c.add(at+".range", "labels is set too, and only one of them can count: remove one")
	case g.Range != nil:
		if len(g.Range) != 2 || !(g.Range[0] < g.Range[1]) || !finite(g.Range) {
			c.add(at+".range", "must be the lowest and the highest number that the judge may give, such as [0, 10]")
		}
		for key, set := range map[string]bool{"passing": g.Passing != nil, "label_scores": g.LabelScores != nil} {
			if set {
				c.add(at+"."+key, "applies only to labels, and this judge has a range: remove it")
			}
		}
	default:
		g.checkLabels(c, at)
	}
}

func (g Grade) checkLabels(c *checker, at string) {
	c.options(at+".labels", g.Labels)
	switch {
	case g.Passing == nil && g.LabelScores == nil:
		c.add(at+".passing", "missing: name the labels that score 1, or set label_scores with a score for each label")
	case g.Passing != nil && g.LabelScores != nil:
		c.add(at+".passing", "label_scores is set too, and only one of them can count: remove one")
	case g.LabelScores != nil && len(g.LabelScores) != len(g.Labels):
		c.add(at+".label_scores", "has %d scores for %d labels: write one for each label", len(g.LabelScores), len(g.Labels))
	}
	for i, x := range g.LabelScores {
		c.float(element(at+".label_scores", i), &x, atLeast(0), atMost(1))
	}
	g.checkPassing(c, at)
}

// finite reports whether all numbers have a finite size, as differences too.
func finite(xs []float64) bool {
	return !slices.ContainsFunc(xs, func(x float64) bool { return !(x >= -1e15 && x <= 1e15) })
}
