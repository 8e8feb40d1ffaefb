package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

// modelsLimit bounds the check of all models.
const modelsLimit = time.Minute

// CheckModels returns the check whether the machines of the pools can serve their models.
func CheckModels(m poolcheck.Models, d config.Deployment) Check {
	return Check{Name: cloud.CheckModels, Limit: modelsLimit, Remedy: func(error) string { return "" },
		Probe: func(ctx context.Context) (string, error) {
			reports := m.CheckAll(ctx, d)
			if problems := poolcheck.Problems(reports); len(problems) > 0 {
				return "", fault.New(fault.Exhausted, "%s", strings.Join(problems, "; "))
			}
			notes := strings.Join(poolcheck.Notes(reports), "; ")
			if slices.ContainsFunc(reports, func(r poolcheck.Report) bool { return r.Known }) {
				return notes, nil
			}
			return "", &cloud.Unseen{Reason: notes}
		}}
}
