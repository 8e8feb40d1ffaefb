package compare

import (
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/statistics"
	"rollout/shared/dialect"
)

// Totals sum up a comparison.
type Totals struct {
	MatchedBy How    `json:"matched_by"`
	Items     uint64 `json:"items"` // in both runs
	Same      uint64 `json:"same"`  // of Items answered in both: the same answers
	Differ    uint64 `json:"differ"`
	BothFail  uint64 `json:"both_failed"`
	// Agreement is the share of Same among the items that both runs answered; null if
	// there is none.
	Agreement *float64 `json:"agreement"`
	A         Side     `json:"a"`
	B         Side     `json:"b"`
	// Scored is how many items have a score in both runs. Better and Worse count those
	// whose score is higher and lower in the second run.
	Scored uint64 `json:"scored"`
	Better uint64 `json:"better"`
	Worse  uint64 `json:"worse"`
	// Gain is what these scores show; null if no item has both.
	Gain *Gain `json:"gain"`
	// Settings are those of the runs' configs that differ, sorted by key.
	Settings []Setting `json:"settings"`

	scores statistics.Paired
}

// Gain is how much higher the scores of the second run are: see statistics.Difference.
// Values that need more items are null.
type Gain struct {
	Mean       float64         `json:"mean"`
	Low        *float64        `json:"low"` // with High: an interval that contains the true gain in 95 of 100 cases
	High       *float64        `json:"high"`
	P          *float64        `json:"p"`
	Test       statistics.Test `json:"test"`
	Detectable *float64        `json:"detectable"`
}

// GainConfidence is that of a Gain's interval.
const GainConfidence = 0.95

// Setting is a setting that differs between the runs. A and B are its values in the
// spelling of JSON; "" for one that a run's config does not say and that is 0, false or
// empty.
type Setting struct {
	Key string `json:"key"` // with dots between its parts
	A   string `json:"a"`
	B   string `json:"b"`
}

// Side sums up one run. The means are null without a value.
type Side struct {
	Run          identity.RunID `json:"run_id"`
	Name         string         `json:"name"`
	Model        string         `json:"model"`
	Only         uint64         `json:"only"`          // items that the other run does not have
	AnsweredOnly uint64         `json:"answered_only"` // items of both that the other run failed
	Answered     uint64         `json:"answered"`
	Failed       uint64         `json:"failed"`
	Cut          uint64         `json:"cut"`             // answered items with an answer that was cut at its length
	Characters   *float64       `json:"mean_characters"` // of an item's answers
	Tokens       *float64       `json:"mean_completion_tokens"`
	Score        *float64       `json:"mean_score"` // of the items with a score in both runs
	CostUSD      float64        `json:"cost_usd"`

	characters, tokens, score float64
}

// NewTotals returns the totals of a comparison that begins.
func NewTotals(a, b Run) (*Totals, error) {
	settings, err := settingsOf(a, b)
	return &Totals{A: sideOf(a), B: sideOf(b), Settings: settings}, err
}

// ownKeys are settings that tell runs apart and change no answer, and those of which a
// comparison has lines of its own.
var ownKeys = []string{"name", "model.uri"}

func settingsOf(a, b Run) ([]Setting, error) {
	found := map[string]*Setting{}
	for _, r := range []struct {
		config config.Run
		value  func(*Setting) *string
	}{
		{a.Manifest.Config, func(s *Setting) *string { return &s.A }},
		{b.Manifest.Config, func(s *Setting) *string { return &s.B }},
	} {
		values, err := r.config.Values()
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			if found[v.Key] == nil {
				found[v.Key] = &Setting{Key: v.Key}
			}
			*r.value(found[v.Key]) = v.Text
		}
	}
	out := []Setting{}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if s := found[key]; s.A != s.B && !slices.Contains(ownKeys, key) {
			out = append(out, *s)
		}
	}
	return out, nil
}

func sideOf(r Run) Side {
	return Side{Run: r.Manifest.Run, Name: r.Manifest.Name, Model: r.Manifest.ModelURI, CostUSD: r.Summary.CostUSD}
}

// Add adds a pair.
func (t *Totals) Add(p Pair) {
	t.A.add(p.A)
	t.B.add(p.B)
	switch {
	case p.B == nil:
		t.A.Only++
		return
	case p.A == nil:
		t.B.Only++
		return
	}
	t.Items++
	switch a, b := p.A.Class == "", p.B.Class == ""; {
	case a && b && p.Same:
		t.Same++
	case a && b:
		t.Differ++
	case a:
		t.A.AnsweredOnly++
	case b:
		t.B.AnsweredOnly++
	default:
		t.BothFail++
	}
	if a, b := p.A.Score, p.B.Score; a != nil && b != nil {
		t.Scored++
		t.A.score += *a
		t.B.score += *b
		t.scores.Add(*a, *b)
	}
}

func (s *Side) add(r *Row) {
	if r == nil {
		return
	}
	if r.Class != "" {
		s.Failed++
		return
	}
	s.Answered++
	s.tokens += float64(r.CompletionTokens)
	for _, text := range r.Answers {
		s.characters += float64(utf8.RuneCountInString(text))
	}
	if slices.ContainsFunc(r.FinishReasons, isCut) {
		s.Cut++
	}
}

// isCut reports whether an answer with the finish reason, as a row has it, was cut.
func isCut(reason string) bool {
	return reason == "MAX_TOKENS" || slices.Contains(dialect.CutReasons(), reason)
}

// End computes the means when all pairs are added.
func (t *Totals) End(how How) {
	t.MatchedBy = how
	t.Agreement = mean(float64(t.Same), t.Same+t.Differ)
	for _, s := range []*Side{&t.A, &t.B} {
		s.Characters, s.Tokens = mean(s.characters, s.Answered), mean(s.tokens, s.Answered)
		s.Score = mean(s.score, t.Scored)
	}
	if d := t.scores.Difference(GainConfidence); d.Items > 0 {
		t.Better, t.Worse = uint64(d.Up), uint64(d.Down)
		t.Gain = &Gain{Mean: d.Mean, Low: known(d.Interval[0]), High: known(d.Interval[1]), P: known(d.P),
			Test: d.Test, Detectable: known(d.Detectable)}
	}
}

// known returns a value, or nil if it is not a number.
func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func mean(sum float64, n uint64) *float64 {
	if n == 0 {
		return nil
	}
	m := sum / float64(n)
	return &m
}
