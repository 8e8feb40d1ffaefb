package command

import (
	"github.com/spf13/cobra"

	"rollout/functions/api"
)

func resumeCommand(e *Env) *cobra.Command {
	return e.steerCommand(steering{
		name:  "resume",
		short: "Let a paused run go on",
		long:  "It goes on where it was: nothing that is finished is asked again.",
		doing: "resuming",
		do:    (*api.Service).Resume,
	})
}
