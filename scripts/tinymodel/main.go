// Command tinymodel makes the model that rollout ships with, step by step:
//
//	corpus     two texts in the public domain become documents to learn from, and some to judge by
//	tokenizer  learns a vocabulary from them
//	speed      says how many steps fit into a time on this machine
//	pretrain   learns, and can be stopped and resumed at any time
//	evaluate   measures bits per byte on what was held out
//	pack       quantises the result into one file to embed
//
// The same inputs give the same bytes on any machine; MODEL_CARD.md in
// gpuworker/tinylm/weights has the commands that made the shipped file.
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
	c.AddCommand(corpusCommand(), tokenizerCommand(), speedCommand(), pretrainCommand(), evaluateCommand(), packCommand())
	return c
}
