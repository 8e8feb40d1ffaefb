package command

import (
	"testing"

	"rollout/shared/config"
	"rollout/shared/record"
)

func TestBudgetsAreShownAsSpentOfTheirLimit(t *testing.T) {
	t.Parallel()
	for want, budgets := range map[string][]record.Budget{
		"":                      nil,
		"1,000 of 5,000 tokens": record.Budgets(config.Limits{Tokens: 5000}, 1000, 3),
		"$3.10 of $12.50":       record.Budgets(config.Limits{Dollars: 12.5}, 1000, 3.1),
		"1,000 of 5,000 tokens; $0.05 of $100.00": record.Budgets(config.Limits{Tokens: 5000, Dollars: 100}, 1000, 0.05),
	} {
		if got := formatBudgets(budgets); got != want {
			t.Errorf("%+v are shown as %q, want %q", budgets, got, want)
		}
	}
}
