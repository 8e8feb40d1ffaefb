package command

import (
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/run"
)

// palette colours text if it is true, and leaves it unchanged if it is false.
type palette bool

// palette returns the palette for Out. The environment variable NO_COLOR disables colours.
func (e *Env) palette() palette {
	return palette(progress.SupportsANSI(e.Out) && e.Getenv("NO_COLOR") == "")
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	bold   = "1"
)

func (p palette) in(colour, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (p palette) phase(ph run.Phase, text string) string {
	switch ph {
	case run.Completed:
		return p.in(green, text)
	case run.CompletedWithErrors, run.Pausing, run.Paused, run.Interrupted, run.Ending:
		return p.in(yellow, text)
	case run.Failed, run.Stopped, run.Expired, run.OverBudget:
		return p.in(red, text)
	}
	return p.in(cyan, text)
}

func (p palette) worker(w status.WorkerStatus, text string) string {
	switch {
	case !w.Alive || w.Engine == status.EngineAway:
		return p.in(red, text)
	case workerState(w) == "ready", workerState(w) == "training":
		return p.in(green, text)
	}
	return p.in(yellow, text)
}
