package command

import (
	"github.com/spf13/cobra"

	"rollout/functions/api"
)

func pauseCommand(e *Env) *cobra.Command {
	return e.steerCommand(steering{
		name:  "pause",
		short: "Let a run start nothing new",
		long:  "Requests in flight may end within the run's grace; what is finished is kept.",
		doing: "pausing",
		do:    (*api.Service).Pause,
	})
}
