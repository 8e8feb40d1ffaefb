package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/jsonschema"
)

// Bounds of a run's graders.
const (
	maxGraders    = 8
	maxGraderName = 32
	maxWeight     = 1e6
	maxMemberPath = 256      // bytes of Grade.Expected
	maxPattern    = 2048     // bytes of a regular expression
	maxSchema     = 16 << 10 // bytes of a JSON schema
	maxOptions    = 256      // choices or labels
	maxOption     = 128      // bytes of a choice or label

	maxServices          = 32
	maxGraderBatch       = 1024
	maxGraderConcurrency = 256
	maxGraderRetries     = 100
)

// gradeKeys lists the keys that only some kinds of grader have, with the kinds.
func (g Grade) gradeKeys() []gradeKey {
	extracting := []string{GradeExact, GradeNumeric, GradeChoice, GradeLabel, GradeSchema, GradeJudge}
	judge := []string{GradeJudge}
	return []gradeKey{
		{"expected", g.Expected != "", slices.DeleteFunc(GradeKinds(), func(k string) bool { return k == GradeSchema })},
		{"extract", g.Extract != "", extracting},
		{"pick", g.Pick != "", extracting},
		{"ignore_case", g.IgnoreCase, []string{GradeExact, GradeRegex}},
		{"pattern", g.Pattern != "", []string{GradeRegex}},
		{"tolerance", g.Tolerance != 0, []string{GradeNumeric}},
		{"relative_tolerance", g.RelativeTolerance != 0, []string{GradeNumeric}},
		{"choices", g.Choices != nil, []string{GradeChoice}},
		{"labels", g.Labels != nil, []string{GradeLabel, GradeJudge}},
		{"passing", g.Passing != nil, []string{GradeLabel, GradeJudge}},
		{"schema", g.Schema != "", []string{GradeSchema}},
		{"service", g.Service != "", []string{GradeHTTP}},
		{"plugin", g.Plugin != "", []string{GradePlugin}},
		{"model", g.Model != "", judge},
		{"system", g.System != "", judge},
		{"prompt", g.Prompt != "", judge},
		{"rubric", g.Rubric != "", judge},
		{"range", g.Range != nil, judge},
		{"label_scores", g.LabelScores != nil, judge},
		{"sampling", g.Sampling != nil, judge},
		{"request", g.Request != nil, judge},
	}
}

type gradeKey struct {
	name  string
	set   bool
	kinds []string
}

// checkGrades checks the graders of a run.
func checkGrades(c *checker, at string, grades []Grade, d Dedupe) {
	if len(grades) == 0 {
		return
	}
	if len(grades) > maxGraders {
		c.add(element(at, maxGraders), "is one of %d graders, at most %d are allowed", len(grades), maxGraders)
		return
	}
	if d.Enabled {
		c.add(element(at, 0), "can't be combined with dedupe.enabled, because a copy of an answer would get the scores of "+
			"another row: remove one of them")
	}
	names, total, judges := map[string]bool{}, 0.0, 0
	for i, g := range grades {
		field := element(at, i)
		c.label(field+".name", g.Name, maxGraderName, "_")
		if g.Name != "" && names[g.Name] {
			c.add(field+".name", "%s is the name of an earlier grader: give each grader its own", quote(g.Name))
		}
		names[g.Name] = true
		total += g.Share()
		g.check(c, field)
		if g.Kind == GradeJudge {
			judges++
		}
		if judges == MaxJudges+1 {
			c.add(field, "is the fourth judge, and a run has at most %d: remove one, or ask for both in one prompt", MaxJudges)
		}
	}
	if total == 0 {
		c.add(element(at, 0), "all graders have the weight 0, so that no row would have a score: give one a weight")
	}
}

func (g Grade) check(c *checker, at string) {
	if !slices.Contains(GradeKinds(), g.Kind) {
		if g.Kind == "" {
			c.add(at+".kind", "missing: use one of %s", strings.Join(GradeKinds(), ", "))
		} else {
			c.oneOf(at+".kind", "kind of grader", g.Kind, GradeKinds())
		}
		return
	}
	c.float(at+".weight", g.Weight, atLeast(0), atMost(maxWeight))
	for _, k := range g.gradeKeys() {
		if k.set && !slices.Contains(k.kinds, g.Kind) {
			c.add(at+"."+k.name, "applies only to graders of the kind %s, and this one is %s: remove it",
				strings.Join(k.kinds, ", "), g.Kind)
		}
	}
	g.checkExpected(c, at)
	c.expression(at+".extract", g.Extract)
	if picks := []string{PickFirst, PickLast}; g.Pick != "" && !slices.Contains(picks, g.Pick) {
		c.oneOf(at+".pick", "match", g.Pick, picks)
	}
	if g.Pick != "" && g.Extract == "" {
		c.add(at+".pick", "has no effect without extract: add extract, or remove it")
	}
	g.checkKind(c, at)
}

// checkExpected checks the path of the expected value, and that there is
// something to compare answers with.
func (g Grade) checkExpected(c *checker, at string) {
	field := at + ".expected"
	switch key, set := g.constant(); {
	case key != "" && set && g.Expected != "":
		c.add(field, "%s is set too, and only one of them can count: remove one", key)
	case key != "" && !set && g.Expected == "":
		c.add(at+"."+key, "missing: set it, or name the member of the lines that has it as expected")
	case key == "" && g.Expected == "" &&
		!slices.Contains([]string{GradeHTTP, GradeSchema, GradeJudge, GradePlugin}, g.Kind):
		c.add(field, "missing: name the member of the lines with the expected value, such as \"answer\"")
	case len(g.Expected) > maxMemberPath:
		c.add(field, "has %d bytes, at most %d are allowed", len(g.Expected), maxMemberPath)
	case g.Expected != "" && slices.Contains(strings.Split(g.Expected, "."), ""):
		c.add(field, "%s is not a path: write names and numbers with a dot between them, such as \"meta.answer\"",
			quote(g.Expected))
	}
}

// constant returns the key that may stand in for the rows' expected values, if
// the kind has one, and whether it is set.
func (g Grade) constant() (key string, set bool) {
	switch g.Kind {
	case GradeRegex:
		return "pattern", g.Pattern != ""
	case GradeLabel:
		return "passing", g.Passing != nil
	}
	return "", false
}

// checkKind checks the keys of single kinds.
func (g Grade) checkKind(c *checker, at string) {
	switch g.Kind {
	case GradeRegex:
		c.expression(at+".pattern", g.Pattern)
	case GradeNumeric:
		c.float(at+".tolerance", &g.Tolerance, atLeast(0), atMost(1e300))
		c.float(at+".relative_tolerance", &g.RelativeTolerance, atLeast(0), atMost(1))
	case GradeChoice:
		if g.Choices != nil {
			c.options(at+".choices", g.Choices)
		}
	case GradeLabel:
		c.options(at+".labels", g.Labels)
		g.checkPassing(c, at)
	case GradeSchema:
		c.jsonSchema(at+".schema", g.Schema)
	case GradeHTTP:
		if g.Service == "" {
			c.add(at+".service", "missing: name a scoring service, a table [graders.NAME] of the deployment's config")
		} else {
			c.label(at+".service", g.Service, maxGraderName, "")
		}
	case GradePlugin:
		if g.Plugin == "" {
			c.add(at+".plugin", "missing: name a plugin, a table [plugins.NAME] of the deployment's config")
		} else {
			c.label(at+".plugin", g.Plugin, maxGraderName, "")
		}
	case GradeJudge:
		g.checkJudge(c, at)
	}
}

// checkPassing checks that the labels that pass are labels.
func (g Grade) checkPassing(c *checker, at string) {
	for i, p := range g.Passing {
		if !slices.ContainsFunc(g.Labels, func(l string) bool { return strings.EqualFold(l, p) }) {
			c.add(element(at+".passing", i), "%s is not one of the labels: add it to them, or remove it", quote(p))
		}
	}
}

// options checks a list of choices or labels.
func (c *checker) options(field string, list []string) {
	if len(list) < 2 || len(list) > maxOptions {
		c.add(field, "must list 2 to %d options, lists %d", maxOptions, len(list))
		return
	}
	for i, s := range list {
		same := func(other string) bool { return strings.EqualFold(s, other) }
		switch {
		case s == "":
			c.add(element(field, i), "is empty: remove it")
		case slices.ContainsFunc(list[:i], same):
			c.add(element(field, i), "%s is listed twice, upper and lower case apart: name each option once", quote(s))
		}
		c.text(element(field, i), s, maxOption)
	}
}

// expression checks a regular expression; "" means that there is no expression.
func (c *checker) expression(field, expr string) {
	if len(expr) > maxPattern {
		c.add(field, "has %d bytes, at most %d are allowed", len(expr), maxPattern)
		return
	}
	if _, err := regexp.Compile(expr); err != nil {
		c.add(field, "is not a regular expression that Go knows (RE2): %s", shorten(
			strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
	}
}

// jsonSchema checks a JSON schema.
func (c *checker) jsonSchema(field, schema string) {
	switch {
	case schema == "":
		c.add(field, "missing: write the JSON schema between ''' and '''")
		return
	case len(schema) > maxSchema:
		c.add(field, "has %d bytes, at most %d are allowed", len(schema), maxSchema)
		return
	case !json.Valid([]byte(schema)):
		c.add(field, "is not valid JSON: write the JSON schema between ''' and '''")
		return
	}
	if _, err := jsonschema.Compile(schema); err != nil {
		c.add(field, "is not a JSON schema that can be used: %s", shorten(err.Error()))
	}
}

// services checks that the deployment has the scoring services and plugins that graders name.
func (c *checker) services(at string, grades []Grade, have map[string]GraderService, plugins map[string]Plugin) {
	for i, g := range grades {
		if _, ok := plugins[g.Plugin]; g.Kind == GradePlugin && g.Plugin != "" && !ok {
			c.add(element(at, i)+".plugin", "%s", noPlugin(g.Plugin, plugins))
		}
		if _, ok := have[g.Service]; g.Kind == GradeHTTP && g.Service != "" && !ok {
			c.add(element(at, i)+".service", "%s", noService(g.Service, have))
		}
	}
}

func noService(name string, have map[string]GraderService) string {
	if len(have) == 0 {
		return fmt.Sprintf("the deployment has no scoring service %s: add [graders.%s] with its url to its config",
			quote(name), name)
	}
	return fmt.Sprintf("the deployment has no scoring service %s: use one of %s", quote(name),
		strings.Join(slices.Sorted(maps.Keys(have)), ", "))
}

// CheckServices returns Invalid if a grader names a scoring service or a plugin that the
// deployment does not have.
func (d Deployment) CheckServices(grades []Grade) error {
	for _, g := range grades {
		if _, ok := d.Graders[g.Service]; g.Kind == GradeHTTP && !ok {
			return fault.New(fault.Invalid, "grader %s: %s", g.Name, noService(g.Service, d.Graders))
		}
		if _, ok := d.Plugins[g.Plugin]; g.Kind == GradePlugin && !ok {
			return fault.New(fault.Invalid, "grader %s: %s", g.Name, noPlugin(g.Plugin, d.Plugins))
		}
	}
	return nil
}

// checkGraders checks the deployment's scoring services. allowed is the
// allowlist of secrets.
func checkGraders(c *checker, services map[string]GraderService, allowed []string) {
	if len(services) > maxServices {
		c.add("graders", "has %d scoring services, at most %d are allowed", len(services), maxServices)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		at := join("graders", name)
		c.label(at, name, maxGraderName, "")
		services[name].check(c, at, allowed)
	}
}

func (s GraderService) check(c *checker, at string, allowed []string) {
	switch {
	case s.URL == "":
		c.add(at+".url", "missing: name the address that scores answers, such as \"http://127.0.0.1:9000/score\"")
	default:
		c.server(at+".url", s.URL, "must be an http or https address, such as \"http://127.0.0.1:9000/score\"", at+".secret")
	}
	if s.Secret != "" {
		c.label(at+".secret", s.Secret, maxSecret, "")
		if !slices.Contains(allowed, s.Secret) {
			c.add(at+".secret", "%s is not in the allowlist: add it to secrets", quote(s.Secret))
		}
	}
	c.integer(at+".batch", &s.Batch, 1, maxGraderBatch, "")
	c.integer(at+".concurrency", &s.Concurrency, 1, maxGraderConcurrency, "")
	c.integer(at+".retries", &s.Retries, 0, maxGraderRetries, "")
	c.positive(at+".timeout", s.Timeout)
	c.positive(at+".max_wait", s.MaxWait)
	if s.Timeout > s.MaxWait {
		c.add(at+".max_wait", "must be at least timeout (%s), is %s", s.Timeout.Std(), s.MaxWait.Std())
	}
}
