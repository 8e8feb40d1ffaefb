package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rollout/functions/status"
	"rollout/shared/figures"
)

// limited returns the blocker of a pool whose requests wait for its limit, or because its
// server wants none for a while. Such a run is not stalled, however long it takes until the
// next request may begin.
func limited(p status.Progress, pool string, alive int, now time.Time) (status.Blocker, bool) {
	limits := status.Limits(p.Workers)
	i := slices.IndexFunc(limits, func(l status.PoolLimit) bool { return l.Pool == pool })
	if i < 0 || limits[i].WaitingWorkers == 0 {
		return status.Blocker{}, false
	}
	l := limits[i]
	b := status.Blocker{Code: Limited,
		Remedy: "wait, or raise the limits of the [[pool]] in the config if the server allows more"}
	waiting := fmt.Sprintf("requests of %s of %s of pool %s wait for that",
		figures.Count(l.WaitingWorkers), figures.Of(alive, "worker"), pool)
	if limit := FormatLimit(l); limit != "" {
		b.Text = fmt.Sprintf("limited to %s, %s used: %s", limit, figures.Share(l.Used()), waiting)
		if l.RequestsFrom != fromConfig || l.Tokens > 0 && l.TokensFrom != fromConfig {
			b.Remedy = "wait, or ask for higher limits at the server; ignore_server_limits of the [[pool]] in the config " +
				"keeps to the config's limits alone"
		}
	}
	if l.WaitUntil != nil && l.WaitUntil.After(now) {
		wait := fmt.Sprintf("the server wants no requests for %s more", figures.Duration(l.WaitUntil.Sub(now)))
		if b.Text == "" {
			b.Text = wait + ": " + waiting
		} else {
			b.Text += "; " + wait
		}
	}
	return b, b.Text != ""
}

// fromConfig is the source of a limit that the user has set; see health.Limit.
const fromConfig = "config"

// FormatLimit describes the limits of a pool and where they come from, such as "600
// requests a minute (as the server states)"; "" without one.
func FormatLimit(l status.PoolLimit) string {
	var parts []string
	for _, v := range []struct {
		n         int64
		one, from string
	}{{l.Requests, "request", l.RequestsFrom}, {l.Tokens, "token", l.TokensFrom}} {
		if v.n == 0 {
			continue
		}
		text := figures.Of(v.n, v.one) + " a minute"
		switch v.from {
		case "headers":
			text += " (as the server states)"
		case "refusals":
			text += " (as its refusals show)"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}
