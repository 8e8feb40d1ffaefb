package command

import (
	"io"
	"path/filepath"

	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
)

// palette returns the palette for w. The environment variable NO_COLOR disables colours.
func (e *Env) palette(w io.Writer) terminal.Palette {
	return terminal.Palette(terminal.SupportsANSI(w) && e.Getenv("NO_COLOR") == "")
}

// transfer returns the display of a transfer of total bytes of the file at path.
func (e *Env) transfer(w io.Writer, path string, total int64) *progress.Transfer {
	return progress.NewTransfer(w, filepath.Base(path), total, e.Clock, e.palette(w))
}

// colourWorker colours a text about a worker by its state.
func colourWorker(p terminal.Palette, w status.WorkerStatus, text string) string {
	switch {
	case !w.Alive || w.Engine == status.EngineAway:
		return p.In(terminal.Red, text)
	case workerState(w) == "ready", workerState(w) == "training":
		return p.In(terminal.Green, text)
	}
	return p.In(terminal.Yellow, text)
}
