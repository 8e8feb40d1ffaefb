package record

import "rollout/shared/core/run"

// Look is what a look at a run of trials decided, at LookKey and as a row of the pruning log. The
// object of a look is create-only, and a function of the config and of the trials before it.
type Look struct {
	Schema int    `json:"schema"`
	Look   int    `json:"look"` // its number, from 1 on
	Looks  int    `json:"looks"`
	Rule   string `json:"rule"` // of config.Pruning
	// Trials is how many trials it read: those with a smaller schedule index. From is the schedule
	// index from which on the variants that it pruned are not tried.
	Trials int    `json:"trials"`
	From   int    `json:"from"`
	Best   string `json:"best,omitempty"` // the variant with the best score, if the rule compares with it
	// Level is the greatest adjusted P that prunes, of a race. LastTest is the last look, with this
	// one, that compared variants.
	Level    float64       `json:"level,omitempty"`
	LastTest int           `json:"last_test,omitempty"`
	Variants []LookVariant `json:"variants"` // that were not pruned before, in the order of the config
	// Scores is the digest of the sums of scores behind it, at LookScoresKey.
	Scores string `json:"scores"`
}

// LookVariant is what a look found of a variant.
type LookVariant struct {
	Name   string    `json:"name"`
	Tasks  int       `json:"tasks"`          // with a score
	Score  *float64  `json:"score"`          // their mean; null without one
	Pair   *LookPair `json:"pair,omitempty"` // its comparison with the best variant
	Pruned bool      `json:"pruned,omitempty"`
	Why    string    `json:"why,omitempty"` // of a pruned one, for users. Example: "look 3 of 10: its score …"
}

// LookPair compares the best variant of a look with another one.
type LookPair struct {
	Tasks      int     `json:"tasks"`  // with a score under both
	Better     int     `json:"better"` // on which the best one is better
	Worse      int     `json:"worse"`
	Difference float64 `json:"difference"` // mean, of the best one − the other one
	Test       string  `json:"test"`
	P          float64 `json:"p"`
	Adjusted   float64 `json:"adjusted"` // P for all pairs together
}

// PlannedPruning is a variant that a look has pruned: of it, no shard from From on is sent.
type PlannedPruning struct {
	Variant uint32 `json:"variant"`
	From    int    `json:"from"`
	Why     string `json:"why"` // for users
}

// LooksOf returns how far the looks of a run are that is looked at in these places.
func (p Plan) LooksOf(places []int) run.Looks {
	l := run.Looks{Decided: p.Looks}
	if p.Looks+1 < len(places) {
		l.Next, l.Limit = places[p.Looks], places[p.Looks+1]
	}
	return l
}

// Prunes reports whether the run is looked at, to prune variants, if it has enough shards. A child
// is not: it asks what its user wants to be asked.
func (m Manifest) Prunes() bool { return m.Parent == nil && m.Config.Prunes() }
