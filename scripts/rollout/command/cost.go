package command

import (
	"fmt"
	"strings"

	"rollout/functions/status"
	"rollout/shared/figures"
	"rollout/shared/record"
)

// formatBudgets formats what a run has spent of its budgets. Example: "$3.10 of $12.50; 1,000
// of 5,000 tokens".
func formatBudgets(budgets []record.Budget) string {
	var parts []string
	for _, b := range budgets {
		if b.Name == "dollars" {
			parts = append(parts, figures.Dollars(b.Used)+" of "+figures.Dollars(b.Limit))
			continue
		}
		parts = append(parts, figures.Count(int64(b.Used))+" of "+figures.Of(int64(b.Limit), "token"))
	}
	return strings.Join(parts, "; ")
}

// formatCost formats what a run has cost, with the lines that are not 0; "" if nothing is
// known. Example: "$1.31: machines $1.20, boot $0.11".
func formatCost(r status.Status) string {
	c := r.Cost
	if r.CostUSD <= 0 && c.BusyHours <= 0 {
		return ""
	}
	var lines []string
	for _, l := range []struct {
		name string
		usd  float64
	}{
		{"tokens", c.Tokens}, {"machines", c.Machines}, {"boot", c.Boot}, {"idle", c.Idle},
		{"functions", c.Functions}, {"storage", c.Storage},
	} {
		if l.usd > 0 {
			lines = append(lines, l.name+" "+figures.Dollars(l.usd))
		}
	}
	text := figures.Dollars(r.CostUSD)
	if len(lines) > 0 {
		text += ": " + strings.Join(lines, ", ")
	}
	if hours := c.BusyHours + c.BootHours + c.IdleHours; hours > 0 {
		text += fmt.Sprintf("; %.3g machine hours", hours)
	}
	return text
}
