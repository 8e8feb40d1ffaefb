package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// parentPoll is how often a worker looks whether its parent is there.
const parentPoll = 250 * time.Millisecond

// Leave returns the reasons to leave: the first SIGTERM or SIGINT, or the end
// of the parent process if there is one to watch (its pid; 0 is none). A
// SIGINT after that ends the returned context at once; a SIGTERM does not: a
// parent that stops sends one on top of the terminal's SIGINT.
func Leave(ctx context.Context, parent int) (context.Context, <-chan string) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	reasons := make(chan string, 1)
	say := func(reason string) {
		select {
		case reasons <- reason:
		default:
		}
	}
	go func() {
		defer signal.Stop(signals)
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		asked := false
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if asked && s == syscall.SIGINT {
					cancel()
					return
				}
				asked = true
				say("signal " + s.String())
			case <-tick.C:
				if parent != 0 && os.Getppid() != parent {
					say("the parent process is gone")
				}
			}
		}
	}()
	return ctx, reasons
}
