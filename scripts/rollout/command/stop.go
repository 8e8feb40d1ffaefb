package command

import (
	"github.com/spf13/cobra"

	"rollout/functions/api"
)

func stopCommand(e *Env) *cobra.Command {
	return e.steerCommand(steering{
		name:  "stop",
		short: "End a run now, for good",
		long:  "What is finished is written to its files; every other item gets an error line of class canceled.",
		doing: "stopping",
		do:    (*api.Service).Stop,
	})
}
