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
	GradeJudge   = "judge"       // another model reads the answer and gives the score
	GradePlugin  = "plugin"      // a plugin of the deployment gives the score
)

// GradeKinds lists every kind of grader.
func GradeKinds() []string {
	return []string{GradeExact, GradeRegex, GradeNumeric, GradeChoice, GradeLabel, GradeSchema, GradeHTTP, GradeJudge,
		GradePlugin}
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
	// Labels are the labels of GradeLabel and GradeJudge. Passing are those that score
	// 1: of GradeLabel, in runs whose rows have no expected one.
	Labels  []string `toml:"labels" json:"labels,omitempty"`
	Passing []string `toml:"passing" json:"passing,omitempty"`
	// Schema is the JSON schema of GradeSchema, as JSON text.
	Schema string `toml:"schema" json:"schema,omitempty"`
	// Service names the scoring service of GradeHTTP: a table [graders.NAME] of the
	// deployment's config.
	Service string `toml:"service" json:"service,omitempty"`
	// Plugin names the plugin of GradePlugin: a table [plugins.NAME] of the deployment's config.
	Plugin string `toml:"plugin" json:"plugin,omitempty"`
	// Model is the model of GradeJudge; "" means the run's own.
	Model string `toml:"model" json:"model,omitempty"`
	// System and Prompt are the messages that GradeJudge sends, with Placeholders. Rubric
	// is the text of the placeholder of that name.
	System string `toml:"system" json:"system,omitempty"`
	Prompt string `toml:"prompt" json:"prompt,omitempty"`
	Rubric string `toml:"rubric" json:"rubric,omitempty"`
	// Range are the lowest and the highest number that GradeJudge accepts. They score 0
	// and 1, and numbers between them in proportion.
	Range []float64 `toml:"range" json:"range,omitempty"`
	// LabelScores are the scores of Labels, from 0 to 1, of GradeJudge.
	LabelScores []float64 `toml:"label_scores" json:"label_scores,omitempty"`
	// Sampling and Request are those of GradeJudge, in place of the run's. The default
	// temperature is 0. With several answers (n), the score is their mean.
	Sampling *Sampling `toml:"sampling" json:"sampling,omitempty"`
	Request  *Request  `toml:"request" json:"request,omitempty"`
}

// The names in the placeholders of a judge's messages, which are written in braces:
// {answer} stands for the answer.
const (
	PlacePrompt   = "prompt"   // the prompt or the messages that were answered, as text
	PlaceAnswer   = "answer"   // the answer
	PlaceExpected = "expected" // the row's expected value
	PlaceRubric   = "rubric"   // Grade.Rubric
)

// Placeholders lists the names in placeholders.
func Placeholders() []string { return []string{PlacePrompt, PlaceAnswer, PlaceExpected, PlaceRubric} }

// MaxJudges bounds the graders of a run that are of GradeJudge: each is a role.
const MaxJudges = 3

// Judges returns the numbers of the run's graders that are of GradeJudge, in order.
func (r Run) Judges() (numbers []int) {
	for i, g := range r.Grades {
		if g.Kind == GradeJudge {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// JudgeSampling returns the sampling params of a grader of GradeJudge.
func (g Grade) JudgeSampling() Sampling {
	var s Sampling
	if g.Sampling != nil {
		s = *g.Sampling
	}
	if s.Temperature == nil {
		s.Temperature = new(float64)
	}
	return s
}

// Share returns the grader's weight in the row's score.
func (g Grade) Share() float64 {
	if g.Weight == nil {
		return 1
	}
	return *g.Weight
}
