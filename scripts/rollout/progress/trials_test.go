package progress

import (
	"slices"
	"testing"

	"rollout/functions/status"
	"rollout/shared/record"
)

func TestPrunedVariantsAreNamedWithTheirLook(t *testing.T) {
	t.Parallel()
	score := 0.5
	got := FormatTrials(record.Trials{Variants: []record.TrialVariant{
		{Name: "x", Trials: 9, Pruned: 4, PrunedAt: &record.PrunedAt{Look: 2, Looks: 10}},
		{Name: "y", Trials: 9, Score: &score},
	}})
	if want := []string{"y: score 0.5 of 9 trials", "x: 9 trials, 4 pruned at look 2 of 10"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestLooksAreFactsOfAStage(t *testing.T) {
	t.Parallel()
	s := status.Status{Looks: &status.Looks{Decided: 3, Of: 10}}
	if got := stageFacts(s); !slices.Equal(got, []string{"look 3/10"}) {
		t.Errorf("%q", got)
	}
	s.Looks.Pruned = []status.PrunedVariant{{Variant: "x"}}
	if got := stageFacts(s); !slices.Equal(got, []string{"look 3/10", "1 pruned"}) {
		t.Errorf("%q", got)
	}
}
