package command

import (
	"strings"

	"github.com/spf13/cobra"

	"rollout/shared/config"
)

func configCommand(e *Env) *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Describe the config files",
		Args:  unknownCommand,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:   "schema [NAME]",
		Short: "Write the JSON Schema of a config, by which editors complete and check it",
		Long: "Writes the JSON Schema of a config: NAME is one of " + strings.Join(config.SchemaNames(), ", ") + "\n" +
			"(default: run, the config beside a prompts file).\n\n" +
			"Editors with taplo read it where the first line of a config names it: #:schema run.json",
		Args:      arguments(1, "NAME"),
		ValidArgs: config.SchemaNames(),
		RunE: func(_ *cobra.Command, args []string) error {
			schema, err := config.Schema(strings.Join(append(args, "run")[:1], ""))
			if err != nil {
				return err
			}
			_, err = e.Out.Write(schema)
			return err
		},
	})
	return c
}
