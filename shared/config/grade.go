package config

// Kinds of grader, as values of grade.kind.
const (
	GradeExact   = "exact"       // the answer is the expected text
	GradeRegex   = "regex"       // a regular expression matches the answer
	GradeNumeric = "numeric"     // the answer's number is the expected one, within a tolerance
	GradeChoice  = "choice"      // the answer chooses the expected option
	GradeLabel   = "label"       // the answer names the expected label, or one of those that pass
	GradeSchema  = "json_schema" // the answer is JSON that a schema accepts
	GradeHTTP    = "http"        // a scoring service of the deployment gives the score
)

// GradeKinds lists every kind of grader.
func GradeKinds() []string {
	return []string{GradeExact, GradeRegex, GradeNumeric, GradeChoice, GradeLabel, GradeSchema, GradeHTTP}
}

// Which match of Grade.Extract is compared.
const (
	PickFirst = "first"
	PickLast  = "last"
)

// Grade is one grader of a run: a table [[grade]] of its config. Each answer
// gets a score of every grader, or a cause why it has none. Keys that the kind
// does not have are problems, so that a setting never has no effect.
type Grade struct {
	Name string `toml:"name" json:"name"`
	Kind string `toml:"kind" json:"kind"` // one of GradeKinds
	// Weight is the grader's part in the row's score; nil means 1. A grader with
	// weight 0 only reports.
	Weight *float64 `toml:"weight" json:"weight,omitempty"`
	// Expected is the path of the member of the input line with the expected
	// value. Examples: "answer", "meta.answers.0".
	Expected string `toml:"expected" json:"expected,omitempty"`
	// Extract is a regular expression (RE2) for the part of the answer that is
	// compared: its first group, or its whole match. "" compares the whole answer.
	Extract string `toml:"extract" json:"extract,omitempty"`
	Pick    string `toml:"pick" json:"pick,omitempty"` // PickFirst or PickLast; "" means PickLast
	// IgnoreCase compares without regard to upper and lower case (exact, regex).
	IgnoreCase bool `toml:"ignore_case" json:"ignore_case,omitempty"`
	// Pattern is the expression of GradeRegex; "" takes the row's expected value.
	Pattern string `toml:"pattern" json:"pattern,omitempty"`
	// Tolerance and RelativeTolerance are how far a number may be from the
	// expected one: absolute, and as a share of it. The larger one counts.
	Tolerance         float64 `toml:"tolerance" json:"tolerance,omitempty"`
	RelativeTolerance float64 `toml:"relative_tolerance" json:"relative_tolerance,omitempty"`
	// Choices are the options of GradeChoice; none means A, B, C and D.
	Choices []string `toml:"choices" json:"choices,omitempty"`
	// Labels are the labels of GradeLabel, and Passing those that score 1 in runs
	// whose rows have no expected one.
	Labels  []string `toml:"labels" json:"labels,omitempty"`
	Passing []string `toml:"passing" json:"passing,omitempty"`
	// Schema is the JSON schema of GradeSchema, as JSON text.
	Schema string `toml:"schema" json:"schema,omitempty"`
	// Service names the scoring service of GradeHTTP: a table [graders.NAME] of the
	// deployment's config.
	Service string `toml:"service" json:"service,omitempty"`
}

// Share returns the grader's weight in the row's score.
func (g Grade) Share() float64 {
	if g.Weight == nil {
		return 1
	}
	return *g.Weight
}
