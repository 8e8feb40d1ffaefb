package diagnosis

import (
	"fmt"
	"slices"
	"time"

	"rollout/functions/status"
	"rollout/shared/core/health"
	"rollout/shared/figures"
)

// stageTexts say what a machine does in a stage of its boot.
var stageTexts = map[health.BootStage]string{
	health.BootImage: "fetches the server's image",
	health.BootModel: "fetches and loads the model",
}

// bootingText says, as the end of a sentence, which machines of a pool are asked for or boot;
// "" if none.
func bootingText(machines []status.PoolMachines, pool string, now time.Time) (text string) {
	at := slices.IndexFunc(machines, func(m status.PoolMachines) bool { return m.Pool == pool })
	if at < 0 {
		return ""
	}
	m := machines[at]
	if m.Asked > 0 {
		text += fmt.Sprintf("; %s asked for", figures.OfMany(m.Asked, "machine is", "machines are"))
	}
	if m.Launching > 0 {
		text += fmt.Sprintf("; %s", figures.OfMany(m.Launching, "machine starts", "machines start"))
	}
	for _, b := range m.Booting[:min(len(m.Booting), maxNamed)] {
		text += fmt.Sprintf("; machine %s %s since %s", b.Machine, stageTexts[b.Stage], figures.Duration(now.Sub(b.Since)))
	}
	if more := len(m.Booting) - maxNamed; more > 0 {
		text += fmt.Sprintf("; %s more", figures.OfMany(more, "machine boots", "machines boot"))
	}
	return text
}
