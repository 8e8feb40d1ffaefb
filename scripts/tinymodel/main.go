// Command tinymodel makes the model that rollout ships with. Its sub-commands are
// the steps:
//
//	corpus     makes training documents and held-out documents from two public-domain texts
//	tokenizer  learns a vocabulary from the training documents
//	speed      measures how many training steps fit into a given time on this machine
//	pretrain   trains the model; it can be stopped and resumed at any time
//	evaluate   measures bits per byte on the held-out documents
//	pack       quantises the result into one file to embed
//
// The same inputs give the same bytes on every machine. MODEL_CARD.md in
// gpuworker/tinylm/weights lists the commands that made the shipped file.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tinymodel:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:           "tinymodel",
		Short:         "make the model that rollout ships with",
		SilenceUsage:  true,
		SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{
			DisableDefaultCmd: true,
		},
	}
	c.AddCommand(corpusCommand(), tokenizerCommand(), speedCommand(), pretrainCommand(), evaluateCommand(),
		packCommand())
	return c
}
