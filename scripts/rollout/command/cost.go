package command

import (
	"fmt"
	"strings"

	"rollout/functions/status"
)

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
			lines = append(lines, l.name+" "+formatDollars(l.usd))
		}
	}
	text := formatDollars(r.CostUSD)
	if len(lines) > 0 {
		text += ": " + strings.Join(lines, ", ")
	}
	if hours := c.BusyHours + c.BootHours + c.IdleHours; hours > 0 {
		text += fmt.Sprintf("; %.3g machine hours", hours)
	}
	return text
}
