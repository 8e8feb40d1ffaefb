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

// NotifyShutdown returns the reasons to leave: the first SIGTERM, SIGINT or SIGHUP (a
// terminal that was closed), or the end of the parent process if there is one
// to watch (its pid; 0 is none). asked ends with the first of them: it is for
// what is done before there is anything to drain. A SIGINT after that ends
// all at once; the others do not: a parent that stops sends a SIGTERM on top of
// the terminal's SIGINT.
//
// From then on a reader of the output who has gone (`| head -1`) ends nothing:
// writing to it is an error.
func NotifyShutdown(ctx context.Context, parent int) (all, asked context.Context, reasons <-chan string) {
	ctx, cancel := context.WithCancel(ctx)
	asked, ask := context.WithCancel(ctx)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup wants it
		signal.Notify(signals, syscall.SIGHUP)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	first := make(chan string, 1)
	say := func(reason string) {
		ask()
		select {
		case first <- reason:
		default:
		}
	}
	go func() {
		defer cancel()
		defer signal.Stop(signals)
		tick := time.NewTicker(parentPoll)
		defer tick.Stop()
		again := false
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if again && s == syscall.SIGINT {
					cancel()
					return
				}
				again = true
				say("signal " + s.String())
			case <-tick.C:
				if parent != 0 && os.Getppid() != parent {
					say("the parent process is gone")
				}
			}
		}
	}()
	return ctx, asked, first
}
