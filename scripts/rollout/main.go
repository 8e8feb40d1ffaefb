// Command rollout is rollout's command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(command.Main(ctx, os.Args[1:], command.Env{
		Out:    os.Stdout,
		Err:    os.Stderr,
		Clock:  clock.System{},
		Getenv: os.Getenv,
	}))
}
