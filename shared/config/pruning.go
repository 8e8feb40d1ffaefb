package config

import "slices"

// Pruning is the table [pruning] of a run of KindTrials: by what it leaves variants out. Package
// pruning of the core has the rules.
type Pruning struct {
	// Rule is one of the Prune constants.
	Rule string `toml:"rule" json:"rule"`
	// Grader is the one whose scores decide; "" takes the score of the row.
	Grader string `toml:"grader" json:"grader,omitempty"`
	// Looks is how often the run is looked at, evenly over its schedule; 0 is the default of the
	// rule: see LooksOf.
	Looks int `toml:"looks" json:"looks,omitempty"`
	// MinTasks is how many tasks must have scores for a decision.
	MinTasks int `toml:"min_tasks" json:"min_tasks"`
	// Alpha, Spending and Test are of PruneRace: the probability of a false decision, how it is
	// spent over the looks, and how two variants are compared.
	Alpha    float64 `toml:"alpha" json:"alpha,omitempty"`
	Spending string  `toml:"spending" json:"spending,omitempty"`
	Test     string  `toml:"test" json:"test,omitempty"`
	// Below is of PruneFixed: the mean score below which a variant is left out.
	Below *float64 `toml:"below" json:"below,omitempty"`
	// Eta is of PruneHalving: one of so many variants stays at a look.
	Eta int `toml:"eta" json:"eta,omitempty"`
}

// Values of pruning.rule.
const (
	PruneOff     = "off"
	PruneFixed   = "fixed"   // variants whose mean is below a bound
	PruneRace    = "race"    // variants that are worse than the best one by more than chance
	PruneHalving = "halving" // all but the best ones, again and again
)

// Values of pruning.spending and of pruning.test.
const (
	SpendEvenly  = "pocock"
	SpendLate    = "obrien_fleming"
	TestAuto     = "auto"
	TestWilcoxon = "wilcoxon"
	TestMcNemar  = "mcnemar"
)

// Bounds of [pruning].
const (
	maxLooks     = 32
	maxEta       = maxVariants
	defaultLooks = 10
)

// DefaultPruning returns the settings of a run that leaves no variant out.
func DefaultPruning() Pruning {
	return Pruning{Rule: PruneOff, MinTasks: 10, Alpha: 0.05, Spending: SpendEvenly, Test: TestAuto, Eta: 2}
}

// PruningOf returns the run's [pruning], with its defaults.
func (r Run) PruningOf() Pruning { return valueOr(r.Pruning, DefaultPruning) }

// Prunes reports whether a run of the config may leave variants out.
func (r Run) Prunes() bool { return r.PruningOf().Rule != PruneOff }

// LooksOf returns how often a run of the config is looked at, if it has enough trials. Unless the
// config says so, that is ten times, and in a halving as often as it takes to have one variant left.
func (r Run) LooksOf() int {
	p := r.PruningOf()
	switch {
	case p.Rule == PruneOff:
		return 0
	case p.Looks > 0:
		return p.Looks
	case p.Rule != PruneHalving:
		return defaultLooks
	}
	looks := 0
	for left := len(r.Variants); left > 1; looks++ {
		left = (left + p.Eta - 1) / p.Eta
	}
	return max(1, looks)
}

func (p *Pruning) setDefaults() { *p = DefaultPruning() }

// checkPruning reports what is wrong with the [pruning] of a run of trials.
func (r Run) checkPruning(c *checker, at string) {
	if r.Pruning == nil {
		return
	}
	p, without := *r.Pruning, DefaultPruning()
	rules := []string{PruneOff, PruneFixed, PruneRace, PruneHalving}
	if !slices.Contains(rules, p.Rule) {
		c.oneOf(at+".rule", "rule", p.Rule, rules)
		return
	}
	for _, f := range []struct {
		optionalKey
		rules []string
	}{
		{optionalKey{"alpha", p.Alpha != without.Alpha}, []string{PruneRace}},
		{optionalKey{"spending", p.Spending != without.Spending}, []string{PruneRace}},
		{optionalKey{"test", p.Test != without.Test}, []string{PruneRace}},
		{optionalKey{"below", p.Below != nil}, []string{PruneFixed}},
		{optionalKey{"eta", p.Eta != without.Eta}, []string{PruneHalving}},
		{optionalKey{"looks", p.Looks != without.Looks}, rules[1:]},
		{optionalKey{"min_tasks", p.MinTasks != without.MinTasks}, rules[1:]},
		{optionalKey{"grader", p.Grader != ""}, rules[1:]},
	} {
		if f.set && !slices.Contains(f.rules, p.Rule) {
			c.add(under(at, f.name), "does not apply to the rule %s: set rule = %q, or remove it", quote(p.Rule), f.rules[0])
		}
	}
	c.integer(at+".looks", &p.Looks, 0, maxLooks, "; 0 is the default of the rule")
	c.integer(at+".min_tasks", &p.MinTasks, 2, MaxTrials, "")
	c.float(at+".alpha", &p.Alpha, above(0), atMost(0.5))
	c.integer(at+".eta", &p.Eta, 2, maxEta, "")
	c.float(at+".below", p.Below, atLeast(-maxWeight), atMost(maxWeight))
	for _, f := range []struct {
		key, value string
		choices    []string
	}{
		{"spending", p.Spending, []string{SpendEvenly, SpendLate}},
		{"test", p.Test, []string{TestAuto, TestWilcoxon, TestMcNemar}},
	} {
		if !slices.Contains(f.choices, f.value) {
			c.oneOf(under(at, f.key), f.key, f.value, f.choices)
		}
	}
	if p.Rule == PruneOff {
		return
	}
	r.checkPrunable(c, at)
}

// checkPrunable reports what a run that prunes lacks.
func (r Run) checkPrunable(c *checker, at string) {
	p := r.PruningOf()
	if p.Rule == PruneFixed && p.Below == nil {
		c.add(at+".below", "missing: set the mean score below which a variant is left out")
	}
	if len(r.Grades) == 0 {
		c.add(at+".rule", "variants are left out by their scores: add a table [[grade]], or set rule = %q", PruneOff)
	}
	named := func(g Grade) bool { return g.Name == p.Grader }
	if p.Grader != "" && len(r.Grades) > 0 && !slices.ContainsFunc(r.Grades, named) {
		var names []string
		for _, g := range r.Grades {
			names = append(names, g.Name)
		}
		c.oneOf(at+".grader", "grader", p.Grader, names)
	}
	if p.Rule != PruneFixed && len(r.Variants) == 1 {
		c.add(at+".rule", "a single variant has none to be compared with: add a variant, or set rule = %q", PruneOff)
	}
	if d := r.DesignOf(); d.Order == TrialsByVariant {
		c.add(at+".rule", "variants are compared while all of them advance: set design.order to another one than %q",
			TrialsByVariant)
	}
}
